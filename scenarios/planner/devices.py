"""The partitioner's book-keeping: what is free on each rank and host, and which rank takes a shard; which shard is next
is not decided here.

`RankQueue` answers "the least loaded rank that this shard fits on". Ranks that a shard did not fit on are parked by
the tier that was short, fullest last, and come back when a shard asks for no more than they have. Shards come largest
first, so that a parked rank comes back once for every shard it then takes: O(log W) a shard also when memory is tight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import Protocol

from scenarios.planner.topology import DeviceHardware
from scenarios.planner.types import Perf, Storage


class Estimated(Protocol):
    """A shard whose costs are known."""

    storage: Storage
    perf: Perf
    rank: int | None


class Rank:
    """One rank's free bytes and perf in ms, unpacked: plain slots are what the inner loops read and write fastest.

    `stamp` counts how often others than the queue have charged it: an older entry of a queue is out of date.
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
        """Its perf in ms, added in the order of Perf.total: ties between ranks hang on the last bit."""
        return self.fwd_compute + self.bwd_compute + self.fwd_comms + self.bwd_comms + self.prefetch_compute

    def free(self) -> Storage:
        """What is free."""
        return Storage(self.hbm, self.ddr, self.ssd)

    def hardware(self) -> DeviceHardware:
        """The same in the planner's words."""
        perf = Perf(
            self.fwd_compute,
            self.fwd_comms,
            self.bwd_compute,
            self.bwd_comms,
            self.input_dist_comms,
            self.prefetch_compute,
        )
        return DeviceHardware(self.number, self.free(), perf)


_CHARGED = tuple(name for name in Rank.__slots__ if name not in ("number", "stamp"))


def save(ranks: Sequence[Rank]) -> list[tuple[float, ...]]:
    """What `restore` needs to forget all charges of these ranks from now on."""
    return list(map(attrgetter(*_CHARGED), ranks))


def restore(ranks: Sequence[Rank], saved: Sequence[tuple[float, ...]]) -> None:
    """The ranks as they were saved."""
    for rank, values in zip(ranks, saved, strict=True):
        for name, value in zip(_CHARGED, values, strict=True):
            setattr(rank, name, value)


def charge(ranks: Iterable[Rank], shards: Iterable[Estimated]) -> None:
    """The i-th shard's storage and perf to the i-th rank, whether it fits or not; ranks may repeat, or end.

    Thousands of ranks times thousands of tables come through here. What is mostly zero is passed over.
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


def first_overdrawn(ranks: Iterable[Rank]) -> int | None:
    """Where the first rank stands that was charged more than it has in some tier; None if there is none."""
    short = [rank.hbm < 0 or rank.ddr < 0 or rank.ssd < 0 for rank in ranks]
    return short.index(True) if True in short else None


class Hosts:
    """Consecutive ranks, `size` to a host; the ranks of a ragged tail belong to none."""

    def __init__(self, ranks: Sequence[Rank], size: int) -> None:
        self.size = size
        self._hosts = [ranks[start : start + size] for start in range(0, len(ranks) - size + 1, size)]
        self._perf = [0.0] * len(self._hosts)
        self._dirty = set(range(len(self._hosts)))  # hosts whose perf must be added up anew

    def touch(self, ranks: Iterable[Rank]) -> None:
        """Note that these ranks were charged."""
        self._dirty.update([rank.number // self.size for rank in ranks])

    def by_perf(self) -> list[Sequence[Rank]]:
        """Least loaded first, ties by number."""
        for number in self._dirty:
            if number < len(self._hosts):
                self._perf[number] = sum([rank.total() for rank in self._hosts[number]])
        self._dirty.clear()
        return [self._hosts[number] for number in sorted(range(len(self._hosts)), key=self._perf.__getitem__)]


def fits_together(need: Storage, ranks: Sequence[Rank]) -> bool:
    """Whether these ranks have as much free, all of them together."""
    free = Storage(
        sum([rank.hbm for rank in ranks]), sum([rank.ddr for rank in ranks]), sum([rank.ssd for rank in ranks])
    )
    return need.fits_in(free)


Entry = tuple[float, int, int, Rank]  # perf total in ms, a tie-break that no two ranks share, the rank's stamp, it


class RankQueue:
    """Ranks, least loaded first, ties by (number mod `modulus`, number)."""

    __slots__ = ("_active", "_modulus", "_parked")

    def __init__(self, ranks: Iterable[Rank], modulus: int) -> None:
        self._modulus = modulus
        self._active = [self._entry(rank) for rank in ranks]
        self._parked: tuple[list[tuple[int, Entry]], ...] = ([], [], [])  # by tier, as (-free bytes, entry)
        heapify(self._active)

    def place(self, shards: Sequence[Estimated]) -> list[Rank]:
        """Charge each shard to the first rank that it fits on; the ranks, fewer than `shards` if one fits nowhere."""
        taken: list[Rank] = []
        charge(self._least_loaded(shards, taken), shards)
        return taken

    def _least_loaded(self, shards: Iterable[Estimated], taken: list[Rank]) -> Iterator[Rank]:
        """A rank for each shard, which must have been charged when the next one is asked for."""
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
            heapreplace(active, (rank.total(), tie, stamp, rank))

    def place_apart(self, shards: Iterable[Estimated]) -> list[Rank]:
        """The same, on ranks that all differ."""
        taken: list[Rank] = []
        for shard in shards:
            if not self._bring_up(shard.storage):
                break
            taken.append(heappop(self._active)[-1])
            charge(taken[-1:], (shard,))
        self.refresh(taken)
        return taken

    def refresh(self, ranks: Iterable[Rank]) -> None:
        """Queue anew ranks that were charged by others; their old entries are dropped where they turn up."""
        for rank in ranks:
            rank.stamp += 1
            heappush(self._active, self._entry(rank))

    def _entry(self, rank: Rank) -> Entry:
        return (rank.total(), rank.number % self._modulus << 32 | rank.number, rank.stamp, rank)

    def _bring_up(self, need: Storage) -> bool:
        """Bring the first rank that has `need` free to the top; False if none has."""
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
            if stamp != rank.stamp:
                heappop(active)
            elif hbm > rank.hbm:
                heappush(by_hbm, (-rank.hbm, heappop(active)))
            elif ddr > rank.ddr:
                heappush(by_ddr, (-rank.ddr, heappop(active)))
            elif ssd > rank.ssd:
                heappush(by_ssd, (-rank.ssd, heappop(active)))
            else:
                return True
        return False
