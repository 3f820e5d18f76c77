"""Counts what the host of a script's GPU does between launches, in the script's process."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from scenarios.seam.host_work import NO_WORK, HostWork

# Kinds of kernels that a library chooses and launches.
_PRODUCTS = frozenset({"gemm", "attention", "convolution"})
_ACCUMULATES = "torch::autograd::AccumulateGrad"
# A function counts; it does not, but what it calls may; neither does.
_COUNTED, _PASSED_THROUGH, _SIMULATION = range(3)
# Python that runs only because the GPU is simulated: here, but for functions that call the script's or a library's own,
# and in what torch has around modes.
_CALLING_OTHERS = frozenset({"__torch_function__", "recorded", "forward", "watched", "advance"})
_OF_MODES = (
    *("torch/_library/simple_registry.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/overrides.py"),
    *("torch/utils/_python_dispatch.py", "torch/compiler/__init__.py"),
)
_OURS = tuple(f"{Path(__file__).parents[4] / room}/" for room in ("scenarios", "sim", "real"))


class HostCounter:
    """Counts of a script's main thread since they were taken last."""

    def __init__(self) -> None:
        self._dispatches = self._operators = self._products = self._nodes = self._gradients = self._bags = 0
        self._calls = 0
        self._inside = 0  # how deep the thread is in Python of the simulation
        self._kinds: dict[CodeType, int] = {}
        self._node: tuple[int, int] | None = None

    def watch_calls(self) -> None:
        """Count from now on this thread's calls of Python functions."""
        sys.setprofile(self._profile)

    def dispatched(self) -> None:
        """Count an operator that torch dispatches, and the node of autograd that calls it."""
        self._dispatches += 1
        node = torch._C._current_autograd_node()
        if node is None:
            self._node = None
            return
        accumulates = node.name() == _ACCUMULATES
        # A gradient's nodes all have the same sequence number. No node is kept: it would keep tensors.
        key = node._sequence_nr(), id(node.variable) if accumulates else 0
        if key != self._node:
            self._node = key
            self._nodes += 1
            self._gradients += accumulates

    def launched(self, kind: str) -> None:
        """Count an operator that launches kernels of this kind."""
        if kind in _PRODUCTS:
            self._products += 1
        else:
            self._operators += 1

    def passed_bags(self) -> None:
        """Count a pass through fbgemm's tables, whose own Python is not run."""
        self._bags += 1

    def take(self) -> HostWork:
        """Return the counts, and begin anew."""
        taken = HostWork(
            dispatches=self._dispatches,
            operators=self._operators,
            products=self._products,
            nodes=self._nodes,
            gradients=self._gradients,
            bags=self._bags,
            calls=self._calls,
        )
        if not any(taken):
            return NO_WORK
        self._dispatches = self._operators = self._products = self._nodes = self._gradients = self._bags = 0
        self._calls = 0
        return taken

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            if self._inside:
                self._inside += 1
                return
            kind = self._kinds.get(frame.f_code)
            if kind is None:
                kind = self._kinds[frame.f_code] = _kind(frame.f_code)
            self._calls += kind == _COUNTED
            self._inside += kind == _SIMULATION
        elif event == "return" and self._inside:
            self._inside -= 1


def _kind(code: CodeType) -> int:
    if code.co_filename.startswith(_OURS):
        return _PASSED_THROUGH if code.co_name in _CALLING_OTHERS else _SIMULATION
    return _PASSED_THROUGH if code.co_filename.endswith(_OF_MODES) else _COUNTED
