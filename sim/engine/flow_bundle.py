"""Holds many flows that begin together in arrays, and pools those that share capacities.

An all-to-all of n ranks is n * n flows, whose ends each change the rates of all others. An object for each flow and a
solution for each end are more than a large world can pay, so such flows stand in arrays, rates are found by compiled
code (`max_min_compiled`), and ends that are close to each other are one.
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

# More flows than these stand in arrays: an object for each takes more, as its time grows with their number squared.
MOST_SINGLE = 256
# Flows of a bundle that would end within this share of what its busiest capacity needs for its bytes end together.
MERGED_SHARE = 1e-3
# Arrays are made anew without the flows that are over when no more than this share is left.
_FULL_ENOUGH = 0.85


class Bundle:
    """Flows that begin together, each with a weight of 1 and its bytes on each of its capacities.

    `done` is called whenever some have ended, and tells `ended` their row numbers.
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
        """Row r moves `amounts[r]`, more than nothing, over capacities[n] for each n in `crossed[r]`; -1 is none.

        Each row crosses something, nothing twice, and something crosses each capacity.
        """
        self.capacities, self.crossed, self.amounts = capacities, crossed, amounts
        self.number = -1
        self.loads = loads(crossed, amounts, len(capacities))
        needed_ns = self.loads / np.array([capacity.per_ns for capacity in capacities])
        self.within_ns = merged_share * float(needed_ns.max())
        self._ended = ended
        self._over: Array = np.empty(0, np.int64)

    @staticmethod
    def of(flows: Sequence[Activity], merged_share: float = MERGED_SHARE) -> Bundle:
        """A bundle of what is left of flows that were an activity each; it tells each of its end."""
        every = dict.fromkeys(chain.from_iterable(flow.uses for flow in flows))
        numbers = {capacity: number for number, capacity in enumerate(every)}
        crossed = np.full((len(flows), max(len(flow.uses) for flow in flows)), -1, np.int32)
        for row, flow in zip(crossed, flows, strict=True):
            row[: len(flow.uses)] = [numbers[capacity] for capacity in flow.uses]

        def ended(rows: Array) -> None:
            for row in rows.tolist():
                flows[row].done()

        remaining = np.array([flow.remaining for flow in flows], np.float64)
        return Bundle(list(every), crossed, remaining, ended, merged_share=merged_share)

    def end(self, rows: Array) -> None:
        """Note the rows that have ended, of which `done` tells."""
        self._over = rows

    def done(self) -> None:
        """Tell which have ended."""
        rows, self._over = self._over, self._over[:0]
        self._ended(rows)


def loads(crossed: Array, amounts: Array, capacities: int) -> Array:
    """Bytes on each of so many capacities, summed in the order of rows; arguments as those of a bundle."""
    is_crossed = crossed >= 0
    of_each = np.repeat(amounts, np.count_nonzero(is_crossed, axis=1))
    return np.bincount(crossed[is_crossed], weights=of_each, minlength=capacities)


@dataclass(frozen=True, slots=True)
class Part:
    """Flows to be pooled: `crossed` as in a bundle, what is left of each, its bundle's place in `bundles`, its row."""

    capacities: Sequence[Capacity]
    crossed: Array
    remaining: Array
    bundles: Sequence[Bundle]
    owners: Array
    rows: Array

    @staticmethod
    def of(bundle: Bundle) -> Part:
        """The part that is a whole bundle."""
        count = len(bundle.amounts)
        owners, rows = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
        return Part(bundle.capacities, bundle.crossed, bundle.amounts, [bundle], owners, rows)


