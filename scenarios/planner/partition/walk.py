"""A greedy partition in progress, which places each group of options by the rules of its kind."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import cast

from scenarios.planner.partition.devices import (
    Estimated,
    RankQueue,
    RankSlot,
    RankStretches,
    charge,
    first_overdrawn,
    fits_together,
    restore,
    save,
)
from scenarios.planner.topology import DeviceHardware, Topology, next_device
from scenarios.planner.types import (
    Perf,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    Storage,
    known_perf,
    known_storage,
    write_ranks_in_order,
)
from scenarios.run_length import KeptRuns, run_count, runs_of
from scenarios.sharding_kind import PartitionByType

# Read once: reading an enum member takes longer than the comparison.
_DEVICE = PartitionByType.DEVICE.value

Group = Sequence[ShardingOption]
"""Options that must be placed together."""


HostEntry = tuple[float, int, range]
"""What the ranks of one host have to do in ms, the first of the hosts for which it is so, and all of them."""


class HostRanks:
    """The hosts as groups of `size` consecutive ranks; remaining ranks belong to no host.

    Consecutive hosts that were never charged are one entry, as their ranks are one stretch.
    """

    def __init__(self, ranks: RankStretches, size: int) -> None:
        self.size, self.count = size, ranks.count // size
        self._ranks = ranks
        self._members: dict[int, Sequence[RankSlot]] = {}
        self._order: list[HostEntry] = []  # least loaded first, ties by number; made on first use
        self._together: list[HostEntry] = []  # entries that are not in `_alone`, by number
        self._alone: dict[int, float] = {}  # hosts that were charged, each an entry of its own, and their perf
        self._dirty: set[int] = set()  # hosts whose perf must be summed again

    def ranks(self, host: int) -> Sequence[RankSlot]:
        if host not in self._members:
            self._members[host] = [self._ranks[number] for number in range(host * self.size, (host + 1) * self.size)]
        return self._members[host]

    def touch(self, ranks: Iterable[RankSlot]) -> None:
        """Record that these ranks were charged."""
        self._dirty.update([rank.number // self.size for rank in ranks])

    def by_perf(self) -> Iterator[range]:
        """Return ranges of identical hosts, least loaded first, ties by number."""
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

    def _entries(self) -> Iterator[HostEntry]:
        """Yield an entry for the hosts within each stretch of ranks, and one for each host that spans several."""
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
        """Remove a host from the order; other hosts of its entry stay."""
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


class Walk:
    """A partition in progress, which charges ranks; `finish` writes them into the shards. `old`: release 0.2.0."""

    def __init__(self, topology: Topology, hbm_per_device: int | None, old: bool) -> None:
        self._old = old
        self._modulus = 1 if old else topology.local_world_size
        self._ranks = RankStretches(
            (count, _rank(device, hbm_per_device, old)) for count, device in runs_of(topology.devices)
        )
        self._hosts = HostRanks(self._ranks, topology.local_world_size if old else topology.intra_group_size)
        self._queue: RankQueue  # all ranks, set by `place`
        self._placed: list[tuple[Sequence[Shard], Sequence[RankSlot]]] = []
        self._on_all: list[Sequence[Shard]] = []  # options with a shard on each rank, in order

    def replicate(self, options: Sequence[ShardingOption]) -> None:
        """Charge uniform options, which have a shard on every rank; must precede `place`.

        Memory is checked once after all charges. Only if a rank is overdrawn are they repeated one by one, to find the
        first shard that does not fit.
        """
        whole = [option for option in options if option.num_shards == self._ranks.count]
        self._ranks.cut(_starts([option.shards for option in whole], self._ranks.count))
        likes = [stretch.like for stretch in self._ranks.stretches]
        # Charges are undone by restoring, not by subtracting: floats that were added would not come back exactly.
        saved = save(likes)
        if len(whole) == len(options):
            for option in options:
                charge(likes, self._along(option))
                self._on_all.append(option.shards)
            if first_overdrawn(likes) is None:
                return
        restore(likes, saved)
        for option in options:
            self._replicate_or_raise(option, likes)

    def place(self, groups: Iterable[Group]) -> None:
        """Place every group on a rank, a host or several hosts."""
        self._queue = RankQueue(self._ranks, self._modulus)
        alone: list[ShardingOption] = []  # consecutive options without a rule of their own, queued in one call
        for group in groups:
            option = group[0]
            apart = option.kernel.is_on_ssd and option.sharding_kind.cuts_columns and not self._old
            if option.partition_by == _DEVICE and not apart and len(group) == 1:
                alone.append(option)
            else:
                self._each(alone)
                alone = []
                self._by_rule(group)
        self._each(alone)

    def _by_rule(self, group: Group) -> None:
        by = group[0].partition_by
        if by == PartitionByType.HOST:
            self._host(group)
        elif by == PartitionByType.MULTI_HOST and not self._old:
            self._multi_host(group)
        elif by == PartitionByType.DEVICE:
            if len(group) != 1:
                raise AssertionError(f"Unexpected length for sharding options: {len(group)}: {_name_group(group)}")
            self._each_apart(group[0])
        else:
            raise RuntimeError(f"Unexpected sharding option group {_name_group(group)}: partition_by {by!r}")

    def finish(self) -> Sequence[DeviceHardware]:
        """Write every shard's rank; return the free memory and perf of each rank."""
        for shards, ranks in self._placed:
            for shard, rank in zip(shards, ranks, strict=True):
                shard.rank = rank.number
        for shards in self._on_all:
            write_ranks_in_order(shards)
        return KeptRuns([(count, rank.hardware()) for count, rank in self._ranks.runs()], next_device)

    def _along(self, option: ShardingOption) -> Sequence[Estimated]:
        """Return the option's shard on the first rank of each stretch."""
        if run_count(option.shards) == self._ranks.count:
            return _estimates_of(option)
        runs, end = iter(runs_of(option.shards)), 0
        along: list[Shard] = []
        for stretch in self._ranks.stretches:
            if stretch.first == end:
                count, shard = next(runs)
                end += count
            along.append(shard)
        return cast("Sequence[Estimated]", along)

    def _replicate_or_raise(self, option: ShardingOption, likes: Sequence[RankSlot]) -> None:
        if option.num_shards != self._ranks.count:
            raise self._wrong_count(option, self._ranks.count)
        shards = self._along(option)
        charge(likes, shards)
        at = first_overdrawn(likes)
        if at is not None:
            need = shards[at].storage
            message = f"Shard of size {self._text(need)} bytes does not fit on any rank."
            message += f" Device memory cap: {self._text(likes[at].free() + need)}."
            raise _error("uniform_no_fit", message)

    def _keep(self, shards: Sequence[Shard], ranks: Sequence[RankSlot]) -> None:
        self._placed.append((shards, ranks))
        self._hosts.touch(ranks)

    def _each(self, options: Sequence[ShardingOption]) -> None:
        """Place the shards one by one, each on the least loaded rank with room."""
        shards = list(chain.from_iterable([option.shards for option in options]))
        taken = self._queue.place(cast("list[Estimated]", shards))
        if len(taken) < len(shards):
            raise self._no_rank(options, shards[len(taken)])
        self._keep(shards, taken)

    def _each_apart(self, option: ShardingOption) -> None:
        """Place an option's shards on different ranks."""
        if option.num_shards > self._ranks.count:
            raise _error(
                "cw_kv_too_many_shards",
                f"COLUMN_WISE sharding requires num_shards ({option.num_shards}) <= num_devices ({self._ranks.count})",
            )
        taken = self._queue.place_apart(_estimates_of(option))
        if len(taken) < option.num_shards:
            shard, left = option.shards[len(taken)], self._ranks.count - len(taken)
            raise _error(
                "cw_kv_no_fit",
                f"COLUMN_WISE partition failed. Couldn't find a suitable rank for shard {shard} of table"
                f" {option.name}. Storage required: {shard.storage}, available devices: {left}",
            )
        self._keep(option.shards, taken)

    def _host(self, group: Group) -> None:
        """Place all options of a group on the least loaded host with room."""
        need = Storage.sum(option.total_storage for option in group)
        for hosts in self._hosts.by_perf():
            ranks = self._hosts.ranks(hosts[0])  # a group that does not fit there fits on no identical host
            if fits_together(need, ranks) and self._all_or_none(group, ranks, self._on_host):
                return
        raise _error("no_host", f"can't find a host for sharding option group {_name_group(group)}")

    def _multi_host(self, group: Group) -> None:
        """Place blocks of shards, one per host, on hosts that are adjacent in the order of load."""
        size, option = self._hosts.size, _only(group)
        count, rest = divmod(option.num_shards, size)
        if rest:
            raise _error(
                "grid_not_multiple_of_local",
                "Grid Sharding is unable to place shards equally over hosts without overlapping."
                f" num_shards={option.num_shards} % local_world_size={size} != 0",
            )
        hosts = list(chain.from_iterable(self._hosts.by_perf()))
        # With more blocks than hosts, hosts repeat, and only one layout is possible.
        starts, hosts = (range(len(hosts) - count + 1), hosts) if count < len(hosts) else (range(1), hosts * count)
        for start in starts:
            ranks = [rank for host in hosts[start : start + count] for rank in self._hosts.ranks(host)]
            if option.sharding_kind.cuts_columns and self._all_or_none(group, ranks, self._spread):
                return
        raise _error("no_hosts", f"can't find hosts for sharding option group {_name_group(group)}")

    def _all_or_none(
        self, group: Group, ranks: Sequence[RankSlot], place: Callable[[ShardingOption, Sequence[RankSlot]], bool]
    ) -> bool:
        """Place the whole group on these ranks; if a part fails, undo all charges and return False."""
        saved, before = save(ranks), len(self._placed)
        if all(place(option, ranks) for option in group):
            # Only on success: a restored rank's old entry in the queue is still right.
            self._queue.refresh(ranks)
            return True
        restore(ranks, saved)
        del self._placed[before:]
        return False

    def _on_host(self, option: ShardingOption, ranks: Sequence[RankSlot]) -> bool:
        kind = option.sharding_kind
        if kind.partition_by == PartitionByType.HOST and kind.cuts_rows:
            return self._spread(option, ranks)
        if kind.partition_by == PartitionByType.HOST:
            taken = RankQueue(ranks, 1 if self._old else len(ranks)).place(_estimates_of(option))
            self._keep(option.shards[: len(taken)], taken)
            return len(taken) == option.num_shards
        if self._old:
            raise RuntimeError(f"unexpected cohost sharding type: {option.sharding_type}: {option.fqn}")
        return False

    def _spread(self, option: ShardingOption, ranks: Sequence[RankSlot]) -> bool:
        """Add shard i's storage and perf to the i-th of `ranks`, which may repeat; return whether all fit."""
        if option.num_shards != len(ranks):
            if self._old:
                raise self._wrong_count(option, len(ranks))
            return False
        charge(ranks, _estimates_of(option))
        self._keep(option.shards, ranks)
        return first_overdrawn(ranks) is None

    def _wrong_count(self, option: ShardingOption, devices: int) -> Exception:
        message = (
            f"For a uniform partition, the number of shards ({option.num_shards})"
            f" must equal the number of devices ({devices})"
        )
        return RuntimeError(message) if self._old else _error("uniform_shard_count", message)

    def _no_rank(self, options: Sequence[ShardingOption], shard: Shard) -> PlannerError:
        kind, start = "device_no_fit", "Device partition failed. Couldn't find a rank"
        if self._old:
            return _error(kind, f"{start} for shard {_old_shard(shard)}, devices: [{', '.join(self._old_devices())}]")
        table = next(option.name for option in options if any(shard is other for other in option.shards))
        largest = max(rank.free() for _, rank in self._ranks.runs())
        return _error(kind, f"{start} for shard {shard} of table {table}, largest device storage: {largest}")

    def _old_devices(self) -> Iterator[str]:
        """Yield every rank's current state in the format of 0.2.0."""
        ranks = chain.from_iterable([rank] * count for count, rank in self._ranks.runs())
        for number, rank in enumerate(ranks):
            yield f"DeviceHardware(rank={number}, storage={_old_storage(rank.free())}, perf={rank.fwd_compute})"

    def _text(self, storage: Storage) -> str:
        return _old_storage(storage) if self._old else str(storage)


