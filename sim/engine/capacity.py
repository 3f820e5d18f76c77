"""Capacities, such as links and processors, and the activities that use them; both count in units and ns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

_NS_PER_S = 1e9
# However much of a capacity is lent.
_LEAST_LEFT = 0.05


# Of all links together; more where there are so many links that each would keep fewer than twice the next.
MOST_PERIODS = 200_000
# Of one link, which are never put together.
LEAST_PERIODS = 64


# From when until when, in ns, and bytes: a plain tuple, as there are very many.
Period: TypeAlias = tuple[int, int, float]


class Loads:
    """The busy periods of all links, merged where they become too many."""

    def __init__(self, most: int = MOST_PERIODS) -> None:
        self._most = most
        self._links: list[LinkLoads] = []
        self.count, self.limit = 0, most

    def of_link(self) -> LinkLoads:
        """Begin the record of another link."""
        self._links.append(LinkLoads(self))
        self.limit = max(self._most, 2 * LEAST_PERIODS * len(self._links))
        return self._links[-1]

    def thin_out(self) -> None:
        """Halve the number of periods of links that have many."""
        for link in self._links:
            if len(link.periods) > LEAST_PERIODS:
                link.periods = halved(link.periods)
        self.count = sum(len(link.periods) for link in self._links)


class LinkLoads:
    """The busy periods of one link, in order."""

    __slots__ = ("_all", "periods")

    def __init__(self, every: Loads) -> None:
        self._all = every
        self.periods: list[Period] = []

    def add(self, period: Period) -> None:
        """Add a period, which begins no earlier than the last has ended."""
        self.periods.append(period)
        every = self._all
        every.count += 1
        if every.count > every.limit:
            every.thin_out()


def halved(periods: list[Period]) -> list[Period]:
    """Merge neighbours in pairs, with the pause between them; an odd one at the end stays."""
    pairs = zip(periods[::2], periods[1::2], strict=False)
    together = [(from_ns, until_ns, size + more) for (from_ns, _, size), (_, until_ns, more) in pairs]
    return together + periods[len(periods) // 2 * 2 :]


class Capacity:
    """A resource with a maximum rate, such as a link's bytes/s or a GPU's share of its time."""

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
        self.pool: Any = None  # the `Pool` of bundles whose flows use it
        self.used = 0.0
        self.busy_ns = 0.0
        self.loads: LinkLoads | None = None  # where periods are kept
        self._busy_since_ns = 0.0
        self._busy_until_ns = 0.0
        self._period_ns = 0
        self._used_before = 0.0  # the period that began then

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
        """Add the flows of a bundle, for `amount` together; the caller sets `pool`."""
        if not self.active and self.pool is None:
            self._busy_since_ns = self._begin(now_ns)
        self.used += amount

    def leave_pool(self, now_ns: int) -> None:
        """Remove the pool, none of whose flows uses this any more."""
        self.pool = None
        if not self.active:
            self._idle_from(now_ns)

    def lend(self, per_s: float) -> None:
        """Set `per_s` aside for something that takes its part before all sharing; a negative one gives it back."""
        self.lent += per_s
        self.per_s = max(self.whole_per_s - self.lent, _LEAST_LEFT * self.whole_per_s)
        self.per_ns = self.per_s / _NS_PER_S

    def pass_by(self, amount: float, now_ns: int) -> None:
        """Carry an amount at once and at the full rate, which takes no share from activities."""
        if not self.active and self.pool is None:
            begin_ns = self._begin(now_ns)
            self._busy_until_ns = begin_ns + amount / self.per_ns
            self.busy_ns += self._busy_until_ns - begin_ns
        self.used += amount

    def end_period(self, now_ns: int) -> None:
        """Record what was carried without a pause up to now; what is under way counts whole, as in `used`.

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
