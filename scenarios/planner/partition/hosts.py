"""Hosts by how much their ranks have to do; which of them takes a group of shards is the walk's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from scenarios.planner.partition.devices import Rank, Ranks

Entry = tuple[float, int, range]
"""What the ranks of one host have to do in ms, the first of the hosts for which it is so, and all of them."""


class Hosts:
    """Consecutive ranks, `size` to a host; the ranks of a ragged tail belong to none.

    Hosts that follow each other and that nobody has touched are one entry, as their ranks are one stretch.
    """

    def __init__(self, ranks: Ranks, size: int) -> None:
        self.size, self.count = size, ranks.count // size
        self._ranks = ranks
        self._members: dict[int, Sequence[Rank]] = {}
        self._order: list[Entry] = []  # least loaded first, ties by number; made when first asked for
        self._together: list[Entry] = []  # those that are not in `_alone`, by number
        self._alone: dict[int, float] = {}  # hosts that were touched, an entry each, and their perf
        self._dirty: set[int] = set()  # hosts whose perf must be added up anew

    def ranks(self, host: int) -> Sequence[Rank]:
        """The ranks of one host."""
        if host not in self._members:
            self._members[host] = [self._ranks[number] for number in range(host * self.size, (host + 1) * self.size)]
        return self._members[host]

    def touch(self, ranks: Iterable[Rank]) -> None:
        """Note that these ranks were charged."""
        self._dirty.update([rank.number // self.size for rank in ranks])

    def by_perf(self) -> Iterator[range]:
        """Hosts, least loaded first, ties by number; those of one range are alike to the last byte."""
        if not self._order:
            self._together = list(self._entries())
            self._order = sorted(self._together)
        for host in sorted(self._dirty):
            if host < self.count:
                self._take_out(host)
                self._alone[host] = perf_ms = sum([rank.total() for rank in self.ranks(host)])
                insort(self._order, (perf_ms, host, range(host, host + 1)))
        self._dirty.clear()
        return map(itemgetter(2), self._order)

    def _entries(self) -> Iterator[Entry]:
        """Hosts within one stretch of ranks together; one that lies in several by itself."""
        stretches = self._ranks.stretches
        firsts, host = [stretch.first for stretch in stretches], 0
        while host < self.count:
            stretch = stretches[bisect_right(firsts, host * self.size) - 1]
            end = max(stretch.end // self.size, host + 1)
            if end * self.size <= stretch.end:
                yield sum([stretch.like.total()] * self.size), host, range(host, end)
            else:
                yield sum([rank.total() for rank in self.ranks(host)]), host, range(host, end)
            host = end

    def _take_out(self, host: int) -> None:
        """Remove the host from the order, and put back those it was together with."""
        if host in self._alone:
            perf_ms = self._alone[host]
            del self._order[bisect_left(self._order, (perf_ms, host, range(host, host + 1)))]
            return
        perf_ms, first, hosts = entry = self._together.pop(bisect_right(self._together, host, key=itemgetter(1)) - 1)
        del self._order[bisect_left(self._order, entry)]
        for part in (range(first, host), range(host + 1, hosts.stop)):
            if part:
                insort(self._order, (perf_ms, part.start, part))
                insort(self._together, (perf_ms, part.start, part), key=itemgetter(1))
