"""Records when links carried something, and how much: busy periods, of which a run keeps a limited number."""

from __future__ import annotations

from typing import TypeAlias

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
