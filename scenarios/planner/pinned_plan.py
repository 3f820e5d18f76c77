"""Places tables where the scenario puts them: all tables by a plan file, or single tables by their ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from scenarios.config.scenario import Recommender, Scenario
from scenarios.config.units import format_bytes
from scenarios.planner.estimators.perf import EmbeddingPerfEstimator
from scenarios.planner.estimators.storage import EmbeddingStorageEstimator
from scenarios.planner.options import capacity_bytes, host_capacity_bytes, options_of, topology_of
from scenarios.planner.placed import Plan, device_tier, plan_of
from scenarios.planner.plan_file import GivenTable, read_plan
from scenarios.planner.search.enumerator import COLUMN_ALIGNMENT, cut
from scenarios.planner.topology import Topology
from scenarios.planner.types import (
    Shard,
    ShardingOption,
    Storage,
    known_perf,
    known_storage,
    perf_ms,
    write_ranks_in_order,
)
from scenarios.run_length import runs_of
from scenarios.seam.errors import NoRoomError, ScenarioError
from scenarios.sharding_kind import WHERE_SHARDS_LIE, PartitionByType
from scenarios.sparse.tables import layouts, tables_of_plan

_LIES = f"{WHERE_SHARDS_LIE}; columns are cut evenly into multiples of {COLUMN_ALIGNMENT}"


def given_plan(scenario: Scenario, topology: Topology) -> Plan:
    """Return the plan in the scenario's plan file, with the planner's estimates of perf and storage.

    Raises:
        ScenarioError: a shard lies where its sharding type does not allow it, or on a rank that does not exist, or a
            rank has too little memory for its shards.
    """
    file = Recommender.of(scenario.workload).planner.plan
    assert file is not None, "only a scenario that names a plan has one"
    place = f"{scenario.path}: sharding.plan = '{file.path}'"
    plan, proposal = _place_tables(place, read_plan(file.path), scenario, topology)
    _check_room(place, proposal, scenario)
    return plan


def rate_plan(given: Mapping[str, GivenTable], scenario: Scenario) -> Plan:
    """Return a plan with the given places and the planner's estimates, even if memory is short.

    Raises:
        ScenarioError: a shard lies where its sharding type does not allow it, or on a rank that does not exist.
    """
    return _place_tables(str(scenario.path), given, scenario, topology_of(scenario))[0]


def _place_tables(
    place: str, given: Mapping[str, GivenTable], scenario: Scenario, topology: Topology
) -> tuple[Plan, list[ShardingOption]]:
    """Return the plan and its sharding options; `place` begins the sentence of a mistake."""
    model = Recommender.of(scenario.workload).model
    proposal = []
    for table in model.tables:
        option = options_of(table, scenario, topology)[0]
        try:
            proposal.append(_set_estimates(option, _shards(given[table.name], option, topology), topology))
        except ValueError as error:
            raise ScenarioError([f"{place}: {error}"]) from None
    plan = plan_of(proposal, _perf_by_rank(proposal, topology.world_size), scenario)
    try:
        # Called for its checks: shards must lie where the exchanges of their sharding type expect them.
        layouts(tables_of_plan(plan.row_runs), topology.world_size, scenario.sharding_host_ranks)
    except ValueError as error:
        raise ScenarioError([f"{place}: {error}"]) from None
    return plan, proposal


def place_pinned(scenario: Scenario, topology: Topology) -> dict[str, ShardingOption]:
    """Place the tables that the scenario pins, charge them to the topology's ranks, and return their options by name.

    Among the sharding types that the table may take and that fit exactly these ranks, the one with the fastest slowest
    shard is used.

    Raises:
        ScenarioError: no type fits, or a rank has too little memory.
    """
    model = Recommender.of(scenario.workload).model
    found: dict[str, ShardingOption] = {}
    for index, table in enumerate(model.tables):
        if not table.ranks:
            continue
        place = f"{scenario.path}: model.tables[{index}], on ranks {_short(table.ranks)}"
        options = [
            _set_estimates(option, shards, topology)
            for option in options_of(table, scenario, topology)
            if (shards := _on_ranks(option, table.ranks, topology)) is not None
        ]
        if not options:
            types = " or ".join(table.sharding)
            raise ScenarioError(
                [f"{place}: expected ranks on which {table.rows} x {table.dim} can be {types}; {_LIES}"]
            )
        best = found[table.name] = min(
            options, key=lambda option: max(perf_ms(each) for _, each in runs_of(option.shards))
        )
        for shard in best.shards:
            assert shard.rank is not None, "its ranks were written above"
            device = topology.devices[shard.rank]
            device.storage, device.perf = device.storage - known_storage(shard), device.perf + known_perf(shard)
        _check_room(place, list(found.values()), scenario)
    return found


def _shards(given: GivenTable, option: ShardingOption, topology: Topology) -> Sequence[Shard]:
    """Return the table's shards with their ranks; shards on every rank are runs.

    Raises:
        ValueError: a rank does not exist, or the sharding type requires others.
    """
    name, world, ranks = f"table {given.name!r} ({given.sharding_type})", topology.world_size, given.ranks
    kind = given.sharding_type
    outside = [rank for rank in ranks if rank >= world]
    if outside:
        raise ValueError(f"{name}: expected ranks 0 to {world - 1}, not {outside[0]}")
    if kind.is_on_all_ranks and sorted(ranks) != [*range(world)]:
        raise ValueError(f"{name}: expected a shard on each of {world} ranks, not {len(ranks)}")
    if kind.is_whole and len(ranks) != 1:
        raise ValueError(f"{name}: expected one shard, not {len(ranks)}")
    if kind.partition_by == PartitionByType.HOST and kind.cuts_columns and len(_hosts(ranks, topology)) > 1:
        raise ValueError(f"{name}: expected ranks of one host, not {_short(ranks)}")
    shards = [
        Shard([each.rows, each.columns], [each.row_offset, each.column_offset], rank=each.rank) for each in given.shards
    ]
    if kind.is_on_all_ranks:
        rows, dim = option.tensor.shape
        even = cut(kind, rows, dim, topology)  # checked one by one, unlike the option's runs
        write_ranks_in_order(even)
        if not shards or _places(shards) == _places(even):
            write_ranks_in_order(option.shards)
            return option.shards
    return shards


def _on_ranks(option: ShardingOption, ranks: Sequence[int], topology: Topology) -> Sequence[Shard] | None:
    """Return shards of the option on exactly these ranks, in this order; None if its sharding type does not allow them.

    Columns are cut evenly over the ranks, or over the hosts of a grid.
    """
    kind, group = option.sharding_kind, topology.intra_group_size
    hosts = _hosts(ranks, topology)
    whole_hosts = [*ranks] == [rank for host in hosts for rank in range(host * group, (host + 1) * group)]
    if kind.is_on_all_ranks:
        fits = [*ranks] == [*range(topology.world_size)]
    elif kind.is_whole:
        fits = len(ranks) == 1
    else:
        is_in_reach = kind.partition_by != PartitionByType.HOST or len(hosts) == 1
        fits = is_in_reach and (whole_hosts or not kind.cuts_rows)
    parts = len(hosts) if kind.cuts_rows else len(ranks)
    shards = (_columns(option, parts, topology) if kind.cuts_columns else option.shards) if fits else None
    if shards is None:
        return None
    if kind.is_on_all_ranks:
        write_ranks_in_order(shards)
    else:
        for shard, rank in zip(shards, ranks, strict=True):
            shard.rank = rank
    return shards


def _columns(option: ShardingOption, count: int, topology: Topology) -> Sequence[Shard] | None:
    """Return the option's shards with columns cut into `count` equal parts; None if they cannot be."""
    rows, dim = option.tensor.shape
    width, rest = divmod(dim, count)
    if rest or (count > 1 and width % COLUMN_ALIGNMENT):
        return None
    return cut(option.sharding_type, rows, dim, topology, min_partition=width)


