"""Counts a host's work between a GPU's launches, from inside a dispatch mode."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from scenarios.seam.host_work import NO_WORK, HostWork

# Kinds of kernels that a library chooses and launches.
_PRODUCTS = frozenset({"gemm", "attention", "convolution"})
_ACCUMULATES = "torch::autograd::AccumulateGrad"


class HostCounter:
    """A counter of one thread's work since the last `take`.

    `calls` counts Python functions; `all_dispatches` counts all operators and is not reset.
    """

    def __init__(self) -> None:
        self._node: tuple[int, int] | None = None
        self._counts = Counter[str]()  # by field of HostWork
        self.all_dispatches = self.calls = 0

    def count_dispatch(self) -> None:
        """Count an operator that torch dispatches, and the autograd node that calls it."""
        self._counts["dispatches"] += 1
        self.all_dispatches += 1
        node: Any = torch._C._current_autograd_node()
        if node is None:
            self._node = None
            return
        accumulates = node.name() == _ACCUMULATES
        # Accumulating nodes all have one sequence number, so their variable identifies them. No node is stored, as it
        # would keep tensors alive.
        key = node._sequence_nr(), id(node.variable) if accumulates else 0
        self._counts["passes"] += self._node is None
        if key != self._node:
            self._node = key
            self._counts["nodes"] += 1
            self._counts["gradients"] += accumulates

    def count_launch(self, kind: str) -> None:
        """Count an operator that launches kernels of this kind."""
        self._counts["products" if kind in _PRODUCTS else "operators"] += 1

    def passed_bags(self) -> None:
        """Count a pass through fbgemm's tables, whose own Python does not run."""
        self._counts["bags"] += 1

    def count_work(self, work: HostWork) -> None:
        """Count work that the thread itself has done on the CPU."""
        self._counts.update(cpu_bytes=work.cpu_bytes, cpu_flops=work.cpu_flops, turns=work.turns)

    def take(self) -> HostWork:
        """Return the counts and reset them."""
        work = self.counts()
        if not any(work):
            return NO_WORK
        self._counts.clear()
        self.calls = 0
        return work

    def counts(self) -> HostWork:
        """Return the counts since the last `take`."""
        return HostWork(**self._counts, calls=self.calls)
