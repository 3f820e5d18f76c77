"""Counts a run's operators that have a law, in memory that does not grow with steps, without pricing them."""

from __future__ import annotations

from collections import Counter

from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import text_of
from scenarios.seam.operations.bags import BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation, words
from scenarios.seam.operations.rows import Gather
from scenarios.seam.operations.sorting import BucketizeSparse, PermuteSparse
from scenarios.seam.trace import OperatorRow
from sim.rank.observed import leaves

# Programs have some hundreds of distinct operators; this bounds scripts whose shapes change in every step.
MOST_ROWS = 1 << 16
# Descriptions with numbers of ids, which may be drawn and differ between steps.
_WITH_IDS = (BagsForward, BagsBackward, Gather, PermuteSparse, BucketizeSparse)
# Kernels are counted by identity and unpacked late; steps with drawn ids have new objects each time.
_MOST_KEPT = 4096


class OperatorLedger:
    """A count of the operators of all simulated ranks."""

    def __init__(self) -> None:
        self._kernels: dict[int, Kernel] = {}  # by id, which is not reused while the kernel is kept
        self._times: Counter[int] = Counter()
        self._operations: dict[object, Operation] = {}
        self._calls: Counter[object] = Counter()

    def add(self, kernel: Kernel) -> None:
        """Count a computation's operators."""
        key = id(kernel)
        if key not in self._kernels:
            if len(self._kernels) >= _MOST_KEPT:
                self._look_into_kernels()
            self._kernels[key] = kernel
        self._times[key] += 1

    def rows(self) -> list[OperatorRow]:
        """Return a row for each distinct operator, in the order in which they first ran."""
        self._look_into_kernels()
        return [
            OperatorRow(operations=text_of((each,)), calls=self._calls[key]) for key, each in self._operations.items()
        ]

    def _look_into_kernels(self) -> None:
        for key, kernel in self._kernels.items():
            for leaf in leaves(kernel):
                for operation in leaf.operations:
                    self._add(operation, self._times[key] * leaf.count)
        self._kernels.clear()
        self._times.clear()

    def _add(self, operation: Operation, calls: int) -> None:
        key = words(operation) if isinstance(operation, _WITH_IDS) else operation
        if key in self._operations or len(self._operations) < MOST_ROWS:
            self._operations.setdefault(key, operation)
            self._calls[key] += calls
