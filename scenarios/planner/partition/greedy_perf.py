"""GreedyPerfPartitioner: gives every shard of a proposal its rank; what a shard costs was estimated before.

The walk: uniform options first, then groups of options by size or perf, each on the least loaded rank or host that has
the memory. Behaviour follows TorchRec 1.8.0, or 0.2.0 on request. Unlike there, a partition that fails leaves the
proposal as it was: ranks are written when all of them are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from scenarios.planner.partition.walk import Group, Walk
from scenarios.planner.topology import DeviceHardware, Topology
from scenarios.planner.types import (
    RELEASE,
    RELEASES,
    PartitionByType,
    Perf,
    ShardingOption,
    SortBy,
    Storage,
    known_perf,
    known_storage,
    perf_ms,
)

_UNIFORM = PartitionByType.UNIFORM.value  # looked up once: it is compared with twice an option


class GreedyPerfPartitioner:
    """Places the largest (or slowest) groups first, each where the least perf is.

    `sort_by`: what "largest" means. `balance_modules`: modules with the fewest tables first. `release`: "1.8.0", or
    "0.2.0", which knows no grid sharding, ssd, sort_by or balance_modules, has one number for perf and breaks ties by
    rank. `devices` is what the latest partition that succeeded left free on each rank, and each rank's perf.
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
        """The same list, with `rank` written into every shard; the topology is never written.

        `hbm_per_device` bytes replace each rank's hbm (0 and None do not).

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
            walk.place(_grouped(options, self._sort_by, self._balance_modules))
        except AttributeError:
            _check_estimates(options)
            raise
        self.devices = walk.finish()
        if self._old:
            _copy_ranks(options, proposal)
        return proposal


def _grouped(proposal: Sequence[ShardingOption], sort_by: SortBy, balance_modules: bool) -> list[Group]:
    """Groups by dependency or full name, in the order in which they are placed."""
    groups: dict[str, list[ShardingOption]] = {}
    for option in proposal:
        if option.partition_by != _UNIFORM:
            key = option.dependency or f"{option.module[0]}.{option.name}"
            if key in groups:
                groups[key].append(option)
            else:
                groups[key] = [option]
    ordered: list[Group] = sorted(groups.values(), key=_perf if sort_by is SortBy.PERF else _size, reverse=True)
    if balance_modules:  # a stable sort: within one count the order above stays
        tables = Counter(option.path for option in proposal)
        ordered.sort(key=lambda group: tables[group[0].path])
    return ordered


def _size(group: Group) -> tuple[int, int, int]:
    """The group's bytes in hbm, ddr and ssd."""
    if len(group) == len(group[0].shards) == 1:  # most groups: nothing to add up
        whole = cast("Storage", group[0].shards[0].storage)
    else:
        whole = Storage.sum(option.total_storage for option in group)
    return whole.hbm, whole.ddr, whole.ssd


def _perf(group: Group) -> float:
    """The group's perf in ms: of each option the sum of its shards' totals."""
    return sum([option.total_perf for option in group])


def _check_estimates(options: Sequence[ShardingOption]) -> None:
    for option in options:
        for shard in option.shards:
            known_storage(shard)
            known_perf(shard)


def _with_one_number(option: ShardingOption) -> ShardingOption:
    """A copy whose shards have their perf in one number, as in releases before Perf."""
    return replace(option, shards=[replace(shard, perf=Perf(perf_ms(shard), 0.0, 0.0, 0.0)) for shard in option.shards])


def _copy_ranks(source: Sequence[ShardingOption], target: Sequence[ShardingOption]) -> None:
    for placed, option in zip(source, target, strict=True):
        for done, shard in zip(placed.shards, option.shards, strict=True):
            shard.rank = done.rank