class Pool:
    """Flows of bundles that share capacities, solved as one; like an activity it has a number and a version.

    Flows that end within the shortest merging time of its bundles end together.
    """

    def __init__(self, number: int, parts: Sequence[Part], now_ns: int) -> None:
        """Pool parts as they are now; their capacities are this pool's from now on."""
        self._first = compiled().FIRST
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
        crossed = self._crossed(parts)
        self._counts = np.bincount(crossed.ravel(), minlength=self._first + len(self._capacities))
        self._flows = compiled().flows(crossed, np.concatenate([part.remaining for part in parts]), self._counts)
        self._left, self._under_way = len(self._rows), np.bincount(self._owners, minlength=len(self._bundles))
        self._alone = compiled().no_others()
        self._set_merging()

    def shared(self) -> list[Capacity]:
        """The capacities that its flows share with activities."""
        return [capacity for capacity in self._capacities if capacity.active and capacity.pool is self]

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way."""
        return not self._left

    def rest(self, now_ns: int) -> Part:
        """The flows under way, as a part for another pool."""
        self._settle(now_ns)
        self._thin_out()
        used, under_way = self._counts > 0, self._under_way > 0
        used[: self._first] = False
        numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
        return Part(
            list(compress(self._capacities, used[self._first :])),
            numbers[self._flows.crossed],
            self._flows.remaining,
            list(compress(self._bundles, under_way)),
            (np.cumsum(under_way) - 1)[self._owners],
            self._rows,
        )

    def forget_rates(self) -> None:
        """Read the capacities' rates anew; they have changed."""
        self._per_ns = np.array([np.inf] * self._first + [capacity.per_ns for capacity in self._capacities])

    def share(self, activities: Sequence[Activity], now_ns: int) -> dict[Activity, float]:
        """Give all flows their rates; returned are those of the activities that share with them, in amount/ns."""
        self._settle(now_ns)
        few, per_ns = self._alone, self._per_ns
        if activities:
            used = dict.fromkeys(chain.from_iterable(activity.uses for activity in activities))
            more = [capacity for capacity in used if capacity.pool is not self]
            numbers = {capacity: per_ns.size + place for place, capacity in enumerate(more)}
            numbers |= {capacity: self._numbers[capacity] for capacity in used if capacity.pool is self}
            few = _others(activities, numbers)
            per_ns = np.concatenate([per_ns, [capacity.per_ns for capacity in more]])
        capacities = compiled().Capacities(per_ns, self._counts)
        first_ns, self._last_ns, rates = compiled().solve(self._flows, few, capacities, self._within_ns)
        self.version += 1
        self.end_ns = now_ns + int(first_ns)
        return dict(zip(activities, rates.tolist(), strict=True))

    def finish(self, now_ns: int) -> tuple[list[Bundle], list[Capacity]]:
        """End the flows whose time has come: bundles that have some to tell of, and capacities that none uses now."""
        elapsed_ns, self._settled_ns = now_ns - self._settled_ns, now_ns
        ended, freed = compiled().advance(self._flows, self._counts, elapsed_ns, self._last_ns)
        self.version += 1
        told = self._tell(ended)
        free = [self._capacities[number - self._first] for number in freed.tolist()]
        for capacity in free:
            capacity.leave_pool(now_ns)
        if self._left < _FULL_ENOUGH * len(self._rows):
            self._thin_out()
        return told, free

    def _tell(self, ended: Array) -> list[Bundle]:
        owners, rows = self._owners[ended], self._rows[ended]
        counts = np.bincount(owners, minlength=len(self._bundles))
        self._under_way -= counts
        self._left -= len(ended)
        told = np.flatnonzero(counts).tolist()
        for place in told:
            self._bundles[place].end(rows[owners == place] if len(told) > 1 else rows)
            if not self._under_way[place]:
                self._set_merging()
        return [self._bundles[place] for place in told]

    def _crossed(self, parts: Sequence[Part]) -> Array:
        """The capacities that flows cross, in this pool's numbers; all parts as wide as the widest."""
        width = max(part.crossed.shape[1] for part in parts)
        crossed = np.full((len(self._rows), width), compiled().NONE, np.uint32)
        begin = 0
        for part in parts:
            # An index of -1 takes the last.
            numbers = np.array([*(self._numbers[capacity] for capacity in part.capacities), compiled().NONE], np.uint32)
            end = begin + len(part.rows)
            crossed[begin:end, : part.crossed.shape[1]] = numbers[part.crossed]
            begin = end
        return crossed

    def _settle(self, now_ns: int) -> None:
        """Book what was done at the present rates."""
        if now_ns > self._settled_ns:
            compiled().book(self._flows.remaining, self._flows.rates, now_ns - self._settled_ns)
            self._settled_ns = now_ns

    def _set_merging(self) -> None:
        under_way = compress(self._bundles, self._under_way)
        self._within_ns = min((bundle.within_ns for bundle in under_way), default=0.0)

    def _thin_out(self) -> None:
        """Drop the rows that have ended."""
        flows, kept = self._flows, np.isfinite(self._flows.remaining)
        self._owners, self._rows = self._owners[kept], self._rows[kept]
        self._flows = compiled().flows(flows.crossed[kept], flows.remaining[kept], self._counts)


def _others(activities: Sequence[Activity], numbers: Mapping[Capacity, int]) -> Others:
    """The activities in arrays, as the compiled solver takes them."""
    uses = [(numbers[capacity], per_unit) for activity in activities for capacity, per_unit in activity.uses.items()]
    others: Others = compiled().Others(
        starts=np.cumsum([0, *(len(activity.uses) for activity in activities)]),
        capacities=np.array([number for number, _ in uses], np.int64),
        per_unit=np.array([per_unit for _, per_unit in uses], np.float64),
        weights=np.array([activity.weight for activity in activities], np.float64),
    )
    return others


@cache
def compiled() -> ModuleType:
    """Load the compiled solver, when it is needed first: numba takes a while."""
    from sim.engine import max_min_compiled  # noqa: PLC0415

    return max_min_compiled
