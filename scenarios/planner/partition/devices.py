"""The partitioner's state: free memory and load of each rank and host; finds a rank for a given shard.

`RankQueue` finds the least loaded rank on which a shard fits. Ranks without room for it are parked by the tier that was
short, in a heap by free bytes, and return when a later shard needs no more than they have. Shards come in descending
size, so that each return of a parked rank places a shard: O(log W) for each shard, even when memory is tight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, pairwise
from operator import attrgetter
from typing import Protocol

from scenarios.planner.topology import DeviceHardware
from scenarios.planner.types import Perf, Storage
from scenarios.run_length import Run


class Estimated(Protocol):
    """A shard with estimates of storage and perf."""

    storage: Storage
    perf: Perf
    rank: int | None


class RankSlot:
    """One rank's free bytes and perf in ms, as plain slots, which inner loops read and write fastest.

    `stamp` counts charges from outside the queue: a queue entry with an older stamp is out of date.
    """

    __slots__ = (
        "bwd_comms", "bwd_compute", "ddr", "fwd_comms", "fwd_compute", "hbm", "input_dist_comms", "number",
        "prefetch_compute", "ssd", "stamp",
    )  # fmt: skip

    def __init__(self, number: int, free: Storage, perf: Perf) -> None:
        self.number = number
        self.hbm, self.ddr, self.ssd = free.hbm, free.ddr, free.ssd
        self.fwd_compute, self.fwd_comms = perf.fwd_compute, perf.fwd_comms
        self.bwd_compute, self.bwd_comms = perf.bwd_compute, perf.bwd_comms
        self.input_dist_comms, self.prefetch_compute = perf.input_dist_comms, perf.prefetch_compute
        self.stamp = 0

    def total(self) -> float:
        """Return the rank's perf in ms, added in the order of Perf.total: the last bit decides ties between ranks."""
        return self.fwd_compute + self.bwd_compute + self.fwd_comms + self.bwd_comms + self.prefetch_compute

    def free(self) -> Storage:
        return Storage(self.hbm, self.ddr, self.ssd)

    def perf(self) -> Perf:
        forward, backward = (self.fwd_compute, self.fwd_comms), (self.bwd_compute, self.bwd_comms)
        return Perf(*forward, *backward, self.input_dist_comms, self.prefetch_compute)

    def twin(self, number: int) -> RankSlot:
        """Return a copy for another rank."""
        return RankSlot(number, self.free(), self.perf())

    def hardware(self) -> DeviceHardware:
        return DeviceHardware(self.number, self.free(), self.perf())


_CHARGED = tuple(name for name in RankSlot.__slots__ if name not in ("number", "stamp"))


def save(ranks: Sequence[RankSlot]) -> list[tuple[float, ...]]:
    """Return the state of these ranks, from which `restore` undoes later charges."""
    return list(map(attrgetter(*_CHARGED), ranks))


def restore(ranks: Sequence[RankSlot], saved: Sequence[tuple[float, ...]]) -> None:
    """Reset the ranks to a saved state."""
    for rank, values in zip(ranks, saved, strict=True):
        for name, value in zip(_CHARGED, values, strict=True):
            setattr(rank, name, value)


def charge(ranks: Iterable[RankSlot], shards: Iterable[Estimated]) -> None:
    """Charge the i-th shard's storage and perf to the i-th rank, even if it does not fit; ranks may repeat.

    The shorter of the two sequences ends the loop. Fields that are usually 0 are skipped, because this loop runs for
    thousands of ranks times thousands of tables.
    """
    for rank, shard in zip(ranks, shards, strict=False):
        need, perf = shard.storage, shard.perf
        rank.hbm -= need.hbm
        if need.ddr:
            rank.ddr -= need.ddr
        if need.ssd:
            rank.ssd -= need.ssd
        rank.fwd_compute += perf.fwd_compute
        rank.fwd_comms += perf.fwd_comms
        rank.bwd_compute += perf.bwd_compute
        rank.bwd_comms += perf.bwd_comms
        if perf.input_dist_comms:
            rank.input_dist_comms += perf.input_dist_comms
        if perf.prefetch_compute:
            rank.prefetch_compute += perf.prefetch_compute


