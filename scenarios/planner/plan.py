"""Plans a scenario's tables: the bridge from `Scenario` to the planner.

Costs come from the estimators with the cluster's own bandwidths and capacities;
`plan_text.format_plan` prints the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np

from scenarios.config.hardware import Cluster, Host
from scenarios.config.scenario import Model, Scenario, Table
from scenarios.config.units import format_bytes
from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.planner import Found, Search
from scenarios.planner.search.enumerator import EmbeddingEnumerator
from scenarios.planner.search.proposers import (
    GreedyProposer,
    GridSearchProposer,
    Proposer,
    SmallestProposer,
    UniformProposer,
    largest_shard,
)
from scenarios.planner.topology import Topology
from scenarios.planner.types import (
    ComputeKernel,
    ParameterConstraints,
    PlannerError,
    Shard,
    ShardingOption,
    ShardingType,
    Storage,
    TensorShape,
    known_storage,
    perf_ms,
)
from scenarios.seam.errors import ScenarioError
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.run_length import Run, Runs, run_count, runs_of
from scenarios.seam.trace import PlanRow

OPTIMIZER_ROW_BYTES = {"sgd": 0, "adagrad": 4}  # row-wise Adagrad keeps one float32 a row

_SPLIT_BY_ROW = (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD)
_MODULE = "model.tables"
# Shards placed in one search, over all proposals: keeps planning to seconds, however many ranks there are.
_SHARD_BUDGET = 1_000_000
_GRID_PROPOSALS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """One table; shards are in the order of the sharding type. Shards on every rank are `Runs`."""

    name: str
    sharding_type: str
    compute_kernel: str
    shards: Sequence[PlanRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All tables in the model's order, and by rank: bytes of weights, of optimizer state, of both with buffers, and ms.

    `capacity_bytes` is what each rank has for embeddings. `tried` proposals were looked at; `fitting` of them fitted.
    `row_runs` is as `rows`, where identical shards on many ranks are one run.
    """

    tables: tuple[PlannedTable, ...]
    row_runs: Runs[PlanRow]
    weight_bytes: tuple[int, ...]
    optimizer_bytes: tuple[int, ...]
    storage_bytes: tuple[int, ...]
    perf_ms: tuple[float, ...]
    capacity_bytes: int
    tried: int
    fitting: int

    @property
    def world_size(self) -> int:
        return len(self.weight_bytes)

    @property
    def rows(self) -> tuple[PlanRow, ...]:
        """All rows, made anew each time: as many as there are shards."""
        return tuple(self.row_runs)

    def rows_for(self, replicas: Sequence[int]) -> tuple[PlanRow, ...]:
        """The rows of all shards, but of data_parallel tables only the copies on these ranks."""
        rows: list[PlanRow] = []
        for count, first in self.row_runs.runs:
            is_copy = first.sharding_type == ShardingType.DATA_PARALLEL
            ranks = replicas if is_copy else range(first.rank, first.rank + count)
            rows += [next_row(first, rank - first.rank) for rank in ranks]
        return tuple(rows)

    def table(self, name: str) -> PlannedTable:
        """The table of this name; KeyError if there is none."""
        return {table.name: table for table in self.tables}[name]


def plan_tables(scenario: Scenario) -> Plan:
    """The best placement found for the scenario's tables: the least estimated perf on the busiest rank.

    Looked at: the option of least memory for every table, one sharding type for all, the greedy walk by slowest shard
    and by sum, and all combinations where they are few. The same scenario gives the same plan.

    Raises:
        ScenarioError: no placement fits; the sentence names the table and how much it takes.
    """
    model = scenario.model
    assert model is not None, "only a scenario with a model has tables to plan"
    topology = topology_of(scenario)
    options = [_options(table, scenario, model, topology) for table in model.tables]
    partitioner = GreedyPerfPartitioner(scenario.planner.sort_by, scenario.planner.balance_modules)
    try:
        found = Search(topology, partitioner, _SHARD_BUDGET).run(list(chain(*options)), _proposers())
    except PlannerError as error:
        raise ScenarioError(_misfits(scenario, model, topology, options)) from error
    return _plan(found, scenario, model)


def topology_of(scenario: Scenario) -> Topology:
    """The planner's view of a cluster: bandwidths of one rank in bytes/ms, and what it may fill with embeddings.

    A CPU rank's memory counts as ddr. Shared NICs and bridges are divided among the GPUs that share them.
    """
    cluster = scenario.cluster
    gpu = cluster.host.gpu
    memory_bytes_per_ms = gpu.memory_bytes_per_s / 1000
    inside = _inside_bytes_per_s(cluster.host) / 1000
    return Topology(
        cluster.world_size,
        gpu.kind,
        hbm_cap=capacity_bytes(scenario),
        ddr_cap=capacity_bytes(scenario) if gpu.kind == "cpu" else cluster.host.memory_bytes // cluster.host.gpus,
        local_world_size=cluster.host.gpus,
        hbm_mem_bw=memory_bytes_per_ms,
        ddr_mem_bw=memory_bytes_per_ms,
        intra_host_bw=inside,
        # The estimator prices a replica's all-reduce by this rate also where there is no other host.
        inter_host_bw=_network_bytes_per_s(cluster) / 1000 if cluster.hosts > 1 else inside,
    )


