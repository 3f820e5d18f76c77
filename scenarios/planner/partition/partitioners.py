"""The partitioners, which give every shard of a proposal its rank by the estimates of its cost.

The greedy walk places uniform options first, then groups of options by size or perf, each on the least loaded rank or
host with enough memory. Behavior follows TorchRec 1.8.0, or 0.2.0 on request. Unlike TorchRec, a partition that fails
leaves the proposal unchanged: ranks are written only when all are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import cast

from scenarios.planner.partition.walk import Group, Walk, one_number
from scenarios.planner.topology import DeviceHardware, Topology
from scenarios.planner.types import (
    RELEASE,
    RELEASES,
    PlannerError,
    ShardingOption,
    SortBy,
    Storage,
    known_perf,
    known_storage,
    perf_ms,
)
from scenarios.sharding_kind import PartitionByType

_UNIFORM = PartitionByType.UNIFORM.value  # read once, because every option is compared with it twice

_CLOSE_BYTES = 10 * 1024**2
"""The search ends when it knows the least cap this well."""


class GreedyPerfPartitioner:
    """A partitioner that places the largest (or slowest) groups first, each where perf is least.

    Attributes:
        devices: the free memory and the perf of each rank after the latest successful partition.

    Args:
        sort_by: the measure of "largest".
        balance_modules: place modules with the fewest tables first.
        release: "1.8.0", or "0.2.0", which lacks grid sharding, ssd, sort_by and balance_modules, has one number for
            perf, and breaks ties by rank.
    """

    def __init__(
        self, sort_by: SortBy | str = SortBy.STORAGE, balance_modules: bool = False, *, release: str = RELEASE
    ) -> None:
        if release not in RELEASES:
            raise ValueError(f"release {release!r}: expected one of {', '.join(RELEASES)}")
        self._sort_by = SortBy(sort_by)
        self._balance_modules = balance_modules
        self._old = release == "0.2.0"
        if self._old and (balance_modules or self._sort_by is not SortBy.STORAGE):
            raise ValueError("release 0.2.0 sorts by storage only, and does not balance modules")
        self.devices: Sequence[DeviceHardware] = []

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology, hbm_per_device: int | None = None
    ) -> list[ShardingOption]:
        """Write a rank into every shard, and return the same list; the topology is not changed.

        Args:
            hbm_per_device: replaces each rank's hbm, in bytes; 0 and None do not.

        Raises:
            PlannerError: something does not fit or cannot be laid out; `kind` says what.
            AssertionError: options with one dependency that are partitioned by device.
            RuntimeError: an unknown partition_by; in 0.2.0 also a wrong number of shards for a uniform layout.
            ValueError: a shard without storage or perf.
        """
        options = [_with_one_number(option) for option in proposal] if self._old else proposal
        walk = Walk(storage_constraint, hbm_per_device, self._old)
        try:
            walk.replicate([option for option in options if option.partition_by == _UNIFORM])
            walk.place(_group_options(options, self._sort_by, self._balance_modules))
        # A shard without estimates is None where a number is read: checked only now, as the check costs a pass.
        except AttributeError:
            _check_estimates(options)
            raise
        self.devices = walk.finish()
        if self._old:
            _copy_ranks(options, proposal)
        return proposal


def _group_options(proposal: Sequence[ShardingOption], sort_by: SortBy, balance_modules: bool) -> list[Group]:
    """Group options by dependency or full name, in the order in which they are placed."""
    groups: dict[str, list[ShardingOption]] = {}
    for option in proposal:
        if option.partition_by != _UNIFORM:
            key = option.dependency or f"{option.module[0]}.{option.name}"
            if key in groups:
                groups[key].append(option)
            else:
                groups[key] = [option]
    ordered: list[Group] = sorted(groups.values(), key=_perf if sort_by is SortBy.PERF else _size, reverse=True)
    if balance_modules:  # a stable sort keeps the order above among modules of equal count
        tables = Counter(option.path for option in proposal)
        ordered.sort(key=lambda group: tables[group[0].path])
    return ordered


def _size(group: Group) -> tuple[int, int, int]:
    """Return the group's bytes in hbm, ddr and ssd."""
    if len(group) == len(group[0].shards) == 1:  # most groups: nothing to add up
        whole = cast("Storage", group[0].shards[0].storage)
    else:
        whole = Storage.sum(option.total_storage for option in group)
    return whole.hbm, whole.ddr, whole.ssd


