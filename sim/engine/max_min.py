"""How activities share capacities: weighted max-min fairness, settled whenever one starts or ends.

Arithmetic only: time comes in as ns and goes out as ns; who waits for what is left to `process` and the callers.

An activity has an amount to do and uses each of its capacities by so much per unit of the amount. Its rate grows with
its weight until a capacity that it uses is full; then the others go on growing (progressive filling; Bertsekas and
Gallager, Data Networks, 6.5.2). So no activity can gain without one that has less, by weight, losing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from sim.engine.flow_bundle import MOST_SINGLE, Bundle, Part, Pool
from sim.engine.link_usage import LinkLoads

# Relative slack in which a capacity counts as full, far above float64 rounding and far below anything that matters.
_FULL = 1e-12
_NS_PER_S = 1e9
# However much of a capacity is lent.
_LEAST_LEFT = 0.05


class Capacity:
    """Something of which only so much can be used at a time: a link's bytes/s, a GPU's share of its time."""

    __slots__ = (
        "_busy_since_ns",
        "_busy_until_ns",
        "_period_ns",
        "_used_before",
        "active",
        "burst",
        "busy_ns",
        "has_queue",
        "lent",
        "loads",
        "name",
        "per_ns",
        "per_s",
        "pool",
        "used",
        "whole_per_s",
    )

    def __init__(self, name: str, per_s: float, *, has_queue: bool = False, burst: float = 0.0) -> None:
        """`has_queue`: segments wait in front of it; `burst`: how much of it passes at once after a pause."""
        assert per_s > 0, f"{name}: a capacity is positive"
        self.name = name
        self.per_s = self.whole_per_s = per_s
        self.per_ns = per_s / _NS_PER_S
        self.lent = 0.0
        self.has_queue = has_queue
        self.burst = burst
        self.active: dict[Activity, float] = {}
        self.pool: Pool | None = None  # of bundles whose flows use it
        self.used = 0.0
        self.busy_ns = 0.0
        self.loads: LinkLoads | None = None  # where periods are kept
        self._busy_since_ns = 0.0
        self._busy_until_ns = 0.0
        self._period_ns = 0
        self._used_before = 0.0  # the period that began then

    def join(self, activity: Activity, per_unit: float, now_ns: int) -> None:
        """An activity begins to use this, `per_unit` of its amount."""
        if not self.active and self.pool is None:
            self._busy_since_ns = self._begin(now_ns)
        self.active[activity] = per_unit
        self.used += per_unit * activity.amount

    def leave(self, activity: Activity, now_ns: int) -> None:
        """The activity has ended."""
        del self.active[activity]
        if not self.active and self.pool is None:
            self._idle_from(now_ns)

    def join_pool(self, amount: float, now_ns: int) -> None:
        """Flows of a bundle begin to use this, for so much together; the pool that has them is told of it."""
        if not self.active and self.pool is None:
            self._busy_since_ns = self._begin(now_ns)
        self.used += amount

    def leave_pool(self, now_ns: int) -> None:
        """No flow of the pool uses this any more."""
        self.pool = None
        if not self.active:
            self._idle_from(now_ns)

    def lend(self, per_s: float) -> None:
        """To something that takes its part before all sharing, until it is given back with a minus."""
        self.lent += per_s
        self.per_s = max(self.whole_per_s - self.lent, _LEAST_LEFT * self.whole_per_s)
        self.per_ns = self.per_s / _NS_PER_S

    def pass_by(self, amount: float, now_ns: int) -> None:
        """Something that takes no share from others: it is served at once, at the full rate."""
        if not self.active and self.pool is None:
            begin_ns = self._begin(now_ns)
            self._busy_until_ns = begin_ns + amount / self.per_ns
            self.busy_ns += self._busy_until_ns - begin_ns
        self.used += amount

    def end_period(self, now_ns: int) -> None:
        """What was carried without a pause up to now is a period; what is still under way counts whole, as in `used`.

        A period ends in the ns in which the last byte has passed, and the next begins in a later one or the same.
        """
        if self.loads is not None and self.used > self._used_before:
            begin_ns, until_ns = self._period_ns, now_ns
            if not self.active and self.pool is None:
                until_ns = math.ceil(self._busy_until_ns)
            if until_ns <= begin_ns:
                until_ns = begin_ns + 1
            self.loads.add((begin_ns, until_ns, self.used - self._used_before))
        self._period_ns, self._used_before = now_ns, self.used

    def _begin(self, now_ns: int) -> float:
        """When something begins that has come now: after a pause, or when what has passed by has passed."""
        if now_ns > self._busy_until_ns:
            self.end_period(now_ns)
            return now_ns
        return self._busy_until_ns

    def _idle_from(self, now_ns: int) -> None:
        self.busy_ns += max(0.0, now_ns - self._busy_since_ns)
        self._busy_until_ns = max(now_ns, self._busy_until_ns)


class Activity:
    """Work under way; `done` is called when it ends.

    `is_flow`: each of its capacities takes a byte for each of its own, with a weight of 1, so it may go on in arrays.
    """

    __slots__ = ("amount", "done", "is_flow", "number", "rate", "remaining", "settled_ns", "uses", "version", "weight")

    def __init__(
        self,
        uses: Mapping[Capacity, float],
        amount: float,
        done: Callable[[], None],
        weight: float = 1.0,
        *,
        is_flow: bool = False,
    ) -> None:
        self.uses = {capacity: per_unit for capacity, per_unit in uses.items() if per_unit > 0}
        self.amount = self.remaining = amount
        self.weight = weight
        self.done = done
        self.is_flow = is_flow
        self.rate = 0.0
        self.settled_ns = 0
        self.version = 0
        self.number = -1

    def settle(self, now_ns: int) -> None:
        """Book what was done at the present rate."""
        self.remaining -= self.rate * (now_ns - self.settled_ns)
        self.settled_ns = now_ns


class Sharing:
    """All that is under way. `start`, `start_all` and `finish_due` mark what changed; `resolve` then sets new rates."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int, int, Activity | Pool]] = []
        self._changed: dict[Capacity, None] = {}
        self._changed_pools: dict[Pool, None] = {}
        self._numbers = count()

    def start(self, activity: Activity, now_ns: int) -> None:
        """Begin; it must use something and have something to do, else it would be over already."""
        assert activity.uses, "an activity uses something"
        assert activity.amount > 0, "an activity has something to do"
        activity.number = next(self._numbers)
        activity.settled_ns = now_ns
        for capacity, per_unit in activity.uses.items():
            capacity.join(activity, per_unit, now_ns)
            self._changed[capacity] = None

    def start_all(self, bundle: Bundle, now_ns: int) -> None:
        """Begin all flows of a bundle."""
        bundle.number = next(self._numbers)
        pools = dict.fromkeys(capacity.pool for capacity in bundle.capacities if capacity.pool is not None)
        for capacity, amount in zip(bundle.capacities, bundle.loads.tolist(), strict=True):
            capacity.join_pool(amount, now_ns)
        self._put_together([*(pool.rest(now_ns) for pool in pools), Part.of(bundle)], pools, now_ns)

    def lend(self, capacity: Capacity, per_s: float) -> None:
        """Its activities go on with the rest."""
        capacity.lend(per_s)
        self._changed[capacity] = None
        if capacity.pool is not None:
            capacity.pool.forget_rates()

    def resolve(self, now_ns: int) -> None:
        """Share anew whatever is joined, through activities, to a capacity that changed."""
        activities, pools = self._joined()
        flows = [one for one in activities if one.is_flow] if len(activities) > MOST_SINGLE else []
        if len(flows) > MOST_SINGLE:
            activities = [one for one in activities if not one.is_flow]
            pools = [self._gather(flows, pools, now_ns)]
        elif len(pools) > 1:
            pools = [self._put_together([pool.rest(now_ns) for pool in pools], pools, now_ns)]
        self._changed.clear()
        self._changed_pools.clear()
        rates = pools[0].share(activities, now_ns) if pools else max_min_rates(activities)
        for pool in pools:
            heapq.heappush(self._ends, (pool.end_ns, pool.number, pool.version, pool))
        for activity, rate in rates.items():
            if rate != activity.rate or activity.version == 0:
                activity.settle(now_ns)
                activity.rate = rate
                activity.version += 1
                end_ns = now_ns + max(0, math.ceil(activity.remaining / rate - 1e-6))
                heapq.heappush(self._ends, (end_ns, activity.number, activity.version, activity))

    def next_end_ns(self) -> int | None:
        """When the next activity ends, if rates stay as they are."""
        while self._ends and self._ends[0][2] != self._ends[0][3].version:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def finish_due(self, now_ns: int) -> list[Activity | Bundle]:
        """Take out what ends now, in the order in which it began; of bundles those of which some flows end."""
        ended: list[Activity | Bundle] = []
        while (end_ns := self.next_end_ns()) is not None and end_ns <= now_ns:
            due = heapq.heappop(self._ends)[3]
            ended += [self._end(due, now_ns)] if isinstance(due, Activity) else self._end_some(due, now_ns)
        return sorted(ended, key=lambda one: one.number)

    def _end(self, activity: Activity, now_ns: int) -> Activity:
        activity.version = -1
        for capacity in activity.uses:
            capacity.leave(activity, now_ns)
            self._changed[capacity] = None
        return activity

    def _end_some(self, pool: Pool, now_ns: int) -> list[Bundle]:
        told, free = pool.finish(now_ns)
        self._changed.update(dict.fromkeys(free))
        if not pool.is_over:
            self._changed_pools[pool] = None
        return told

    def _gather(self, flows: Sequence[Activity], pools: Sequence[Pool], now_ns: int) -> Pool:
        """What is left of the flows goes on as a bundle, in a pool with those that share with it."""
        for flow in flows:
            flow.settle(now_ns)
            flow.version = -1
            for capacity in flow.uses:
                del capacity.active[flow]
        bundle = Bundle.of(flows)
        bundle.number = next(self._numbers)
        return self._put_together([*(pool.rest(now_ns) for pool in pools), Part.of(bundle)], pools, now_ns)

    def _put_together(self, parts: Sequence[Part], pools: Iterable[Pool], now_ns: int) -> Pool:
        """One pool in place of these, which their parts come from."""
        for old in pools:
            old.version = -1
            self._changed_pools.pop(old, None)
        pool = Pool(next(self._numbers), parts, now_ns)
        self._changed_pools[pool] = None
        return pool

    def _joined(self) -> tuple[list[Activity], list[Pool]]:
        """What is joined, through activities and pools, to what changed."""
        pools: dict[Pool, None] = {}
        found: dict[Activity, None] = {}
        seen = dict.fromkeys(self._changed)
        reach = list(seen)
        fresh_pools = list(self._changed_pools)
        while reach or fresh_pools:
            if fresh_pools:
                pool = fresh_pools.pop()
                pools[pool] = None
                fresh = [capacity for capacity in pool.shared() if capacity not in seen]
                seen.update(dict.fromkeys(fresh))
                reach += fresh
                continue
            capacity = reach.pop()
            if capacity.pool is not None and capacity.pool not in pools:
                fresh_pools.append(capacity.pool)
            for activity in capacity.active:
                if activity not in found:
                    found[activity] = None
                    fresh = [capacity for capacity in activity.uses if capacity not in seen]
                    seen.update(dict.fromkeys(fresh))
                    reach += fresh
        return sorted(found, key=lambda activity: activity.number), sorted(pools, key=lambda pool: pool.number)


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
            if own_level > reached * (1 + _FULL):
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
