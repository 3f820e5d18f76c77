"""Divides computations among the modules that run their operators, in memory that does not grow with steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scenarios.seam.kernel import Kernel
from scenarios.seam.trace import LayerRow
from sim.engine.machine import Machine
from sim.rank.kernel_ledger import calls_of

# Rows that keep their shapes; a program's layers and operators are some hundreds.
MOST_ROWS = 1 << 14
# Kernels are counted by identity and priced late; programs whose shapes change have new ones in each step.
_MOST_KEPT = 1024

_Key = tuple[str, str, str, str]  # label, layer, operator, shapes


class LayerLedger:
    """A count of all simulated ranks' kernels that have layers."""

    def __init__(self, machine: Machine, rank: int) -> None:
        """Begin a count; the GPU of `rank` prices the operators."""
        self._machine, self._rank = machine, rank
        self._calls: Counter[tuple[str, int]] = Counter()
        self._kernels: dict[int, Kernel] = {}  # by id, which is not reused while the kernel is kept
        self._ns: dict[_Key, float] = {}

    def add(self, label: str, kernel: Kernel) -> None:
        """Count a computation."""
        if not kernel.layers:
            return
        if len(self._calls) >= _MOST_KEPT:
            self._price_kernels()
        self._kernels[id(kernel)] = kernel
        self._calls[label, id(kernel)] += 1

    def rows(self) -> list[LayerRow]:
        """Return a row for each label, layer and operator, in the order in which they first ran."""
        self._price_kernels()
        whole = Counter[str]()
        for (label, *_), ns in self._ns.items():
            whole[label] += ns  # type: ignore[assignment]
        return [
            LayerRow(label=label, layer=layer, operator=operator, shapes=shapes, share=ns / whole[label])
            for (label, layer, operator, shapes), ns in self._ns.items()
        ]

    def _price_kernels(self) -> None:
        for (label, number), times in self._calls.items():
            for layer, operator, shapes, ns in self._priced(self._kernels[number]):
                key = (label, layer, operator, shapes)
                if key not in self._ns and len(self._ns) >= MOST_ROWS:
                    key = (label, layer, operator, "")
                self._ns[key] = self._ns.get(key, 0.0) + times * ns
        self._calls.clear()
        self._kernels.clear()

    def _priced(self, kernel: Kernel) -> Iterator[tuple[str, str, str, float]]:
        """Yield the layer, operator, shapes and time in ns of each of a kernel's calls."""
        runs: Counter[int] = Counter()
        for _, of_layer in kernel.layers:
            runs.update(dict(of_layer))
        calls = {place: list(calls_of(kernel.parts[place], self._machine, self._rank)) for place in runs}
        for layer, of_layer in kernel.layers:
            for place, count in of_layer:
                for each in calls[place]:
                    yield layer, each.key.operator, each.key.shapes, each.total_ns * count / runs[place]
