"""Derives from an eager step the work that torch.compile would launch: modules' operators fused, all else unchanged."""

from __future__ import annotations

import torch

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.workloads.recording.events.work import GradientReady, Label, Launched, LaunchKernel, OnStream
from scenarios.workloads.script.host.compiled import Call, Compiled


class AsCompiled:
    """A record of the GPU's work in the current step, as if the script's modules were compiled.

    Operators of modules, forward and backward, are fused. Operators of optimizers, of the script's own lines and of
    modules that TorchRec has sharded, whose Python code breaks compiled graphs, stay unchanged.
    """

    def __init__(self) -> None:
        self._compiled = Compiled(self._launch)
        self._given: list[Launched] = []
        self._is_backward = False
        self._as = 0, Label("")  # stream and label of the fused kernels

    def launch(self, given: OnStream | GradientReady, work: HostWork, call: Call | None) -> None:
        """Record an item for a stream, after the host's `work`. `call`: the module's operator, if it is one."""
        is_backward = torch._C._current_autograd_node() is not None
        if is_backward != self._is_backward:  # forward and backward are separate graphs: no fusion across them
            self._compiled.flush()
            self._is_backward = is_backward
        if call is not None and isinstance(given, LaunchKernel):
            self._as = given.stream, Label(given.label, given.role)
            if any(work.own_work):  # compiled code saves the rest of the host's work
                self._given.append(work.own_work)
            self._compiled.note(given.kernel, call, enters=True)
        elif not self._compiled.launch_after(lambda: self._add(given, work)):
            self._add(given, work)

    def note(self, work: HostWork) -> None:
        """Record the host's work that precedes a request, after launching the compiled code's kernels so far."""
        self._compiled.flush()
        self._add(None, work)

    def take(self) -> list[Launched]:
        """Return the GPU's work since the last call, as if compiled."""
        self._compiled.flush()
        given, self._given = self._given, []
        return given

    def _launch(self, kernel: Kernel, work: HostWork) -> None:
        stream, label = self._as
        self._add(LaunchKernel(stream, kernel, *label), work)

    def _add(self, given: OnStream | GradientReady | None, work: HostWork) -> None:
        if any(work):
            self._given.append(work)
        if given is not None:
            self._given.append(given)
