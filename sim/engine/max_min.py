"""Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

An activity has an amount to do and uses each of its capacities by so much per unit of the amount. Its rate grows with
its weight until a capacity that it uses is full; then the others go on growing. So no activity can gain without one
that has less, by weight, losing.

This is the rule and its one tolerance. `max_min_rates` solves it for objects: the few activities that one event of a
run changes. Up to some 12 of them it is faster than compiled code, to which they must be handed in arrays (one: 3 us
against 14 us; 128: 220 against 110), and small runs need not load numba (0.3 s). `sim.engine.max_min_compiled` solves
it for arrays, of flow bundles and of folded exchanges; the tests hold it against this solver.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.engine.capacity import Activity, Capacity

# Relative slack in which a capacity counts as full, far above float64 rounding and far below anything that matters.
FULL = 1e-12
# How far an end may be beyond a whole ns through rounding and still be taken for it.
ROUNDING_NS = 1e-6


def max_min_rates(activities: Iterable[Activity]) -> dict[Activity, float]:
    """The weighted max-min fair rate of each activity, in amount/ns.

    `level` is the common rate by weight of all that still grow; a capacity fills at `left / growth` of it.
    """
    growing = dict.fromkeys(activities)
    shares = _Shares(growing)
    rates: dict[Activity, float] = {}
    reached = 0.0
    while growing:
        levels = shares.levels()
        # Levels only rise: where rounding has eaten what is left of a capacity, its users stop at the last one.
        reached = max(reached, min(levels.values()))
        for capacity, own_level in levels.items():
            if own_level > reached * (1 + FULL):
                continue
            level = max(own_level, reached)
            for activity in capacity.active:
                if activity in growing:
                    del growing[activity]
                    rates[activity] = activity.weight * level
                    shares.freeze(activity, rates[activity])
    return rates


class _Shares:
    """What is left of each capacity, and how fast the activities that still grow fill it."""

    __slots__ = ("counts", "growth", "left")

    def __init__(self, growing: Iterable[Activity]) -> None:
        self.left: dict[Capacity, float] = {}
        self.growth: dict[Capacity, float] = {}
        self.counts: dict[Capacity, int] = {}
        for activity in growing:
            for capacity, per_unit in activity.uses.items():
                self.left[capacity] = capacity.per_ns
                self.growth[capacity] = self.growth.get(capacity, 0.0) + per_unit * activity.weight
                self.counts[capacity] = self.counts.get(capacity, 0) + 1

    def levels(self) -> dict[Capacity, float]:
        """The common rate by weight at which each capacity would be full, if nothing else stopped its users."""
        return {
            capacity: self.left[capacity] / growth if growth > 0 else 0.0 for capacity, growth in self.growth.items()
        }

    def freeze(self, activity: Activity, rate: float) -> None:
        """This activity grows no further."""
        for capacity, per_unit in activity.uses.items():
            self.counts[capacity] -= 1
            if self.counts[capacity] == 0:
                self.growth.pop(capacity, None)
                continue
            self.left[capacity] = max(0.0, self.left[capacity] - per_unit * rate)
            self.growth[capacity] -= per_unit * activity.weight