def _perf(group: Group) -> float:
    """Return the group's perf in ms, summed over all shards."""
    return sum([option.total_perf for option in group])


def _check_estimates(options: Sequence[ShardingOption]) -> None:
    for option in options:
        for shard in option.shards:
            known_storage(shard)
            known_perf(shard)


def _with_one_number(option: ShardingOption) -> ShardingOption:
    """Copy an option, with each shard's perf as one number, as in 0.2.0; whole numbers stay whole."""
    return replace(option, shards=[replace(shard, perf=one_number(perf_ms(shard))) for shard in option.shards])


def _copy_ranks(source: Sequence[ShardingOption], target: Sequence[ShardingOption]) -> None:
    for placed, option in zip(source, target, strict=True):
        for done, shard in zip(placed.shards, option.shards, strict=True):
            shard.rank = done.rank


class MemoryBalancedPartitioner:
    """A partitioner with the least hbm whose busiest rank is at most `tolerance` slower than in the greedy placement.

    Bisection tries at most `max_search_count` caps. Results are TorchRec 1.8.0's, except that a cap never exceeds a
    rank's memory (TorchRec's search also raises a smaller rank's memory to the cap).
    """

    def __init__(self, max_search_count: int = 10, tolerance: float = 0.02, balance_modules: bool = False) -> None:
        self._max_search_count = max_search_count
        self._tolerance = tolerance
        self._greedy = GreedyPerfPartitioner(SortBy.PERF, balance_modules)
        self.devices: Sequence[DeviceHardware] = []

    def partition(self, proposal: list[ShardingOption], storage_constraint: Topology) -> list[ShardingOption]:
        """Write a rank into every shard, and return the same list.

        Raises:
            PlannerError: as GreedyPerfPartitioner, if the proposal does not fit without a cap.
        """
        self._greedy.partition(proposal, storage_constraint)
        self.devices = self._greedy.devices
        allowed = (1 + self._tolerance) * _busiest(proposal)
        used = [device.hbm - left.hbm for device, left in _storages(storage_constraint, self.devices)]
        shards = [known_storage(shard).hbm for option in proposal for shard in option.shards]
        # No cap below the mean, or below the largest shard, can hold everything: bisection begins there.
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
        """Place the proposal under a cap of hbm bytes; restore ranks and return False if that fails or is too slow."""
        before = [(shard, shard.rank) for option in proposal for shard in option.shards]
        capped = _cap_hbm(topology, cap)
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
    """Return the load of the busiest rank in ms, its shards added in the proposal's order."""
    by_rank: dict[int | None, float] = {}
    for shard in (shard for option in proposal for shard in option.shards):
        by_rank[shard.rank] = by_rank.get(shard.rank, 0.0) + known_perf(shard).total
    return max(by_rank.values(), default=0.0)


def _storages(topology: Topology, devices: Sequence[DeviceHardware]) -> Iterator[tuple[Storage, Storage]]:
    return ((whole.storage, other.storage) for whole, other in zip(topology.devices, devices, strict=True))


def _cap_hbm(topology: Topology, hbm: int) -> Topology:
    """Copy a topology with at most `hbm` bytes of hbm per rank."""
    capped = copy(topology)
    capped.devices = [
        replace(device, storage=replace(device.storage, hbm=min(hbm, device.storage.hbm)))
        for device in topology.devices
    ]
    return capped
