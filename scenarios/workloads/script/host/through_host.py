"""How tensors of a simulated GPU come to gloo, which sends memory of the host: by copies to pinned memory and back.

torch's ProcessGroupGloo makes them on streams of its own: a call begins when what it reads is on the host, and a wait
for it holds the host until gloo is through and the current stream until what it gives is back on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from scenarios.seam.kernel import Kernel
from scenarios.seam.trace import COPYING
from scenarios.workloads.script.gpu.shadows import Shadows
from scenarios.workloads.script.process.process_group import Asked


class _Link(Protocol):
    """A rank's link to the simulator, as far as these copies need it."""

    shadows: Shadows | None

    def ask(self, kind: str, argument: Any = None, *, is_cut: bool = True) -> Any: ...
    def wait(self, number: int, *, is_cut: bool) -> Any: ...
    def launch(self, given: Kernel) -> None: ...


class ThroughHost:
    """The copies of one call."""

    def __init__(self, link: _Link, back_bytes: float) -> None:
        self._link, self._side, self._back_bytes = link, _side_stream(), back_bytes

    @staticmethod
    def of(link: _Link, asked: Asked) -> ThroughHost | None:
        """Copy what a call reads to the host; None: gloo does not carry it, or it reads and writes nothing of a GPU.

        Raises:
            RuntimeError: torch's gloo has no such call of a GPU's tensors.
        """
        if link.shadows is None or not asked.library:
            return None
        is_of_gpu = link.shadows.is_of_gpu
        given, made = ([each for each in some if is_of_gpu(each)] for some in (asked.inputs, asked.outputs))
        if not (given or made):
            return None
        if asked.verb in ("send", "recv"):
            raise RuntimeError(f"{asked.verb} over gloo: expected a tensor of the CPU, as torch's sends none of a GPU")
        found = ThroughHost(link, _bytes(made))
        found._side.wait_stream(torch.cuda.current_stream())
        found._copy(Kernel(kind=COPYING, bytes_read=_bytes(given), host_written=_bytes(given), dtype=""))
        return found

    @property
    def stream(self) -> int:
        """The number of the stream that the copies are on."""
        return int(self._side.number)

    def wait(self, number: int, *, is_cut: bool) -> Any:
        """Have the host wait until gloo is through with a call, and the current stream until what the call gives is
        copied to the GPU; return what is known of that.
        """
        self._link.ask("synchronize_call", number, is_cut=is_cut)
        with torch.cuda.stream(self._side):
            found = self._link.wait(number, is_cut=False)
        self._copy(Kernel(kind=COPYING, host_read=self._back_bytes, bytes_written=self._back_bytes, dtype=""))
        torch.cuda.current_stream().wait_stream(self._side)
        return found

    def _copy(self, kernel: Kernel) -> None:
        if kernel.bytes_read or kernel.bytes_written:
            with torch.cuda.stream(self._side):
                self._link.launch(kernel)


@cache
def _side_stream() -> Any:
    """Return one for all groups: the copies of several share the way to the host."""
    return torch.cuda.Stream()


def _bytes(tensors: Sequence[Tensor]) -> float:
    return float(sum(each.nbytes for each in tensors))