def _old_storage(storage: Storage) -> str:
    return f"Storage(hbm={storage.hbm}, ddr={storage.ddr})"


def _old_shard(shard: Shard) -> str:
    place = f"size={list(shard.size)}, offset={list(shard.offset)}, storage={_old_storage(known_storage(shard))}"
    return f"Shard({place}, perf={known_perf(shard).fwd_compute}, rank={shard.rank})"


def _starts(options: Sequence[Sequence[Shard]], ranks: int) -> Iterable[int]:
    """Return the ranks at which runs of shards begin, for options with a shard on every rank."""
    if any(run_count(shards) == ranks for shards in options):
        return range(ranks)
    return chain.from_iterable(accumulate([count for count, _ in runs_of(shards)][:-1]) for shards in options)


def _rank(device: DeviceHardware, hbm: int | None, old: bool) -> RankSlot:
    free, perf = device.storage, one_number(device.perf.total or 0) if old else device.perf
    return RankSlot(device.rank, Storage(hbm, free.ddr, free.ssd) if hbm else free, perf)


def one_number(ms: float) -> Perf:
    """Return a perf as in release 0.2.0, all of it in `fwd_compute`; whole numbers stay whole."""
    return Perf(ms, 0, 0, 0, 0, 0)


def _estimates_of(option: ShardingOption) -> Sequence[Estimated]:
    return cast("Sequence[Estimated]", option.shards)


def _name_group(group: Group) -> str:
    return f"{', '.join(option.fqn for option in group)} of {Storage.sum(option.total_storage for option in group)}"


def _error(kind: str, message: str) -> PlannerError:
    return PlannerError(message, PlannerErrorType.PARTITION, kind)


def _only(group: Group) -> ShardingOption:
    if len(group) != 1:
        message = f"Unexpected length for sharding options: {len(group)}. Length needs to be 1: {_name_group(group)}"
        raise _error("group_length", message)
    return group[0]
