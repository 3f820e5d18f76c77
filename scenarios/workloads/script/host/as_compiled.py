"""Notes an eager step of a script as torch.compile would have it: modules' operators fused, all else as it is."""

from __future__ import annotations

import torch

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.events.work import GradientReady, Launched, LaunchKernel, OnStream
from scenarios.workloads.script.host.compiled import Call, Compiled


class AsCompiled:
    """A record of what a GPU would be given in the step that runs, were the script's modules compiled.

    Operators of modules, forward and back, are those of a compiler; those of optimizers, of the script's own lines and
    of modules that TorchRec has sharded, whose Python ends what is compiled, stay as they are.
    """

    def __init__(self) -> None:
        self._compiled = Compiled(self._launch)
        self._given: list[Launched] = []
        self._is_backward = False
        self._as = 0, ""  # of what is fused: its stream, and what it is for

    def launch(self, given: OnStream | GradientReady, work: HostWork, call: Call | None) -> None:
        """Take what the stream is given: with its `call` an operator of a module."""
        is_backward = torch._C._current_autograd_node() is not None
        if is_backward != self._is_backward:  # two graphs, between which what is needed later is written
            self._compiled.flush()
            self._is_backward = is_backward
        if call is not None and isinstance(given, LaunchKernel):
            self._as = given.stream, given.label
            if any(work.computed):  # compiled code does not do the rest
                self._given.append(work.computed)
            self._compiled.note(given.kernel, call, enters=True)
        elif not self._compiled.launch_after(lambda: self._add(given, work)):
            self._add(given, work)

    def note(self, work: HostWork) -> None:
        """Take what the host does before it asks."""
        self._compiled.flush()
        self._add(None, work)

    def take(self) -> list[Launched]:
        """Return what the GPU would have been given since the last call."""
        self._compiled.flush()
        given, self._given = self._given, []
        return given

    def _launch(self, kernel: Kernel, work: HostWork) -> None:
        stream, label = self._as
        self._add(LaunchKernel(stream, kernel, label), work)

    def _add(self, given: OnStream | GradientReady | None, work: HostWork) -> None:
        if any(work):
            self._given.append(work)
        if given is not None:
            self._given.append(given)
