"""Whether a rank's host is ahead of its device, so that a kernel's span is the device's own time: CUDA's part of it.

A host that launches kernel after kernel onto an idle GPU is slower than the GPU: spans between two events would be its
own time. So work is put in front (`Hold`) that takes longer than launching what follows.
"""

from __future__ import annotations

from typing import Protocol

import torch

from scenarios.seam.kernel import Kernel

# More than any GPU's cache, so that its rate is the memory's.
_HOLD_BYTES = 256 << 20


class Hold:
    """Passes over a buffer: work of which a device's data sheet says how long it takes at least."""

    def __init__(self, device: torch.device, memory_bytes_per_s: float) -> None:
        self._buffer = torch.zeros(_HOLD_BYTES // 4, device=device)
        self._pass_s = 2 * _HOLD_BYTES / memory_bytes_per_s

    def kernel(self, for_s: float) -> Kernel:
        """What keeps the device busy for so long, or longer."""
        passes = max(1, -int(-for_s // self._pass_s))
        moved_bytes = float(passes * _HOLD_BYTES)
        return Kernel(kind="elementwise", bytes_read=moved_bytes, bytes_written=moved_bytes, launches=passes)

    def play(self, passes: int) -> None:
        """The passes of such a kernel, which are its launches."""
        for _ in range(passes):
            self._buffer.add_(1)


class Host(Protocol):
    """Where a rank's host is, compared with its device."""

    def wait(self) -> None:
        """Until the device has nothing to do."""
        ...

    def mark(self) -> None:
        """What was launched until now is what the host shall stay ahead of."""
        ...

    def is_ahead(self) -> bool | None:
        """Whether the device has not yet passed the mark; None where a kernel runs when it is launched."""
        ...


class SameTime:
    """A CPU, or a simulated device."""

    def wait(self) -> None:
        """It has nothing to do."""

    def mark(self) -> None:
        """It is where its host is."""

    def is_ahead(self) -> bool | None:
        """See `Host`."""
        return None


class CudaHost:
    """The host of a CUDA device, on the thread's current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mark: torch.cuda.Event | None = None

    def wait(self) -> None:
        """See `Host`."""
        torch.cuda.synchronize(self._device)

    def mark(self) -> None:
        """See `Host`."""
        self._mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._mark.record(torch.cuda.current_stream(self._device))

    def is_ahead(self) -> bool | None:
        """See `Host`."""
        assert self._mark is not None, "there is a mark"
        return not self._mark.query()  # type: ignore[no-untyped-call]


def host_of(device: torch.device) -> Host:
    """That of a rank whose payload lives there."""
    return CudaHost(device) if device.type == "cuda" else SameTime()
