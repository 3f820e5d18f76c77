"""Counts a host's work between a GPU's launches, from inside a dispatch mode."""

from __future__ import annotations

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
        self.all_dispatches = 0
        self._clear()

    def count_dispatch(self) -> None:
        """Count an operator that torch dispatches, and the autograd node that calls it."""
        self._dispatches += 1
        self.all_dispatches += 1
        node: Any = torch._C._current_autograd_node()
        if node is None:
            self._node = None
            return
        accumulates = node.name() == _ACCUMULATES
        # Accumulating nodes all have one sequence number, so their variable identifies them. No node is stored, as it
        # would keep tensors alive.
        key = node._sequence_nr(), id(node.variable) if accumulates else 0
        self._passes += self._node is None
        if key != self._node:
            self._node = key
            self._nodes += 1
            self._gradients += accumulates

    def count_launch(self, kind: str) -> None:
        """Count an operator that launches kernels of this kind."""
        if kind in _PRODUCTS:
            self._products += 1
        else:
            self._operators += 1

    def passed_bags(self) -> None:
        """Count a pass through fbgemm's tables, whose own Python does not run."""
        self._bags += 1

    def count_work(self, work: HostWork) -> None:
        """Count work that the thread itself has done on the CPU."""
        self._bytes += work.cpu_bytes
        self._flops += work.cpu_flops
        self._turns += work.turns

    def take(self) -> HostWork:
        """Return the counts and reset them."""
        work = self.counts()
        if not any(work):
            return NO_WORK
        self._clear()
        return work

    def counts(self) -> HostWork:
        """Return the counts since the last `take`."""
        return HostWork(
            dispatches=self._dispatches,
            operators=self._operators,
            products=self._products,
            passes=self._passes,
            nodes=self._nodes,
            gradients=self._gradients,
            bags=self._bags,
            calls=self.calls,
            cpu_bytes=self._bytes,
            cpu_flops=self._flops,
            turns=self._turns,
        )

    def _clear(self) -> None:
        self._dispatches = self._operators = self._products = self._bags = self.calls = 0
        self._passes = self._nodes = self._gradients = 0
        self._bytes = self._flops = self._turns = 0
