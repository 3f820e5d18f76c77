"""GreedyPerfPartitioner: gives every shard of a proposal its rank; what a shard costs was estimated before.

The walk: uniform options first, then groups of options by size or perf, each on the least loaded rank or host that has
the memory. Behaviour follows TorchRec 1.8.0, or 0.2.0 on request. Unlike there, a partition that fails leaves the
proposal as it was: ranks are written when all of them are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from scenarios.planner.devices import DeviceQueue, Ledger
from scenarios.planner.topology import DeviceHardware, Topology
from scenarios.planner.types import (
    RELEASE,
    RELEASES,
    ComputeKernel,
    PartitionByType,
    Perf,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    ShardingType,
    SortBy,
    Storage,
    known_perf,
    known_storage,
)

# Looked up once: these are compared with once a shard.
_UNIFORM = PartitionByType.UNIFORM.value
_COLUMN_WISE = ShardingType.COLUMN_WISE.value
_KEY_VALUE = ComputeKernel.KEY_VALUE.value


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
        self.devices: list[DeviceHardware] = []

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology, hbm_per_device: int | None = None
    ) -> list[ShardingOption]:
        """The same list, with `rank` written into every shard; the topology is never written.

        `hbm_per_device` bytes replace each rank's hbm (0 and None do not).

        Raises:
            PlannerError: something does not fit or cannot be laid out; `kind` says what.
            AssertionError: options with one dependency that are partitioned by device.
            RuntimeError: an unknown partition_by; in 0.2.0 also a wrong number of shards for a uniform layout.
        """
        group_size = storage_constraint.local_world_size if self._old else storage_constraint.intra_group_size
        ledger = Ledger(storage_constraint.devices, group_size, hbm_per_device, self._old)
        walk = _Walk(proposal, ledger, 1 if self._old else storage_constraint.local_world_size, self._old)
        for option in proposal:
            if option.partition_by == _UNIFORM:
                walk.uniform(option, range(ledger.world))
        walk.place(_grouped(proposal, self._sort_by, self._balance_modules))
        for shard, rank in zip(walk.shards, walk.ranks, strict=True):
            shard.rank = rank
        self.devices = ledger.devices()
        return proposal


_Size = tuple[int, int, int]
_Group = list[ShardingOption]  # options that must be placed together


def _grouped(proposal: Sequence[ShardingOption], sort_by: SortBy, balance_modules: bool) -> list[_Group]:
    """Groups by dependency or name, in the order in which they are placed."""
    groups: dict[str, _Group] = {}
    for option in proposal:
        if option.partition_by != _UNIFORM:
            key = option.dependency or f"{option.module[0]}.{option.name}"
            if key in groups:
                groups[key].append(option)
            else:
                groups[key] = [option]
    ordered = sorted(groups.values(), key=_perf if sort_by is SortBy.PERF else _size, reverse=True)
    if balance_modules:  # a stable sort: within one count the order above stays
        tables = Counter(option.path for option in proposal)
        ordered.sort(key=lambda group: tables[group[0].path])
    return ordered


def _size(group: _Group) -> _Size:
    """The group's bytes in hbm, ddr and ssd."""
    if len(group) == 1 and len(group[0].shards) == 1:  # most groups: no loop, no sums
        storage = group[0].shards[0].storage
        if storage is not None:
            return storage.hbm, storage.ddr, storage.ssd
    hbm = ddr = ssd = 0
    for option in group:
        for shard in option.shards:
            storage = shard.storage or known_storage(shard)
            hbm, ddr, ssd = hbm + storage.hbm, ddr + storage.ddr, ssd + storage.ssd
    return hbm, ddr, ssd


def _perf(group: _Group) -> float:
    return Perf.sum(Perf.sum(known_perf(shard) for shard in option.shards) for option in group).total


def _named(group: _Group) -> str:
    return f"{', '.join(option.fqn for option in group)} of {Storage(*_size(group))}"


