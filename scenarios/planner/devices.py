"""The partitioner's book-keeping: what is free on each rank, and which rank takes a shard; which shard is next is not
decided here.

`DeviceQueue` answers "the least loaded rank that this shard fits on". Ranks that a shard did not fit on are parked by
the tier that was short, fullest last, and come back when a shard asks for no more than they have. Shards come largest
first, so that a parked rank comes back once for every shard it then takes: O(log W) a shard also when memory is tight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from scenarios.planner.topology import DeviceHardware
from scenarios.planner.types import Perf, Shard, Storage, known_perf, known_storage

Entry = tuple[float, int, int, int]  # perf total in ms, tie-break, rank, the rank's stamp when it was queued
Fields = tuple[float, float, float, float, float, float]  # a Perf, unpacked
Saved = list[tuple[int, int, int, Fields, float]]


class Ledger:
    """Free bytes and perf of every rank, as plain lists: this is the partitioner's inner loop.

    `one_number` keeps a rank's perf as one float, as releases before Perf did; it then stands in fwd_compute.
    """

    __slots__ = ("_dirty", "_host_perf", "ddr", "group", "hbm", "one_number", "perf", "ssd", "stamps", "total", "world")

    def __init__(self, devices: Sequence[DeviceHardware], group: int, hbm: int | None, one_number: bool) -> None:
        self.world = len(devices)
        self.group = group
        self.one_number = one_number
        self.hbm = [hbm or device.storage.hbm for device in devices]
        self.ddr = [device.storage.ddr for device in devices]
        self.ssd = [device.storage.ssd for device in devices]
        self.perf = [_fields(device.perf, one_number) for device in devices]
        self.total = [device.perf.total for device in devices]
        self.stamps = [0] * self.world
        self._host_perf = [0.0] * (self.world // group)
        self._dirty = set(range(self.world // group))  # hosts whose perf must be added up anew

    def charge(self, rank: int, need: Storage, perf: Perf) -> float:
        """Take the memory and add the perf; the rank's new total in ms. Whoever keeps the charge must `touch`."""
        self.hbm[rank] -= need.hbm
        self.ddr[rank] -= need.ddr
        self.ssd[rank] -= need.ssd
        forward, forward_comms, backward, backward_comms, input_dist, prefetch = self.perf[rank]
        if self.one_number:
            forward += perf.total
        else:
            forward += perf.fwd_compute
            forward_comms += perf.fwd_comms
            backward += perf.bwd_compute
            backward_comms += perf.bwd_comms
            input_dist += perf.input_dist_comms
            prefetch += perf.prefetch_compute
        self.perf[rank] = (forward, forward_comms, backward, backward_comms, input_dist, prefetch)
        # The order of the sum is that of Perf.total: ties between ranks hang on the last bit.
        total = self.total[rank] = forward + backward + forward_comms + backward_comms + prefetch
        return total

    def storage(self, rank: int) -> Storage:
        """What is free on a rank."""
        return Storage(self.hbm[rank], self.ddr[rank], self.ssd[rank])

    def free_on_host(self, host: int) -> Storage:
        """What is free on a host, all its ranks together."""
        ranks = slice(host * self.group, (host + 1) * self.group)
        return Storage(sum(self.hbm[ranks]), sum(self.ddr[ranks]), sum(self.ssd[ranks]))

    def hosts_by_perf(self) -> list[int]:
        """Whole hosts, least loaded first, ties by number; ranks of a ragged tail belong to none."""
        hosts = len(self._host_perf)
        for host in self._dirty:
            if host < hosts:
                self._host_perf[host] = sum(self.total[host * self.group : (host + 1) * self.group])
        self._dirty.clear()
        return sorted(range(hosts), key=self._host_perf.__getitem__)

    def save(self, ranks: Sequence[int]) -> Saved:
        """What `restore` needs to forget all charges of these ranks from now on."""
        return [(self.hbm[rank], self.ddr[rank], self.ssd[rank], self.perf[rank], self.total[rank]) for rank in ranks]

    def touch(self, ranks: Iterable[int]) -> None:
        """Note that these ranks were charged."""
        self._dirty.update([rank // self.group for rank in ranks])

    def restore(self, ranks: Sequence[int], saved: Saved) -> None:
        """The ranks as they were saved."""
        for rank, (hbm, ddr, ssd, perf, total) in zip(ranks, saved, strict=True):
            self.hbm[rank], self.ddr[rank], self.ssd[rank] = hbm, ddr, ssd
            self.perf[rank], self.total[rank] = perf, total

    def devices(self) -> list[DeviceHardware]:
        """Every rank as it now is."""
        return [DeviceHardware(rank, self.storage(rank), Perf(*self.perf[rank])) for rank in range(self.world)]


class DeviceQueue:
    """Some ranks of a ledger, least loaded first, ties by (rank mod `modulus`, rank)."""

    __slots__ = ("_active", "_ledger", "_modulus", "_parked")

    def __init__(self, ledger: Ledger, ranks: Sequence[int], modulus: int) -> None:
        self._ledger = ledger
        self._modulus = modulus
        self._active = [self._entry(rank) for rank in ranks]
        self._parked: tuple[list[tuple[int, Entry]], ...] = ([], [], [])  # by tier, as (-free bytes, entry)
        heapify(self._active)

    def place(self, shards: Iterable[Shard]) -> list[int]:
        """Charge each shard to the first rank that it fits on; the ranks, fewer than `shards` if one fits nowhere."""
        ledger, active, ranks = self._ledger, self._active, list[int]()
        hbm, ddr, ssd, stamps, charge = ledger.hbm, ledger.ddr, ledger.ssd, ledger.stamps, ledger.charge
        parked = self._parked
        crowded = any(parked)
        for shard in shards:
            need = shard.storage or known_storage(shard)
            if crowded or not active:
                found = self._bring_up(need)
            else:  # the way most shards go, without a call: nobody is parked, and the least loaded rank has room
                _, _, rank, stamp = active[0]
                fits = need.hbm <= hbm[rank] and need.ddr <= ddr[rank] and need.ssd <= ssd[rank]
                found = (fits and stamp == stamps[rank]) or self._bring_up(need)
            if not found:
                break
            _, tie, rank, stamp = active[0]
            ranks.append(rank)
            heapreplace(active, (charge(rank, need, shard.perf or known_perf(shard)), tie, rank, stamp))
            crowded = any(parked)
        return ranks

    def place_apart(self, shards: Iterable[Shard]) -> list[int]:
        """The same, on ranks that all differ."""
        used: list[Entry] = []
        for shard in shards:
            need = known_storage(shard)
            if not self._bring_up(need):
                break
            _, tie, rank, stamp = heappop(self._active)
            used.append((self._ledger.charge(rank, need, known_perf(shard)), tie, rank, stamp))
        for entry in used:
            heappush(self._active, entry)
        return [rank for _, _, rank, _ in used]

    def refresh(self, ranks: Sequence[int]) -> None:
        """Queue anew ranks that were charged by others; their old entries are dropped where they turn up."""
        for rank in ranks:
            self._ledger.stamps[rank] += 1
            heappush(self._active, self._entry(rank))

    def _entry(self, rank: int) -> Entry:
        ledger = self._ledger
        return (ledger.total[rank], rank % self._modulus * ledger.world + rank, rank, ledger.stamps[rank])

    def _bring_up(self, need: Storage) -> bool:
        """Bring the first rank that has `need` free to the top; False if none has."""
        ledger, active, (by_hbm, by_ddr, by_ssd) = self._ledger, self._active, self._parked
        hbm, ddr, ssd = need.hbm, need.ddr, need.ssd
        while by_hbm and -by_hbm[0][0] >= hbm:
            heappush(active, heappop(by_hbm)[1])
        while by_ddr and -by_ddr[0][0] >= ddr:
            heappush(active, heappop(by_ddr)[1])
        while by_ssd and -by_ssd[0][0] >= ssd:
            heappush(active, heappop(by_ssd)[1])
        while active:
            _, _, rank, stamp = active[0]
            if stamp != ledger.stamps[rank]:
                heappop(active)
            elif hbm > ledger.hbm[rank]:
                heappush(by_hbm, (-ledger.hbm[rank], heappop(active)))
            elif ddr > ledger.ddr[rank]:
                heappush(by_ddr, (-ledger.ddr[rank], heappop(active)))
            elif ssd > ledger.ssd[rank]:
                heappush(by_ssd, (-ledger.ssd[rank], heappop(active)))
            else:
                return True
        return False


def _fields(perf: Perf, one_number: bool) -> Fields:
    if one_number:
        return (perf.total, 0.0, 0.0, 0.0, 0.0, 0.0)
    return (
        perf.fwd_compute,
        perf.fwd_comms,
        perf.bwd_compute,
        perf.bwd_comms,
        perf.input_dist_comms,
        perf.prefetch_compute,
    )
