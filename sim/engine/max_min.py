"""Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

An activity uses a fixed amount of each of its capacities per unit of its own amount. Its rate grows with its weight
until one of its capacities is full; then the other activities go on growing. So no activity can gain without a loss of
another one whose rate over weight is not greater.

This module has the rule and its one tolerance. `max_min_rates` solves it for objects: the few activities that one event
of a run changes. Up to some 12 activities it is faster than compiled code, which takes them in arrays (one: 3 us
against 14 us; 128: 220 against 110), and small runs need not load numba (0.3 s). `sim.engine.max_min_compiled` solves
it for arrays, of flow bundles and of folded exchanges; tests compare it with this solver.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.engine.capacity import Activity, Capacity

# Relative slack in which a capacity counts as full, far above float64 rounding and far below anything that matters.
FULL = 1e-12
# Rounding error of an end, in ns: an end this far beyond a whole ns counts as that ns.
ROUNDING_NS = 1e-6


def max_min_rates(activities: Iterable[Activity]) -> dict[Activity, float]:
    """Return the weighted max-min fair rate of each activity, in amount/ns.

    `level` is the common rate over weight of all growing activities; a capacity is full at level `left / growth`.
    """
    # An ordered set: rounding depends on the order of subtractions, which must be the same in every run.
    growing = dict.fromkeys(activities)
    shares = _Shares(growing)
    rates: dict[Activity, float] = {}
    reached = 0.0
    while growing:
        levels = shares.levels()
        # Levels only rise: where rounding has eaten what is left of a capacity, its users stop at the last one.
        reached = max(reached, min(levels.values()))
        for capacity, own_level in levels.items():
            # Capacities that are full at the same level, but for rounding, are settled in one pass.
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
    """The rest of each capacity, and its growth: the rate at which growing activities fill it."""

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
        """Return the rate over weight at which each capacity would be full, if nothing else stopped its users."""
        return {
            capacity: self.left[capacity] / growth if growth > 0 else 0.0 for capacity, growth in self.growth.items()
        }

    def freeze(self, activity: Activity, rate: float) -> None:
        """Fix the rate of an activity, which takes its share from its capacities."""
        for capacity, per_unit in activity.uses.items():
            self.counts[capacity] -= 1
            # Counted rather than compared with 0: subtracting weights leaves rounding errors.
            if self.counts[capacity] == 0:
                self.growth.pop(capacity, None)
                continue
            self.left[capacity] = max(0.0, self.left[capacity] - per_unit * rate)
            self.growth[capacity] -= per_unit * activity.weight
