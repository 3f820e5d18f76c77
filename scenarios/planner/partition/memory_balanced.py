"""MemoryBalancedPartitioner: trades a little perf for an even use of memory, by ever smaller caps on hbm; the placing
itself is GreedyPerfPartitioner's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from scenarios.planner.partition.greedy_perf import GreedyPerfPartitioner
from scenarios.planner.topology import DeviceHardware, Topology
from scenarios.planner.types import PlannerError, ShardingOption, SortBy, Storage, known_perf, known_storage

_CLOSE_BYTES = 10 * 1024**2
"""The search ends when it knows the least cap this well."""


class MemoryBalancedPartitioner:
    """Of the placements whose busiest rank is at most `tolerance` slower than the greedy one, that of the least hbm.

    At most `max_search_count` caps are tried, by bisection. As in TorchRec 1.8.0, but a cap never gives a rank more
    memory than it has (there the search replaces also a smaller rank's memory by it).
    """

    def __init__(self, max_search_count: int = 10, tolerance: float = 0.02, balance_modules: bool = False) -> None:
        self._max_search_count = max_search_count
        self._tolerance = tolerance
        self._greedy = GreedyPerfPartitioner(SortBy.PERF, balance_modules)
        self.devices: Sequence[DeviceHardware] = []

    def partition(self, proposal: list[ShardingOption], storage_constraint: Topology) -> list[ShardingOption]:
        """The same list, with `rank` written into every shard.

        Raises:
            PlannerError: as GreedyPerfPartitioner, if the proposal does not fit at all.
        """
        self._greedy.partition(proposal, storage_constraint)
        self.devices = self._greedy.devices
        allowed = (1 + self._tolerance) * _busiest(proposal)
        used = [device.hbm - left.hbm for device, left in _storages(storage_constraint, self.devices)]
        shards = [known_storage(shard).hbm for option in proposal for shard in option.shards]
        low, high = max(sum(used) / len(used), max(shards, default=0)), max(used)
        for _ in range(self._max_search_count):
            if high - low <= _CLOSE_BYTES:
                break
            cap = int((low + high) / 2)
            if self._improves(proposal, storage_constraint, cap, allowed):
                high = cap
            else:
                low = cap
        return proposal

    def _improves(self, proposal: list[ShardingOption], topology: Topology, cap: int, allowed: float) -> bool:
        """Place the proposal under a cap if it fits and is fast enough; else leave it as it was."""
        before = [(shard, shard.rank) for option in proposal for shard in option.shards]
        capped = _capped(topology, cap)
        try:
            self._greedy.partition(proposal, capped)
        except PlannerError:
            return False
        if _busiest(proposal) > allowed:
            for shard, rank in before:
                shard.rank = rank
            return False
        kept_back = [device - under for device, under in _storages(topology, capped.devices)]
        self.devices = [
            replace(device, storage=device.storage + more)
            for device, more in zip(self._greedy.devices, kept_back, strict=True)
        ]
        return True


def _busiest(proposal: list[ShardingOption]) -> float:
    """Milliseconds of the rank that has most to do, its shards added up in the proposal's order."""
    by_rank: dict[int | None, float] = {}
    for shard in (shard for option in proposal for shard in option.shards):
        by_rank[shard.rank] = by_rank.get(shard.rank, 0.0) + known_perf(shard).total
    return max(by_rank.values(), default=0.0)


def _used_hbm(topology: Topology, left: Sequence[DeviceHardware]) -> list[int]:
    return [device.storage.hbm - after.storage.hbm for device, after in zip(topology.devices, left, strict=True)]


def _storages(topology: Topology, devices: Sequence[DeviceHardware]) -> Iterator[tuple[Storage, Storage]]:
    return ((whole.storage, other.storage) for whole, other in zip(topology.devices, devices, strict=True))


def _capped(topology: Topology, hbm: int) -> Topology:
    """The same ranks with at most so many bytes of hbm each."""
    capped = copy(topology)
    capped.devices = [
        replace(device, storage=replace(device.storage, hbm=min(hbm, device.storage.hbm)))
        for device in topology.devices
    ]
    return capped
