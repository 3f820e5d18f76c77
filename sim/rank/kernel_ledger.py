"""Sums up the kernels of one rank by operator, shapes and kind of price, in memory that does not grow with steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import words
from scenarios.seam.trace import KernelRow
from sim.engine.machine import Machine
from sim.rank.balance import PricedComputation
from sim.rank.observed import leaves

# Rows that keep their shapes; further operators are merged as OTHERS. Programs have some hundreds.
MOST_ROWS = 4096
OTHERS = "other shapes"
# Computations whose rows are cached: each step has the same kernel objects as the step before.
_MOST_KNOWN = 1024
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


class _Key(NamedTuple):
    operator: str
    shapes: str
    priced_by: str


@dataclass(slots=True)
class _Sum:
    """The number of calls, and their total time."""

    count: int = 0
    total_ns: float = 0.0


class _Calls(NamedTuple):
    """A computation's calls of one operator: `times` calls, `total_ns` together."""

    key: _Key
    times: int
    total_ns: float


_Sums = dict[_Key, _Sum]


class KernelLedger:
    """A count of a rank's kernels in its steps; the first step counts only if it is the only one."""

    def __init__(self, machine: Machine, rank: int) -> None:
        self._machine, self._rank = machine, rank
        self._step = -1
        self._now: _Sums = {}  # of the current step
        self._first: _Sums = {}
        self._later: _Sums = {}
        self._later_steps = 0
        self._known: dict[int, tuple[Kernel, Sequence[_Calls]]] = {}

    def add(self, step: int, label: str, own: Kernel, priced: PricedComputation) -> None:
        """Count a computation of a step; `priced` is the rank's `own` kernel with its price."""
        if own.lasts_ns:
            return
        if step > self._step:
            self._end_step()
            self._step = step
        for each in self._calls(label, own, priced):
            _add(self._now, each)

    def give_up(self, step: int) -> None:
        """Forget the current step, which no longer belongs to the run."""
        if step == self._step:
            self._now = {}

    def rows(self, *, is_whole: bool) -> list[KernelRow]:
        """Return a row for each distinct operator, those with most time first.

        `is_whole` is false for an interrupted run: the last step then counts only if there is no other.
        """
        if is_whole or not self._later_steps:
            self._end_step()
        sums, steps = (self._later, self._later_steps) if self._later_steps else (self._first, 1)
        whole_ns = sum(one.total_ns for one in sums.values()) or 1.0
        rows = [
            KernelRow(
                **key._asdict(),
                predicted_us=one.total_ns / one.count / 1e3,
                count=one.count / steps,
                share=one.total_ns / whole_ns,
            )
            for key, one in sums.items()
        ]
        return sorted(rows, key=lambda row: (-row.share, row.operator, row.shapes, row.priced_by))

    def _end_step(self) -> None:
        ended, self._now = self._now, {}
        if not ended:
            return
        if not self._first:
            self._first = ended
            return
        self._later_steps += 1
        for key, one in ended.items():
            _add(self._later, _Calls(key, one.count, one.total_ns))

    def _calls(self, label: str, own: Kernel, priced: PricedComputation) -> Sequence[_Calls]:
        if priced.measured_ns is not None:
            return [_Calls(_Key(label, _work(priced.kernel), "measured"), 1, float(priced.measured_ns))]
        if priced.price is not None:
            total_ns = self._machine.alone_ns(self._rank, priced.price)
            prices = self._machine.prices
            by = {prices.source_of_price(each) for leaf in leaves(own) for each in leaf.operations} or {"roofline"}
            return [_Calls(_Key(priced.kernel.kind, f"mean of ranks: {_work(priced.kernel)}", min(by)), 1, total_ns)]
        kept, found = self._known.get(id(own), (None, ()))
        if kept is own:  # the cached reference also keeps the id from being reused
            return found
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found = list(calls_of(own, self._machine, self._rank))
        self._known[id(own)] = own, found
        return found


def calls_of(kernel: Kernel, machine: Machine, rank: int) -> Iterator[_Calls]:
    """Yield the calls of the operators that a kernel is made of."""
    for leaf in leaves(kernel):
        yield from _calls_of(leaf, machine, rank)


def _calls_of(leaf: Kernel, machine: Machine, rank: int) -> Iterator[_Calls]:
    prices = machine.prices
    if prices.has_laws and leaf.operations and leaf.count:
        for each in leaf.operations:
            key = _Key(*words(each), prices.source_of_price(each))
            yield _Calls(key, leaf.count, 1e9 * leaf.count * prices.seconds(each))
        return
    total_ns = machine.alone_ns(rank, prices.cost(leaf))
    if not (total_ns and leaf.count):
        return
    name = words(leaf.operations[0]) if len(leaf.operations) == 1 else (leaf.kind, _work(leaf))
    yield _Calls(_Key(*name, "roofline"), leaf.count, total_ns)


def _add(sums: _Sums, calls: _Calls) -> None:
    key = calls.key
    one = sums.get(key)
    if one is None:
        if len(sums) >= MOST_ROWS:
            key = key._replace(shapes=OTHERS)
        one = sums.setdefault(key, _Sum())
    one.count += calls.times
    one.total_ns += calls.total_ns


def _work(kernel: Kernel) -> str:
    """Return the work of one call in words, to two digits as it may vary with ids: "1.2 GFLOP, 34 MB, float32"."""
    moved = kernel.bytes_read + kernel.bytes_written + kernel.host_read + kernel.host_written
    amounts = [(kernel.flops, "FLOP"), (moved, "B")]
    return ", ".join([*(_amount(amount / kernel.count, unit) for amount, unit in amounts if amount), kernel.dtype])


def _amount(amount: float, unit: str) -> str:
    factor, prefix = next((each for each in _UNITS if amount >= each[0]), _UNITS[-1])
    return f"{float(f'{amount / factor:.2g}'):g} {prefix}{unit}"
