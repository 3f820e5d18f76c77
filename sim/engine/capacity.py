"""Capacities, such as links and processors, and the activities that use them; rates are in units per ns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from scenarios.config.faults import NOMINAL, Pace

_NS_PER_S = 1e9
# Least share of a capacity for activities, however much is lent.
_LEAST_LEFT = 0.05


# Busy periods of all links together; more if each link would otherwise keep fewer than 2 * LEAST_PERIODS.
MOST_PERIODS = 200_000
# Busy periods of one link that are never merged.
LEAST_PERIODS = 64


# Begin and end in ns, and bytes: a plain tuple, as there are very many.
Period: TypeAlias = tuple[int, int, float]


class Loads:
    """The busy periods of all links; neighbours are merged when there are too many."""

    def __init__(self, most: int = MOST_PERIODS) -> None:
        self._most = most
        self._links: list[LinkLoads] = []
        self.count, self.limit = 0, most

    def of_link(self) -> LinkLoads:
        """Create the record of another link."""
        self._links.append(LinkLoads(self))
        self.limit = max(self._most, 2 * LEAST_PERIODS * len(self._links))
        return self._links[-1]

    def thin_out(self) -> None:
        """Halve the number of periods of links that have many."""
        for link in self._links:
            if len(link.periods) > LEAST_PERIODS:
                link.periods = merge_in_pairs(link.periods)
        self.count = sum(len(link.periods) for link in self._links)


class LinkLoads:
    """The busy periods of one link, in order."""

    __slots__ = ("_all", "periods")

    def __init__(self, every: Loads) -> None:
        self._all = every
        self.periods: list[Period] = []

    def add(self, period: Period) -> None:
        """Append a period, which begins no earlier than the last has ended."""
        self.periods.append(period)
        every = self._all
        every.count += 1
        if every.count > every.limit:
            every.thin_out()


def merge_in_pairs(periods: list[Period]) -> list[Period]:
    """Merge neighbours in pairs, with the pause between them; an odd last period stays."""
    pairs = zip(periods[::2], periods[1::2], strict=False)
    together = [(from_ns, until_ns, size + more) for (from_ns, _, size), (_, until_ns, more) in pairs]
    return together + periods[len(periods) // 2 * 2 :]


class Capacity:
    """A resource with a maximum rate, such as a link's bytes/s or a GPU's share of its time.

    `per_s` and `per_ns` are the rate at present: `whole_per_s` less what is lent, times the speed of its part.
    """

    def __init__(
        self, name: str, per_s: float, *, has_queue: bool = False, burst: float = 0.0, pace: Pace = NOMINAL
    ) -> None:
        """Create a capacity of `per_s` at nominal speed.

        Args:
            name: its name, for errors and reports.
            per_s: its rate.
            has_queue: whether segments queue in front of it.
            burst: amount that passes at once after a pause.
            pace: the speed of its part over time; `set_speed` must be called when it changes.
        """
        assert per_s > 0, f"{name}: a capacity is positive"
        self.name = name
        self.whole_per_s = self.left_per_s = per_s  # `left_per_s`: less what is lent, at nominal speed
        self.pace = pace
        self.lent = 0.0
        self.set_speed(pace.speeds[0])
        self.has_queue = has_queue
        self.burst = burst
        self.active: dict[Activity, float] = {}
        self.pool: Any = None  # the `Pool` of bundles whose flows use it
        self.used = 0.0
        self.busy_ns = 0.0
        self.loads: LinkLoads | None = None  # record of busy periods, for links
        self._busy_since_ns = 0.0
        self._busy_until_ns = 0.0
        self._period_ns = 0
        self._used_before = 0.0  # `used` when the period began

    def join(self, activity: Activity, per_unit: float, now_ns: int) -> None:
        """Add an activity, which uses `per_unit` for each unit of its amount."""
        if not self.active and self.pool is None:
            self._busy_since_ns = self._begin(now_ns)
        self.active[activity] = per_unit
        self.used += per_unit * activity.amount

    def leave(self, activity: Activity, now_ns: int) -> None:
        """Remove an activity that has ended."""
        del self.active[activity]
        if not self.active and self.pool is None:
            self._idle_from(now_ns)

    def join_pool(self, amount: float, now_ns: int) -> None:
        """Add the flows of a bundle, whose amounts on this capacity sum up to `amount`; the caller sets `pool`."""
        if not self.active and self.pool is None:
            self._busy_since_ns = self._begin(now_ns)
        self.used += amount

    def leave_pool(self, now_ns: int) -> None:
        """Remove the pool, none of whose flows uses this capacity any more."""
        self.pool = None
        if not self.active:
            self._idle_from(now_ns)

    def lend(self, per_s: float) -> None:
        """Reserve `per_s` for a use that is served before all sharing; a negative value returns it."""
        self.lent += per_s
        self.left_per_s = max(self.whole_per_s - self.lent, _LEAST_LEFT * self.whole_per_s)
        self.set_speed(self.speed)

    def set_speed(self, speed: float) -> None:
        """Set the share of its rate that the capacity reaches from now on."""
        self.speed = speed
        self.per_s = self.left_per_s * speed
        self.per_ns = self.per_s / _NS_PER_S

    def pass_by(self, amount: float, now_ns: int) -> None:
        """Carry an amount at once and at the full rate, without taking a share from activities."""
        if not self.active and self.pool is None:
            # Only on an idle capacity: where activities run, the busy period is theirs and goes on.
            begin_ns = self._begin(now_ns)
            self._busy_until_ns = begin_ns + amount / self.per_ns
            self.busy_ns += self._busy_until_ns - begin_ns
        self.used += amount

    def end_period(self, now_ns: int) -> None:
        """Record the bytes carried since the last pause; unfinished activities count in full, as in `used`.

        A period ends in the ns in which its last byte passes; the next period begins in that ns or later.
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
        """Return when an arrival at `now_ns` begins: now after a pause, else when passing bytes have passed."""
        if now_ns > self._busy_until_ns:
            self.end_period(now_ns)
            return now_ns
        return self._busy_until_ns

    def _idle_from(self, now_ns: int) -> None:
        # `_begin` may set a begin after now, behind passing bytes: an activity that ends before that adds no busy time.
        self.busy_ns += max(0.0, now_ns - self._busy_since_ns)
        self._busy_until_ns = max(now_ns, self._busy_until_ns)


class Activity:
    """A piece of work in progress that uses capacities, such as links or cores; `done` is called when it ends.

    Args:
        uses: amount of each capacity that a unit of the work uses.
        amount: units of work, such as bytes.
        done: called at the end.
        weight: the activity's part in the fair shares of its capacities.
        is_flow: whether it uses one byte of each capacity per byte and has weight 1; many flows are solved in NumPy
            arrays.
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
        # A use of 0 would join activities that do not affect each other, on a capacity that nothing fills (level 0).
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
        """Subtract the amount done at the current rate since the last call."""
        self.remaining -= self.rate * (now_ns - self.settled_ns)
        self.settled_ns = now_ns