class _Walk:
    """One partition on its way: the ledger, and who has got which rank so far."""

    __slots__ = ("_queue", "ledger", "modulus", "old", "proposal", "ranks", "shards")

    def __init__(self, proposal: Sequence[ShardingOption], ledger: Ledger, modulus: int, old: bool) -> None:
        self.proposal = proposal
        self.ledger = ledger
        self.modulus = modulus
        self.old = old
        self.shards: list[Shard] = []
        self.ranks: list[int] = []  # of `shards`
        self._queue: DeviceQueue | None = None

    def place(self, groups: Sequence[_Group]) -> None:
        """Every group, on a rank, a host or several hosts."""
        for by, run in groupby(groups, key=_partition_by):
            if by == PartitionByType.DEVICE:
                self._device(run)
                continue
            for group in run:
                if by == PartitionByType.HOST:
                    self._host(group)
                elif by == PartitionByType.MULTI_HOST and not self.old:
                    self._multi_host(group)
                else:
                    raise RuntimeError(f"Unexpected sharding option group {_named(group)}: partition_by {by!r}")

    def uniform(self, option: ShardingOption, ranks: Sequence[int]) -> None:
        """Shard i on the i-th of `ranks`, which may repeat."""
        if len(option.shards) != len(ranks):
            message = (
                f"For a uniform partition, the number of shards ({len(option.shards)})"
                f" must equal the number of devices ({len(ranks)})"
            )
            raise RuntimeError(message) if self.old else _error("uniform_shard_count", message)
        ledger = self.ledger
        for shard, rank in zip(option.shards, ranks, strict=True):
            need = shard.storage or known_storage(shard)
            if need.hbm > ledger.hbm[rank] or need.ddr > ledger.ddr[rank] or need.ssd > ledger.ssd[rank]:
                raise _error(
                    "uniform_no_fit",
                    f"Shard of size {self._text(need)} bytes does not fit on any rank."
                    f" Device memory cap: {self._text(ledger.storage(rank))}.",
                )
            ledger.charge(rank, need, shard.perf or known_perf(shard))
        self._keep(option.shards, ranks)

    def _keep(self, shards: Sequence[Shard], ranks: Sequence[int]) -> None:
        self.shards += shards
        self.ranks += ranks
        self.ledger.touch(ranks)

    def _device(self, groups: Iterable[_Group]) -> None:
        """A run of groups, each one option; those without a rule of their own go to the queue in one go."""
        if self._queue is None:
            self._queue = DeviceQueue(self.ledger, range(self.ledger.world), self.modulus)
        shards: list[Shard] = []
        for group in groups:
            option = group[0] if len(group) == 1 else _only(group)
            if option.compute_kernel == _KEY_VALUE and option.sharding_type == _COLUMN_WISE and not self.old:
                self._each(shards, self._queue)
                shards = []
                self._device_apart(option, self._queue)
            else:
                shards += option.shards
        self._each(shards, self._queue)

    def _each(self, shards: Sequence[Shard], queue: DeviceQueue) -> None:
        ranks = queue.place(shards)
        if len(ranks) < len(shards):
            start = "Device partition failed. Couldn't find a rank"
            raise self._no_rank("device_no_fit", start, shards[len(ranks)])
        self._keep(shards, ranks)

    def _device_apart(self, option: ShardingOption, queue: DeviceQueue) -> None:
        shards = option.shards
        if len(shards) > self.ledger.world:
            raise _error(
                "cw_kv_too_many_shards",
                f"COLUMN_WISE sharding requires num_shards ({len(shards)}) <= num_devices ({self.ledger.world})",
            )
        ranks = queue.place_apart(shards)
        if len(ranks) < len(shards):
            start = "COLUMN_WISE partition failed. Couldn't find a suitable rank"
            raise self._no_rank("cw_kv_no_fit", start, shards[len(ranks)])
        self._keep(shards, ranks)

    def _host(self, group: _Group) -> None:
        ledger, need = self.ledger, Storage(*_size(group))
        for host in ledger.hosts_by_perf():
            ranks = range(host * ledger.group, (host + 1) * ledger.group)
            if need.fits_in(ledger.free_on_host(host)) and self._all_or_none(group, ranks):
                return
        raise _error("no_host", f"can't find a host for sharding option group {_named(group)}")

    def _multi_host(self, group: _Group) -> None:
        size, option = self.ledger.group, _only(group)
        count, rest = divmod(len(option.shards), size)
        if rest:
            raise _error(
                "grid_not_multiple_of_local",
                "Grid Sharding is unable to place shards equally over hosts without overlapping."
                f" num_shards={len(option.shards)} % local_world_size={size} != 0",
            )
        hosts = self.ledger.hosts_by_perf()
        # With more blocks than hosts the hosts are gone through again and again, and there is one way to do it.
        starts, hosts = (range(len(hosts) - count + 1), hosts) if count < len(hosts) else (range(1), hosts * count)
        for start in starts:
            window = hosts[start : start + count]
            ranks = [rank for host in window for rank in range(host * size, (host + 1) * size)]
            if option.sharding_type == ShardingType.GRID_SHARD and self._all_or_none(group, ranks):
                return
        raise _error("no_hosts", f"can't find hosts for sharding option group {_named(group)}")

    def _all_or_none(self, group: _Group, ranks: Sequence[int]) -> bool:
        """Place the whole group on these ranks; False, and nothing charged, if some of it cannot be."""
        saved, before = self.ledger.save(ranks), len(self.shards)
        try:
            for option in group:
                self._together(option, ranks)
        except PlannerError:
            self.ledger.restore(ranks, saved)
            del self.shards[before:], self.ranks[before:]
            return False
        if self._queue is not None:
            self._queue.refresh(ranks)
        return True

    def _together(self, option: ShardingOption, ranks: Sequence[int]) -> None:
        if option.sharding_type in (ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD):
            self.uniform(option, ranks)
        elif option.sharding_type == ShardingType.TABLE_COLUMN_WISE:
            self._each(option.shards, DeviceQueue(self.ledger, ranks, 1 if self.old else len(ranks)))
        else:
            message = f"{option.fqn}: sharding type {option.sharding_type} cannot be placed on a host"
            raise RuntimeError(message) if self.old else _error("no_host", message)

    def _no_rank(self, kind: str, start: str, shard: Shard) -> PlannerError:
        table = next(option.name for option in self.proposal if any(shard is other for other in option.shards))
        largest = max(self.ledger.storage(rank) for rank in range(self.ledger.world))
        end = f"for shard {shard} of table {table}, largest device storage: {self._text(largest)}"
        return _error(kind, f"{start} {end}")

    def _text(self, storage: Storage) -> str:
        return f"Storage(hbm={storage.hbm}, ddr={storage.ddr})" if self.old else str(storage)


def _error(kind: str, message: str) -> PlannerError:
    return PlannerError(message, PlannerErrorType.PARTITION, kind)


def _partition_by(group: _Group) -> str:
    return group[0].partition_by


def _only(group: _Group) -> ShardingOption:
    if len(group) != 1:
        raise AssertionError(f"a group that is not placed on one host must be one option, got {_named(group)}")
    return group[0]