def capacity_bytes(scenario: Scenario) -> int:
    """Bytes of one rank's memory that embeddings may take."""
    return int(scenario.cluster.host.gpu.memory_bytes * (1 - scenario.planner.reserved_share))


def _inside_bytes_per_s(host: Host) -> float:
    inside = host.inside
    if inside.bridge_bytes_per_s is None or inside.kind == "nvlink_mesh":
        return inside.gpu_bytes_per_s(host.gpus)
    return min(inside.link.bytes_per_s, inside.bridge_bytes_per_s / host.gpus)


def _network_bytes_per_s(cluster: Cluster) -> float:
    """What one GPU gets of its host's way out, when all of them use it; payload only."""
    nics, network = cluster.host.nics, cluster.network
    rate = nics.link.bytes_per_s * cluster.payload_share
    if nics.per == "host":
        rate *= min(1.0, nics.count / cluster.host.gpus)
    crosses = cluster.hosts > (network.hosts_per_leaf or cluster.hosts)
    return rate / network.oversubscription if crosses else rate


class _TableSharder:
    """The sharding types that a scenario allows one table; replicas are looked up by the dense kernel."""

    module_type = Table

    def __init__(self, table: Table) -> None:
        self._table = table

    def shardable_parameters(self, module: Table) -> dict[str, TensorShape]:
        return {module.name: TensorShape((module.rows, module.dim))}

    def sharding_types(self, compute_device_type: str) -> Sequence[str]:
        return self._table.sharding

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> Sequence[str]:
        replicated = sharding_type == ShardingType.DATA_PARALLEL
        return [ComputeKernel.DENSE if replicated else ComputeKernel.FUSED]


def _options(table: Table, scenario: Scenario, model: Model, topology: Topology) -> list[ShardingOption]:
    wished = ParameterConstraints(sharding_types=table.sharding, pooling_factors=[table.ids_per_sample])
    enumerator = EmbeddingEnumerator(topology, scenario.batch_size, {table.name: wished})
    state = OPTIMIZER_ROW_BYTES[model.optimizer.kind]
    tensor = TensorShape((table.rows, table.dim), ELEMENT_BYTES[model.dtype], state)
    return enumerator.of_table(table.name, tensor, (_MODULE, table), _TableSharder(table))


def _proposers() -> list[Proposer]:
    return [
        SmallestProposer(),
        UniformProposer(),
        GreedyProposer(),
        GreedyProposer(use_depth=False),
        GridSearchProposer(_GRID_PROPOSALS),
    ]


def _plan(found: Found, scenario: Scenario, model: Model) -> Plan:
    by_name = {option.name: option for option in found.proposal}
    world = scenario.cluster.world_size
    tables = tuple(planned_table(by_name[table.name], one_tier, world) for table in model.tables)
    element_bytes, state_bytes = ELEMENT_BYTES[model.dtype], OPTIMIZER_ROW_BYTES[model.optimizer.kind]
    perf = ((count, device.perf.total) for count, device in runs_of(found.devices))
    return Plan(
        tables=tables,
        row_runs=Runs(chain.from_iterable(runs_of(table.shards) for table in tables), next_row),
        weight_bytes=by_rank(tables, world, lambda shard: shard.rows * shard.columns * element_bytes),
        optimizer_bytes=by_rank(tables, world, lambda shard: shard.rows * state_bytes),
        storage_bytes=by_rank(tables, world, lambda shard: shard.storage_bytes),
        perf_ms=tuple(chain.from_iterable(repeat(total, count) for count, total in perf)),
        capacity_bytes=capacity_bytes(scenario),
        tried=found.tried,
        fitting=found.fitting,
    )


def planned_table(option: ShardingOption, tier: Callable[[Storage], int], world_size: int) -> PlannedTable:
    """A placed option as a value; `tier` says which of a shard's bytes count."""
    ids = option.batch_size * sum(option.input_lengths)
    if option.sharding_type != ShardingType.DATA_PARALLEL:  # a replica serves its own rank's samples only
        ids *= world_size
    by_row = option.sharding_type in _SPLIT_BY_ROW
    rows = max((shard.offset[0] + count * shard.size[0] for count, shard in runs_of(option.shards)), default=0) or 1
    runs: list[Run[PlanRow]] = []
    number = 0
    for count, shard in runs_of(option.shards):
        if shard.rank is None:
            raise ValueError(f"{shard} of table {option.name}: no rank; partition the proposal first")
        row = PlanRow(
            table=option.name,
            sharding_type=str(option.sharding_type),
            compute_kernel=str(option.compute_kernel),
            shard=number,
            rank=shard.rank,
            row_offset=shard.offset[0],
            column_offset=shard.offset[1],
            rows=shard.size[0],
            columns=shard.size[1],
            storage_bytes=tier(known_storage(shard)),
            perf_ms=perf_ms(shard),
            ids_per_step=ids * shard.size[0] / rows if by_row else ids,
        )
        runs.append((count, row))
        number += count
    whole = run_count(option.shards) == option.num_shards
    return PlannedTable(
        name=option.name,
        sharding_type=str(option.sharding_type),
        compute_kernel=str(option.compute_kernel),
        shards=tuple(row for _, row in runs) if whole else Runs(runs, next_row),
    )