def first_overdrawn(ranks: Iterable[RankSlot]) -> int | None:
    """Return the index of the first rank that was charged more than it has in some tier; None if there is none."""
    short = [rank.hbm < 0 or rank.ddr < 0 or rank.ssd < 0 for rank in ranks]
    return short.index(True) if True in short else None


class Stretch:
    """Identical ranks `first` to `end` - 1; `like` is their state, with the number of the first."""

    __slots__ = ("end", "first", "like")

    def __init__(self, first: int, end: int, like: RankSlot) -> None:
        self.first, self.end, self.like = first, end, like


class RankStretches:
    """All ranks, grouped into stretches of identical ranks.

    A rank gets a state of its own when `ranks[number]` first reads it. Stretches may be cut, or charged through their
    `like`, only before that.
    """

    def __init__(self, likes: Iterable[Run[RankSlot]]) -> None:
        self.stretches: list[Stretch] = []
        self.count = 0
        for count, like in likes:
            self.stretches.append(Stretch(self.count, self.count + count, like))
            self.count += count
        self._known: dict[int, RankSlot] = {}

    def cut(self, starts: Iterable[int]) -> None:
        """Split stretches so that one begins at each of these ranks."""
        edges = sorted({*starts, *[stretch.first for stretch in self.stretches]})
        if len(edges) == len(self.stretches):
            return
        old, cut = iter(self.stretches), list[Stretch]()
        stretch = next(old)
        for first, end in pairwise([*edges, self.count]):
            if first == stretch.end:
                stretch = next(old)
            like = stretch.like if first == stretch.first else stretch.like.twin(first)
            cut.append(Stretch(first, end, like))
        self.stretches = cut

    def __getitem__(self, number: int) -> RankSlot:
        if number not in self._known:
            stretch = self.stretches[bisect_right(self.stretches, number, key=attrgetter("first")) - 1]
            alone = stretch.end - stretch.first == 1
            self._known[number] = stretch.like if alone else stretch.like.twin(number)
        return self._known[number]

    def runs(self) -> list[Run[RankSlot]]:
        """Return all ranks in their current state, as runs of identical ranks: (count, first)."""
        known, at = sorted(self._known), 0
        runs: list[Run[RankSlot]] = []
        for stretch in self.stretches:
            first = stretch.first
            while at < len(known) and known[at] < stretch.end:
                if first < known[at]:
                    runs.append((known[at] - first, stretch.like.twin(first)))
                runs.append((1, self._known[known[at]]))
                first, at = known[at] + 1, at + 1
            if first < stretch.end:
                runs.append((stretch.end - first, stretch.like.twin(first)))
        return runs


def fits_together(need: Storage, ranks: Sequence[RankSlot]) -> bool:
    """Return whether these ranks together have `need` free."""
    free = Storage(
        sum([rank.hbm for rank in ranks]), sum([rank.ddr for rank in ranks]), sum([rank.ssd for rank in ranks])
    )
    return need.fits_in(free)


Entry = tuple[float, int, int, RankSlot]  # perf total in ms, unique tie-break, the rank's stamp, the rank


_STRETCH = -1  # the stamp in the entry of a whole stretch, which no rank has: such an entry is always opened
_NUMBER = (1 << 32) - 1  # the part of a tie-break that is the rank's number


class _Rest(RankSlot):
    """The identical ranks of a stretch that the queue has not taken out yet, with `numbers` in queue order."""

    __slots__ = ("numbers",)

    def __init__(self, stretch: Stretch, modulus: int) -> None:
        first, end = stretch.first, stretch.end
        super().__init__(first, stretch.like.free(), stretch.like.perf())
        self.numbers = chain.from_iterable(
            range(first + (tie - first) % modulus, end, modulus) for tie in range(modulus)
        )


