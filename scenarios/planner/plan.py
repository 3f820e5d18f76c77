"""Plans a scenario's tables, with estimates from the cluster's own bandwidths and capacities.

`plan_text.format_plan` prints the result.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, fields
from itertools import chain, repeat

from scenarios.config.scenario import Model, Recommender, Scenario
from scenarios.config.units import format_bytes
from scenarios.planner.make_room import room_for
from scenarios.planner.options import capacity_bytes, host_capacity_bytes, options_of, topology_of
from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.pinned_plan import given_plan, place_pinned
from scenarios.planner.placed import Plan, device_tier, plan_of
from scenarios.planner.planner import Search
from scenarios.planner.search.proposers import (
    GreedyProposer,
    GridSearchProposer,
    Proposer,
    SmallestProposer,
    UniformProposer,
    largest_shard,
)
from scenarios.planner.topology import Topology
from scenarios.planner.types import PlannerError, Shard, ShardingOption, known_storage
from scenarios.run_length import runs_of
from scenarios.seam.errors import ScenarioError
from scenarios.seam.kernel import ELEMENT_BYTES

# Limit of shards placed in one search over all proposals, which keeps planning to seconds for any number of ranks.
_SHARD_BUDGET = 1_000_000
_GRID_PROPOSALS = 256
# Plans of the scenarios planned last: points of a study, what-ifs and a search have few plans between them.
_PLANS: dict[Hashable, Plan] = {}
_MOST_PLANS = 64


def plan_tables(scenario: Scenario) -> Plan:
    """Return the best placement found: the one with the least estimated perf on the busiest rank.

    Proposals are: the option of least memory for every table, one sharding type for all, the greedy search by slowest
    shard and by sum, and all combinations if they are few. Plans are deterministic. Tables that the scenario pins are
    placed first; a plan that it names is used unchanged.

    Raises:
        ScenarioError: no placement fits, with the table to blame and its bytes; or a given plan is invalid.
    """
    planner, topology = Recommender.of(scenario.workload).planner, topology_of(scenario)
    if planner.plan is not None:
        return given_plan(scenario, topology)
    if planner.choose == "simulated":
        raise ScenarioError(
            f"{scenario.path}: sharding.choose = 'simulated': expected twinstep predict, whose run folder has the plan"
            " that it finds, plan.json, to be the sharding.plan elsewhere"
        )
    key = _inputs(scenario, topology)
    if key not in _PLANS:
        _PLANS[key] = _search(scenario, topology)
        if len(_PLANS) > _MOST_PLANS:
            del _PLANS[next(iter(_PLANS))]
    return _PLANS[key]


def _inputs(scenario: Scenario, topology: Topology) -> Hashable:
    """Return all that a search reads but the words of its errors."""
    workload = Recommender.of(scenario.workload)
    cluster = tuple(getattr(topology, each.name) for each in fields(topology) if each.init)
    tables = workload.model.tables, workload.model.embedding_dtype, workload.model.optimizer
    return cluster, tables, workload.planner, workload.pipeline.kind, scenario.run.batch_size


def _search(scenario: Scenario, topology: Topology) -> Plan:
    """Return the best placement of the tables that are not pinned."""
    workload = Recommender.of(scenario.workload)
    model, planner = workload.model, workload.planner
    pinned = place_pinned(scenario, topology)
    free = [index for index, table in enumerate(model.tables) if table.name not in pinned]
    options = {index: options_of(model.tables[index], scenario, topology) for index in free}
    if not free:
        return plan_of([*pinned.values()], [device.perf.total for device in topology.devices], scenario)
    partitioner = GreedyPerfPartitioner(planner.sort_by, planner.balance_modules)
    try:
        search = Search(topology, partitioner, _SHARD_BUDGET)
        found = search.run(list(chain(*options.values())), _proposers())
    except PlannerError as error:
        raise ScenarioError(_misfits(scenario, model, topology, options)) from error
    proposal = [*pinned.values(), *found.proposal]
    perf = chain.from_iterable(repeat(device.perf.total, count) for count, device in runs_of(found.devices))
    return plan_of(proposal, tuple(perf), scenario, tried=found.tried, fitting=found.fitting)


def _proposers() -> list[Proposer]:
    return [
        SmallestProposer(),
        UniformProposer(),
        GreedyProposer(),
        GreedyProposer(use_depth=False),
        GridSearchProposer(_GRID_PROPOSALS),
    ]


def _misfits(
    scenario: Scenario, model: Model, topology: Topology, options: Mapping[int, Sequence[ShardingOption]]
) -> list[str]:
    """Return a sentence for every table that does not fit even alone; if there is none, one for the largest table."""
    alone = [index for index, mine in options.items() if not any(_fits_alone(option, topology) for option in mine)]
    if alone:
        return [_alone_sentence(index, scenario, model, options[index]) for index in alone]
    least = {index: min(mine, key=lambda option: option.total_storage) for index, mine in options.items()}
    rest = "" if len(options) == len(model.tables) else " that are not pinned"
    hosted = {index: option.total_storage.ddr for index, option in least.items()} if scenario.uses_host_memory else {}
    if sum(hosted.values()) > topology.world_size * host_capacity_bytes(scenario):
        index = max(hosted, key=hosted.__getitem__)
        return [
            f"{_rows_of(index, scenario, model)}: expected the rows of all tables{rest} that are in host memory to fit"
            f" into {topology.world_size} ranks with {format_bytes(host_capacity_bytes(scenario))} each of it; they"
            f" take at least {format_bytes(sum(hosted.values()))}, {format_bytes(hosted[index])} of it for table"
            f" {model.tables[index].name!r}, which is the largest{room_for(scenario, *model.tables, in_host=True)}"
        ]
    sizes = {index: device_tier(scenario)(option.total_storage) for index, option in least.items()}
    stored_bytes = sum(_stored_bytes(option, model) for option in least.values())
    index = max(sizes, key=sizes.__getitem__)
    where, buffers = _key_to_blame(index, scenario, model, sum(sizes.values()), stored_bytes)
    return [
        f"{where}: expected all {len(sizes)} tables{rest} together to fit into"
        f" {topology.world_size} ranks with {format_bytes(capacity_bytes(scenario))} each for embeddings;"
        f" they take at least {format_bytes(sum(sizes.values()))}{buffers}, {format_bytes(sizes[index])} of it for"
        f" table {model.tables[index].name!r} as {least[index].sharding_type}, which is the largest"
        f"{room_for(scenario, *model.tables)}"
    ]


def _fits_alone(option: ShardingOption, topology: Topology) -> bool:
    try:
        GreedyPerfPartitioner().partition([option], topology)
    except PlannerError:
        return False
    return True


def _alone_sentence(index: int, scenario: Scenario, model: Model, options: Sequence[ShardingOption]) -> str:
    best = min(options, key=lambda option: astuple(largest_shard(option))[:: -1 if scenario.uses_host_memory else 1])
    taken, hosts_bytes = largest_shard(best), host_capacity_bytes(scenario)
    if scenario.uses_host_memory and max(known_storage(shard).ddr for _, shard in runs_of(best.shards)) > hosts_bytes:
        return (
            f"{_rows_of(index, scenario, model)}: expected table {model.tables[index].name!r} to fit into"
            f" {scenario.sharding_ranks} ranks with {format_bytes(hosts_bytes)} each of host memory; as"
            f" {best.sharding_type}, the least demanding of its sharding types, it takes {format_bytes(taken.ddr)}"
            f" on one rank{room_for(scenario, model.tables[index], in_host=True)}"
        )
    taken_bytes = device_tier(scenario)(taken)
    stored_bytes = max(_shard_bytes(shard, model) for _, shard in runs_of(best.shards))
    where, buffers = _key_to_blame(index, scenario, model, taken_bytes, stored_bytes)
    return (
        f"{where}: expected table {model.tables[index].name!r} to fit into"
        f" {scenario.sharding_ranks} ranks with {format_bytes(capacity_bytes(scenario))} each for embeddings;"
        f" as {best.sharding_type}, the least demanding of its sharding types, it takes"
        f" {format_bytes(taken_bytes)} on one rank{buffers}{room_for(scenario, model.tables[index])}"
    )


def _key_to_blame(index: int, scenario: Scenario, model: Model, taken_bytes: int, stored_bytes: int) -> tuple[str, str]:
    """Return the key to name for memory that is short, and a phrase on buffers.

    The key is the batch size if buffers of inputs and outputs (`taken_bytes - stored_bytes`) are larger than the
    table's stored shard, else the table's rows.
    """
    buffer_bytes = taken_bytes - stored_bytes
    if buffer_bytes > stored_bytes:
        where = f"run.batch_size = {scenario.run.batch_size}"
        return f"{scenario.path}: {where}", f", {format_bytes(buffer_bytes)} of it buffers of inputs and outputs"
    return _rows_of(index, scenario, model), ""


def _rows_of(index: int, scenario: Scenario, model: Model) -> str:
    return f"{scenario.path}: model.tables[{index}].rows = {model.tables[index].rows}"


def _stored_bytes(option: ShardingOption, model: Model) -> int:
    return sum(count * _shard_bytes(shard, model) for count, shard in runs_of(option.shards))


def _shard_bytes(shard: Shard, model: Model) -> int:
    """Return the bytes of weights and optimizer state, which do not depend on the batch."""
    rows, columns = shard.size
    return rows * (columns * ELEMENT_BYTES[model.embedding_dtype] + model.optimizer.state_bytes(columns))