def next_row(first: PlanRow, index: int) -> PlanRow:
    """The row of the shard `index` ranks after the first: a copy, or the next block of rows."""
    row_offset = first.row_offset + (index * first.rows if first.sharding_type in _SPLIT_BY_ROW else 0)
    return replace(first, shard=first.shard + index, rank=first.rank + index, row_offset=row_offset)


def by_rank(tables: Sequence[PlannedTable], world_size: int, value: Callable[[PlanRow], int]) -> tuple[int, ...]:
    """On each rank the sum of what a shard counts."""
    sums = np.zeros(world_size, np.int64)
    for table in tables:
        for count, shard in runs_of(table.shards):
            sums[shard.rank : shard.rank + count] += value(shard)
    return tuple(sums.tolist())


def one_tier(storage: Storage) -> int:
    """A shard's bytes in the memory that its rank has: hbm on a GPU, ddr on a CPU."""
    return storage.hbm + storage.ddr


def _misfits(
    scenario: Scenario, model: Model, topology: Topology, options: Sequence[Sequence[ShardingOption]]
) -> list[str]:
    """One sentence for every table that fits nowhere by itself; if there is none, one for the largest of all."""
    alone = [index for index, mine in enumerate(options) if not any(_fits_alone(option, topology) for option in mine)]
    if alone:
        return [_alone_sentence(index, scenario, model, options[index]) for index in alone]
    least = [min(mine, key=lambda option: option.total_storage) for mine in options]
    sizes = [one_tier(option.total_storage) for option in least]
    stored_bytes = sum(_stored_bytes(option, model) for option in least)
    index = max(range(len(sizes)), key=sizes.__getitem__)
    where, buffers = _blamed(index, scenario, model, sum(sizes), stored_bytes)
    return [
        f"{where}: expected all {len(sizes)} tables together to fit into"
        f" {topology.world_size} ranks with {format_bytes(capacity_bytes(scenario))} each for embeddings;"
        f" they take at least {format_bytes(sum(sizes))}{buffers}, {format_bytes(sizes[index])} of it for table"
        f" {model.tables[index].name!r} as {least[index].sharding_type}, which is the largest"
    ]


def _fits_alone(option: ShardingOption, topology: Topology) -> bool:
    try:
        GreedyPerfPartitioner().partition([option], topology)
    except PlannerError:
        return False
    return True


def _alone_sentence(index: int, scenario: Scenario, model: Model, options: Sequence[ShardingOption]) -> str:
    best = min(options, key=largest_shard)
    taken_bytes = one_tier(largest_shard(best))
    stored_bytes = max(_shard_bytes(shard, model) for _, shard in runs_of(best.shards))
    where, buffers = _blamed(index, scenario, model, taken_bytes, stored_bytes)
    return (
        f"{where}: expected table {model.tables[index].name!r} to fit into"
        f" {scenario.cluster.world_size} ranks with {format_bytes(capacity_bytes(scenario))} each for embeddings;"
        f" as {best.sharding_type}, the least demanding of its sharding types, it takes"
        f" {format_bytes(taken_bytes)} on one rank{buffers}"
    )


def _blamed(index: int, scenario: Scenario, model: Model, taken_bytes: int, stored_bytes: int) -> tuple[str, str]:
    """The key of what takes most: a table's rows, or the batch, with which buffers grow; and how much these take."""
    buffer_bytes = taken_bytes - stored_bytes
    if buffer_bytes > stored_bytes:
        where = f"run.batch_size = {scenario.batch_size}"
        return f"{scenario.path}: {where}", f", {format_bytes(buffer_bytes)} of it buffers of inputs and outputs"
    return f"{scenario.path}: model.tables[{index}].rows = {model.tables[index].rows}", ""


def _stored_bytes(option: ShardingOption, model: Model) -> int:
    return sum(count * _shard_bytes(shard, model) for count, shard in runs_of(option.shards))


def _shard_bytes(shard: Shard, model: Model) -> int:
    """Weights and optimizer state: what it takes whatever the batch is."""
    rows, columns = shard.size
    return rows * (columns * ELEMENT_BYTES[model.dtype] + OPTIMIZER_ROW_BYTES[model.optimizer.kind])