class RankQueue:
    """A queue of ranks, least loaded first; ties by (number mod `modulus`, number)."""

    __slots__ = ("_active", "_modulus", "_parked", "_ranks")

    def __init__(self, ranks: Sequence[RankSlot] | RankStretches, modulus: int) -> None:
        self._modulus = modulus
        self._ranks = ranks
        if isinstance(ranks, RankStretches):
            entries = [self._first_entry(stretch, ranks) for stretch in ranks.stretches]
        else:
            entries = [self._entry(rank) for rank in ranks]
        self._active: list[Entry] = entries
        self._parked: tuple[list[tuple[int, Entry]], ...] = ([], [], [])  # by tier, as (-free bytes, entry)
        heapify(self._active)

    def place(self, shards: Sequence[Estimated]) -> list[RankSlot]:
        """Charge each shard to the first rank with room until a shard has none; return the ranks of placed shards."""
        taken: list[RankSlot] = []
        charge(self._least_loaded(shards, taken), shards)
        return taken

    def _least_loaded(self, shards: Iterable[Estimated], taken: list[RankSlot]) -> Iterator[RankSlot]:
        """Yield for each shard the least loaded rank with room for it; stop if none has.

        The caller must add the shard's storage and perf to that rank before it requests the next one.
        """
        active, (by_hbm, by_ddr, by_ssd) = self._active, self._parked
        for shard in shards:
            need, (_, tie, stamp, rank) = shard.storage, active[0]
            fits = need.hbm <= rank.hbm and need.ddr <= rank.ddr and need.ssd <= rank.ssd
            if not fits or stamp != rank.stamp or by_hbm or by_ddr or by_ssd:
                if not self._bring_up(need):
                    return
                _, tie, stamp, rank = active[0]
            taken.append(rank)
            yield rank
            # One sift in place of a pop and a push: the rank's perf has only grown, so its entry sinks.
            heapreplace(active, (rank.total(), tie, stamp, rank))

    def place_apart(self, shards: Iterable[Estimated]) -> list[RankSlot]:
        """Charge each shard to the first rank with room, like `place`, but to different ranks."""
        taken: list[RankSlot] = []
        for shard in shards:
            if not self._bring_up(shard.storage):
                break
            taken.append(heappop(self._active)[-1])
            charge(taken[-1:], (shard,))
        self.refresh(taken)
        return taken

    def refresh(self, ranks: Iterable[RankSlot]) -> None:
        """Queue again ranks that were charged from outside; their old entries are dropped when reached."""
        for rank in ranks:
            rank.stamp += 1
            heappush(self._active, self._entry(rank))

    def _entry(self, rank: RankSlot) -> Entry:
        return (rank.total(), self._tie(rank.number), rank.stamp, rank)

    def _first_entry(self, stretch: Stretch, ranks: RankStretches) -> Entry:
        if stretch.end - stretch.first == 1:
            return self._entry(ranks[stretch.first])
        rest = _Rest(stretch, self._modulus)
        return (rest.total(), self._tie(next(rest.numbers)), _STRETCH, rest)

    def _tie(self, number: int) -> int:
        return number % self._modulus << 32 | number

    def _open(self, entry: Entry) -> None:
        """Queue the next rank of a stretch separately, and the rest of the stretch behind it."""
        total, tie, _, rest = entry
        assert isinstance(rest, _Rest)
        # A rank that was charged from outside is queued already, and its stamp makes this entry out of date.
        heappush(self._active, (total, tie, 0, self._ranks[tie & _NUMBER]))
        number = next(rest.numbers, None)
        if number is not None:
            heappush(self._active, (total, self._tie(number), _STRETCH, rest))

    def _bring_up(self, need: Storage) -> bool:
        """Move the first rank with `need` free to the top of the queue; return False if there is none."""
        active, (by_hbm, by_ddr, by_ssd) = self._active, self._parked
        hbm, ddr, ssd = need.hbm, need.ddr, need.ssd
        while by_hbm and -by_hbm[0][0] >= hbm:
            heappush(active, heappop(by_hbm)[1])
        while by_ddr and -by_ddr[0][0] >= ddr:
            heappush(active, heappop(by_ddr)[1])
        while by_ssd and -by_ssd[0][0] >= ssd:
            heappush(active, heappop(by_ssd)[1])
        while active:
            _, _, stamp, rank = active[0]
            if rank.stamp != stamp != _STRETCH:
                heappop(active)
            elif hbm > rank.hbm:
                heappush(by_hbm, (-rank.hbm, heappop(active)))
            elif ddr > rank.ddr:
                heappush(by_ddr, (-rank.ddr, heappop(active)))
            elif ssd > rank.ssd:
                heappush(by_ssd, (-rank.ssd, heappop(active)))
            elif stamp == _STRETCH:
                self._open(heappop(active))
            else:
                return True
        return False
