"""Calls of gloo next to a simulated GPU: gloo sends the host's memory, and a wait for gloo blocks the host.

A call without a GPU's tensors begins at once, whatever the GPU does. Tensors of a GPU are copied to pinned memory and
back, on streams of torch's ProcessGroupGloo: a call begins when its inputs are on the host, and the current stream
continues when its outputs are back on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from scenarios.seam.kernel import Kernel
from scenarios.seam.trace import COPYING
from scenarios.seam.traits import MESSAGES
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.waits import SynchronizeCall
from scenarios.workloads.script.gpu.known_values import Shadows
from scenarios.workloads.script.process.process_group import TorchCall


class _Link(Protocol):
    """A rank's link to the simulator, as far as these copies need it."""

    shadows: Shadows | None

    def ask(self, request: Request, *, is_cut: bool = True) -> Any: ...
    def wait(self, number: int, *, is_cut: bool) -> Any: ...
    def launch(self, given: Kernel) -> None: ...


class OnHost:
    """A gloo call on the host's own tensors."""

    def __init__(self, link: _Link, use: str = "host") -> None:
        self._link, self._side = link, _side_stream(use)

    @property
    def stream(self) -> int:
        """The number of the call's stream."""
        return int(self._side.number)

    def wait(self, number: int, *, is_cut: bool) -> Any:
        """Block the host until the call is over; return the call's outputs, as far as known."""
        self._link.ask(SynchronizeCall(number), is_cut=is_cut)
        with torch.cuda.stream(self._side):
            return self._link.wait(number, is_cut=False)


class ThroughHost(OnHost):
    """A gloo call on a GPU's tensors, with copies of `given_bytes` to the host and `back_bytes` to the GPU."""

    def __init__(self, link: _Link, given_bytes: float, back_bytes: float) -> None:
        super().__init__(link, "copies")
        self._back_bytes = back_bytes
        self._side.wait_stream(torch.cuda.current_stream())
        self._copy(Kernel(kind=COPYING, bytes_read=given_bytes, host_written=given_bytes, dtype=""))

    def wait(self, number: int, *, is_cut: bool) -> Any:
        """Wait as `OnHost.wait` does; make the current stream wait until the outputs are copied to the GPU."""
        found = super().wait(number, is_cut=is_cut)
        self._copy(Kernel(kind=COPYING, host_read=self._back_bytes, bytes_written=self._back_bytes, dtype=""))
        torch.cuda.current_stream().wait_stream(self._side)
        return found

    def _copy(self, kernel: Kernel) -> None:
        if kernel.bytes_read or kernel.bytes_written:
            with torch.cuda.stream(self._side):
                self._link.launch(kernel)


def through_host(link: _Link, asked: TorchCall) -> OnHost | None:
    """Copy a gloo call's GPU inputs to the host; None if gloo does not carry the call, or there is no GPU.

    Raises:
        RuntimeError: torch's gloo does not support the call on a GPU's tensors.
    """
    if link.shadows is None or not asked.library:
        return None
    is_of_gpu = link.shadows.is_of_gpu
    given, made = ([each for each in some if is_of_gpu(each)] for some in (asked.inputs, asked.outputs))
    if not (given or made):
        return OnHost(link)
    if asked.verb in MESSAGES:
        raise RuntimeError(f"{asked.verb} over gloo: expected a tensor of the CPU, as torch's sends none of a GPU")
    return ThroughHost(link, _bytes(given), _bytes(made))


@cache
def _side_stream(use: str) -> Any:
    """Return one stream per use, shared by all groups, as their copies share the path to the host."""
    return torch.cuda.Stream()


def _bytes(tensors: Sequence[Tensor]) -> float:
    return float(sum(each.nbytes for each in tensors))
