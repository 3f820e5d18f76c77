"""Shares capacities among all activities: computes new rates and ends whenever an activity starts or ends."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from itertools import count

from sim.engine.capacity import Activity, Capacity
from sim.engine.flow_bundle import MOST_SINGLE, Bundle, FlowPool, PooledFlows
from sim.engine.max_min import ROUNDING_NS, max_min_rates


class Sharing:
    """The current activities and pools, and their ends.

    `start`, `start_all`, `lend`, `note_change` and `finish_due` mark changes; `resolve` then sets new rates.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[int, int, int, Activity | FlowPool]] = []
        self._changed: dict[Capacity, None] = {}
        self._changed_pools: dict[FlowPool, None] = {}
        self._numbers = count()

    def start(self, activity: Activity, now_ns: int) -> bool:
        """Start an activity and return whether it is in progress; without uses or amount it ends at once."""
        if not activity.uses or activity.amount <= 0:
            activity.done()
            return False
        activity.number = next(self._numbers)
        activity.settled_ns = now_ns
        for capacity, per_unit in activity.uses.items():
            capacity.join(activity, per_unit, now_ns)
            self._changed[capacity] = None
        return True

    def start_all(self, bundle: Bundle, now_ns: int) -> None:
        """Start all flows of a bundle."""
        bundle.number = next(self._numbers)
        # Found before `join_pool`, and joined into one: flows that share a capacity need one solution.
        pools = dict.fromkeys(capacity.pool for capacity in bundle.capacities if capacity.pool is not None)
        for capacity, amount in zip(bundle.capacities, bundle.loads.tolist(), strict=True):
            capacity.join_pool(amount, now_ns)
        self._put_together([*(pool.rest(now_ns) for pool in pools), PooledFlows.of(bundle)], pools, now_ns)

    def lend(self, capacity: Capacity, per_s: float) -> None:
        """Reserve a part of a capacity; its activities share the rest."""
        capacity.lend(per_s)
        self.note_change(capacity)

    def note_change(self, capacity: Capacity) -> None:
        """Have `resolve` share out a capacity whose rate has changed."""
        self._changed[capacity] = None
        if capacity.pool is not None:
            capacity.pool.forget_rates()

    def resolve(self, now_ns: int) -> None:
        """Set the rates of all activities and pools connected, through activities, to a changed capacity."""
        activities, pools = self._find_connected()
        flows = [one for one in activities if one.is_flow] if len(activities) > MOST_SINGLE else []
        if len(flows) > MOST_SINGLE:
            activities = [one for one in activities if not one.is_flow]
            pools = [self._gather(flows, pools, now_ns)]
        elif len(pools) > 1:
            # Pools joined by activities depend on each other, so one solution must cover all of them.
            pools = [self._put_together([pool.rest(now_ns) for pool in pools], pools, now_ns)]
        self._changed.clear()
        self._changed_pools.clear()
        rates = pools[0].share(activities, now_ns) if pools else max_min_rates(activities)
        for pool in pools:
            # Number and version make entries unique, so that the heap never compares activities.
            heapq.heappush(self._ends, (pool.end_ns, pool.number, pool.version, pool))
        for activity, rate in rates.items():
            # An unchanged rate keeps its end: settling again would only add rounding errors.
            if rate != activity.rate or activity.version == 0:
                activity.settle(now_ns)
                activity.rate = rate
                activity.version += 1
                # Rounded up, as no activity ends before its last byte; less a slack, so that rounding adds no ns.
                end_ns = now_ns + max(0, math.ceil(activity.remaining / rate - ROUNDING_NS))
                heapq.heappush(self._ends, (end_ns, activity.number, activity.version, activity))

    def next_end_ns(self) -> int | None:
        """Return when the next activity ends at current rates, or None."""
        # A heap entry is outdated once its activity has a newer rate; removing it lazily is cheaper than searching the
        # heap.
        while self._ends and self._ends[0][2] != self._ends[0][3].version:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def finish_due(self, now_ns: int) -> list[Activity | Bundle]:
        """Remove the activities that end now, in the order of their start; a bundle is returned when some of its flows
        end.
        """
        ended: list[Activity | Bundle] = []
        while (end_ns := self.next_end_ns()) is not None and end_ns <= now_ns:
            due = heapq.heappop(self._ends)[3]
            if isinstance(due, Activity):
                # Outdates entries of this activity that are still in the heap.
                due.version = -1
                for capacity in due.uses:
                    capacity.leave(due, now_ns)
                    self._changed[capacity] = None
                ended.append(due)
            else:
                bundles, free = due.finish(now_ns)
                self._changed.update(dict.fromkeys(free))
                if not due.is_over:
                    self._changed_pools[due] = None
                ended += bundles
        # Ends of one instant are handled in the order of starts, so that a run is reproducible.
        return sorted(ended, key=lambda one: one.number)

    def _gather(self, flows: Sequence[Activity], pools: Sequence[FlowPool], now_ns: int) -> FlowPool:
        """Move the rest of the flows into a bundle, pooled with the pools that share capacities with it."""
        for flow in flows:
            flow.settle(now_ns)
            # Outdates the flow's entry in the heap of ends; the pool has its own.
            flow.version = -1
            for capacity in flow.uses:
                # Not `leave`: the flow's bytes go on in the pool, so the capacity does not become idle.
                del capacity.active[flow]
        bundle = Bundle.of(flows)
        bundle.number = next(self._numbers)
        return self._put_together([*(pool.rest(now_ns) for pool in pools), PooledFlows.of(bundle)], pools, now_ns)

    def _put_together(self, parts: Sequence[PooledFlows], pools: Iterable[FlowPool], now_ns: int) -> FlowPool:
        """Replace pools by one pool of `parts`, which come from these pools."""
        for old in pools:
            old.version = -1
            self._changed_pools.pop(old, None)
        pool = FlowPool(next(self._numbers), parts, now_ns)
        self._changed_pools[pool] = None
        return pool

    def _find_connected(self) -> tuple[list[Activity], list[FlowPool]]:
        """Return the activities and pools connected, through shared capacities, to changed capacities and pools."""
        pools: dict[FlowPool, None] = {}
        found: dict[Activity, None] = {}
        seen = dict.fromkeys(self._changed)
        reach = list(seen)
        fresh_pools = list(self._changed_pools)
        while reach or fresh_pools:
            if fresh_pools:
                pool = fresh_pools.pop()
                pools[pool] = None
                # Only shared capacities lead on: a pool is solved as one, so its others need no search.
                fresh = [capacity for capacity in pool.shared_capacities() if capacity not in seen]
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
        # In the order of starts: the solvers' rounding must not depend on the order of this search.
        return sorted(found, key=lambda activity: activity.number), sorted(pools, key=lambda pool: pool.number)