def _set_estimates(option: ShardingOption, shards: Sequence[Shard], topology: Topology) -> ShardingOption:
    """Set the option's shards and estimate their costs."""
    option.shards = shards
    EmbeddingPerfEstimator(topology).estimate([option])
    EmbeddingStorageEstimator(topology).estimate([option])
    return option


def _perf_by_rank(proposal: Sequence[ShardingOption], world_size: int) -> list[float]:
    perf = np.zeros(world_size)
    for option in proposal:
        for count, shard in runs_of(option.shards):
            assert shard.rank is not None, "a given plan has all ranks"
            perf[shard.rank : shard.rank + count] += perf_ms(shard)
    return perf.tolist()


def _check_room(place: str, tables: Sequence[ShardingOption], scenario: Scenario) -> None:
    """Raise ScenarioError if a rank holds more than its memory for embeddings or its share of host memory."""
    own = device_tier(scenario)
    _check_tier(place, tables, scenario, tier=own, room_bytes=capacity_bytes(scenario), what="for embeddings")
    if scenario.uses_host_memory:
        room_bytes = host_capacity_bytes(scenario)
        _check_tier(place, tables, scenario, tier=attrgetter("ddr"), room_bytes=room_bytes, what="of its host's memory")


def _check_tier(
    place: str,
    tables: Sequence[ShardingOption],
    scenario: Scenario,
    *,
    tier: Callable[[Storage], int],
    room_bytes: int,
    what: str,
) -> None:
    held = np.zeros(scenario.sharding_ranks, np.int64)
    for table in tables:
        for count, shard in runs_of(table.shards):
            assert shard.rank is not None, "what is checked is placed"
            held[shard.rank : shard.rank + count] += tier(known_storage(shard))
    rank = int(np.argmax(held))
    if held[rank] <= room_bytes:
        return
    on_rank = {
        table.name: sum(tier(known_storage(shard)) for shard in table.shards if shard.rank == rank) for table in tables
    }
    largest = max(on_rank, key=on_rank.__getitem__)
    expected = f"expected rank {rank} to have room for what lies there, with buffers {format_bytes(int(held[rank]))}"
    most = f"most of it is table {largest!r} with {format_bytes(on_rank[largest])}"
    excess_bytes = int(held[rank]) - room_bytes
    over = f"{format_bytes(excess_bytes)} must lie elsewhere"
    raise NoRoomError(f"{place}: {expected}, in {format_bytes(room_bytes)} {what}; {most}; {over}", excess_bytes)


def _places(shards: Sequence[Shard]) -> list[tuple[int | None, list[int], list[int]]]:
    return [(shard.rank, [*shard.offset], [*shard.size]) for shard in shards]


def _hosts(ranks: Sequence[int], topology: Topology) -> list[int]:
    return list(dict.fromkeys(rank // topology.intra_group_size for rank in ranks))


def _short(ranks: Sequence[int]) -> str:
    text = str([*ranks])
    return text if len(text) <= 40 else f"{text[:36]}...]"
