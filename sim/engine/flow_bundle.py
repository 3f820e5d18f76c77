"""Holds flows that begin together in arrays, and pools those that share capacities.

An all-to-all of n ranks is n * n flows, and the end of each changes the rates of all others. One object per flow and
one solution per end would be too slow for a large world. So such flows are kept in arrays, compiled code
(`max_min_compiled`) computes their rates, and ends that are close to each other are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, compress
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sim.engine.capacity import Activity, Capacity
    from sim.engine.max_min_compiled import Others

Array = npt.NDArray[Any]

# Above this number flows stand in arrays: the time of one object per flow grows with the square of their number.
MOST_SINGLE = 256
# Flows of a bundle end together if their ends differ by less than this share of the bottleneck's time for its bytes.
MERGED_SHARE = 1e-3
# Arrays are rebuilt without ended flows when less than this share of rows is left.
_FULL_ENOUGH = 0.85


class Bundle:
    """A set of flows that begin together, each of weight 1, with its bytes on each of its capacities.

    `done` is called whenever some flows have ended, and passes their row numbers to `end`.
    """

    __slots__ = ("_ended", "_over", "amounts", "capacities", "crossed", "loads", "number", "within_ns")

    def __init__(
        self,
        capacities: Sequence[Capacity],
        crossed: Array,
        amounts: Array,
        ended: Callable[[Array], None],
        *,
        merged_share: float = MERGED_SHARE,
    ) -> None:
        """Create a flow for each row: row r moves `amounts[r]` > 0 over capacities[n] for each n in `crossed[r]`; -1 is
        none.

        Each row crosses at least one capacity, no capacity twice, and each capacity is crossed by at least one row.
        """
        self.capacities, self.crossed, self.amounts = capacities, crossed, amounts
        self.number = -1
        self.loads = loads(crossed, amounts, len(capacities))
        needed_ns = self.loads / np.array([capacity.per_ns for capacity in capacities])
        # From all bytes, once: when few bytes are left, the last ends of the bundle still merge.
        self.within_ns = merged_share * float(needed_ns.max())
        self._ended = ended
        self._over: Array = np.empty(0, np.int64)

    @staticmethod
    def of(flows: Sequence[Activity], merged_share: float = MERGED_SHARE) -> Bundle:
        """Return a bundle of the remaining bytes of single flows, which calls `done` of each flow at its end."""
        # A dict, not a set: its order numbers the capacities, and so decides the order of the solver's subtractions.
        every = dict.fromkeys(chain.from_iterable(flow.uses for flow in flows))
        numbers = {capacity: number for number, capacity in enumerate(every)}
        crossed = np.full((len(flows), max(len(flow.uses) for flow in flows)), -1, np.int32)
        for row, flow in zip(crossed, flows, strict=True):
            row[: len(flow.uses)] = [numbers[capacity] for capacity in flow.uses]

        def end(rows: Array) -> None:
            for row in rows.tolist():
                flows[row].done()

        remaining = np.array([flow.remaining for flow in flows], np.float64)
        return Bundle(list(every), crossed, remaining, end, merged_share=merged_share)

    def end(self, rows: Array) -> None:
        """Note the rows that have ended, for `done`."""
        self._over = rows

    def done(self) -> None:
        """Report the rows that have ended."""
        rows, self._over = self._over, self._over[:0]
        self._ended(rows)


def loads(crossed: Array, amounts: Array, capacities: int) -> Array:
    """Return the bytes on each of n = `capacities` capacities, summed in the order of rows (see `Bundle`)."""
    is_crossed = crossed >= 0
    of_each = np.repeat(amounts, np.count_nonzero(is_crossed, axis=1))
    return np.bincount(crossed[is_crossed], weights=of_each, minlength=capacities)


@dataclass(frozen=True, slots=True)
class PooledFlows:
    """A set of flows for a pool: `crossed` as in a bundle, bytes `remaining`, and each flow's bundle (an index) and
    row.
    """

    capacities: Sequence[Capacity]
    crossed: Array
    remaining: Array
    bundles: Sequence[Bundle]
    owners: Array
    rows: Array

    @staticmethod
    def of(bundle: Bundle) -> PooledFlows:
        """Return a part with all flows of a bundle."""
        count = len(bundle.amounts)
        owners, rows = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
        return PooledFlows(bundle.capacities, bundle.crossed, bundle.amounts, [bundle], owners, rows)


class FlowPool:
    """A set of flows of bundles that share capacities, solved as one; it has a number and a version, as an activity
    has.

    Flows that end within the shortest merging time of the pool's bundles end together.
    """

    def __init__(self, number: int, parts: Sequence[PooledFlows], now_ns: int) -> None:
        """Pool parts as they are now, and set `pool` of their capacities to this one."""
        self._first = compiled_solver().FIRST
        self.number, self.version = number, 0
        self.end_ns, self._settled_ns, self._last_ns = now_ns, now_ns, 0.0
        every = dict.fromkeys(chain.from_iterable(part.capacities for part in parts))
        self._numbers = {capacity: self._first + index for index, capacity in enumerate(every)}
        self._capacities = list(every)
        for capacity in self._capacities:
            capacity.pool = self
        self.forget_rates()
        self._bundles = [bundle for part in parts for bundle in part.bundles]
        places = accumulate((len(part.bundles) for part in parts), initial=0)
        self._owners = np.concatenate([part.owners + place for part, place in zip(parts, places, strict=False)])
        self._rows = np.concatenate([part.rows for part in parts])
        crossed = self._find_crossed(parts)
        self._counts = np.bincount(crossed.ravel(), minlength=self._first + len(self._capacities))
        self._flows = compiled_solver().flows(crossed, np.concatenate([part.remaining for part in parts]), self._counts)
        self._left, self._under_way = len(self._rows), np.bincount(self._owners, minlength=len(self._bundles))
        self._alone = compiled_solver().no_others()
        self._set_merging()

    def shared_capacities(self) -> list[Capacity]:
        """Return the capacities that the pool's flows share with activities."""
        return [capacity for capacity in self._capacities if capacity.active and capacity.pool is self]

    @property
    def is_over(self) -> bool:
        """True if no flow is left."""
        return not self._left

    def rest(self, now_ns: int) -> PooledFlows:
        """Return the unfinished flows, as a part for another pool."""
        self._settle(now_ns)
        self._thin_out()
        used, under_way = self._counts > 0, self._under_way > 0
        # The sentinels are no capacities.
        used[: self._first] = False
        numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
        return PooledFlows(
            list(compress(self._capacities, used[self._first :])),
            numbers[self._flows.crossed],
            self._flows.remaining,
            list(compress(self._bundles, under_way)),
            (np.cumsum(under_way) - 1)[self._owners],
            self._rows,
        )

    def forget_rates(self) -> None:
        """Copy the capacities' rates into the arrays again, after one has changed."""
        self._per_ns = np.array([np.inf] * self._first + [capacity.per_ns for capacity in self._capacities])

    def share(self, activities: Sequence[Activity], now_ns: int) -> dict[Activity, float]:
        """Set the rates of all flows; return those of the activities that share with them, in amount/ns."""
        self._settle(now_ns)
        few, per_ns = self._alone, self._per_ns
        if activities:
            used = dict.fromkeys(chain.from_iterable(activity.uses for activity in activities))
            more = [capacity for capacity in used if capacity.pool is not self]
            numbers = {capacity: per_ns.size + place for place, capacity in enumerate(more)}
            numbers |= {capacity: self._numbers[capacity] for capacity in used if capacity.pool is self}
            few = _others(activities, numbers)
            per_ns = np.concatenate([per_ns, [capacity.per_ns for capacity in more]])
        capacities = compiled_solver().Capacities(per_ns, self._counts)
        first_ns, self._last_ns, rates = compiled_solver().solve(self._flows, few, capacities, self._within_ns)
        self.version += 1
        self.end_ns = now_ns + int(first_ns)
        return dict(zip(activities, rates.tolist(), strict=True))

    def finish(self, now_ns: int) -> tuple[list[Bundle], list[Capacity]]:
        """End the flows that are due; return the bundles with ended flows, and the capacities that became free."""
        elapsed_ns, self._settled_ns = now_ns - self._settled_ns, now_ns
        ended, freed = compiled_solver().advance(self._flows, self._counts, elapsed_ns, self._last_ns)
        self.version += 1
        bundles = self._report(ended)
        free = [self._capacities[number - self._first] for number in freed.tolist()]
        # `_report` comes first: `is_over` and the merging time must be right before capacities are shared anew.
        for capacity in free:
            capacity.leave_pool(now_ns)
        if self._left < _FULL_ENOUGH * len(self._rows):
            self._thin_out()
        return bundles, free

    def _report(self, ended: Array) -> list[Bundle]:
        owners, rows = self._owners[ended], self._rows[ended]
        counts = np.bincount(owners, minlength=len(self._bundles))
        self._under_way -= counts
        self._left -= len(ended)
        places = np.flatnonzero(counts).tolist()
        for place in places:
            self._bundles[place].end(rows[owners == place] if len(places) > 1 else rows)
            # The bundle that has ended may have been the one with the shortest merging time.
            if not self._under_way[place]:
                self._set_merging()
        return [self._bundles[place] for place in places]

    def _find_crossed(self, parts: Sequence[PooledFlows]) -> Array:
        """Return the capacities that flows cross, in this pool's numbers; all rows as wide as the widest part."""
        width = max(part.crossed.shape[1] for part in parts)
        crossed = np.full((len(self._rows), width), compiled_solver().NONE, np.uint32)
        begin = 0
        for part in parts:
            # -1, which means none, indexes the last number.
            numbers = np.array(
                [*(self._numbers[capacity] for capacity in part.capacities), compiled_solver().NONE], np.uint32
            )
            end = begin + len(part.rows)
            crossed[begin:end, : part.crossed.shape[1]] = numbers[part.crossed]
            begin = end
        return crossed

    def _settle(self, now_ns: int) -> None:
        """Subtract the bytes moved at the current rates since the last call."""
        if now_ns > self._settled_ns:
            compiled_solver().book(self._flows.remaining, self._flows.rates, now_ns - self._settled_ns)
            self._settled_ns = now_ns

    def _set_merging(self) -> None:
        under_way = compress(self._bundles, self._under_way)
        self._within_ns = min((bundle.within_ns for bundle in under_way), default=0.0)

    def _thin_out(self) -> None:
        """Drop the rows that have ended."""
        # The solver marks ended rows with infinitely many bytes left.
        flows, kept = self._flows, np.isfinite(self._flows.remaining)
        self._owners, self._rows = self._owners[kept], self._rows[kept]
        self._flows = compiled_solver().flows(flows.crossed[kept], flows.remaining[kept], self._counts)


def _others(activities: Sequence[Activity], numbers: Mapping[Capacity, int]) -> Others:
    """Return the activities in arrays, as the compiled solver takes them."""
    uses = [(numbers[capacity], per_unit) for activity in activities for capacity, per_unit in activity.uses.items()]
    others: Others = compiled_solver().Others(
        starts=np.cumsum([0, *(len(activity.uses) for activity in activities)]),
        capacities=np.array([number for number, _ in uses], np.int64),
        per_unit=np.array([per_unit for _, per_unit in uses], np.float64),
        weights=np.array([activity.weight for activity in activities], np.float64),
    )
    return others


@cache
def compiled_solver() -> ModuleType:
    """Import the compiled solver at first use, as loading numba takes 0.3 s."""
    from sim.engine import max_min_compiled  # noqa: PLC0415

    return max_min_compiled
