"""Plans as values: the ranks of each table's shards, and the resulting bytes and ms of each rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter

import numpy as np

from scenarios.config.scenario import Model, Recommender, Scenario
from scenarios.planner.options import capacity_bytes
from scenarios.planner.types import (
    Perf,
    Shard,
    ShardingOption,
    Storage,
    known_storage,
    perf_ms,
)
from scenarios.run_length import Run, Runs, run_count, runs_of
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.trace import PlanRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """One planned table, with shards in the order of the sharding type; shards on every rank are `Runs`.

    `load_factor` is that of its cache, if it has one.
    """

    name: str
    sharding_type: str
    compute_kernel: str
    shards: Sequence[PlanRow]
    load_factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All tables in the model's order, with the memory and time of each rank.

    Attributes:
        row_runs: like `rows`, with identical shards on many ranks as one run.
        weight_bytes: weights by rank, in the device's memory.
        optimizer_bytes: optimizer state by rank, in the device's memory.
        storage_bytes: weights, state and buffers by rank, in the device's memory.
        host_bytes: bytes by rank in the host's memory.
        perf_ms: the planner's estimate by rank.
        capacity_bytes: memory of each rank for embeddings.
        tried: number of proposals tried.
        fitting: number of these that fitted.
    """

    tables: tuple[PlannedTable, ...]
    row_runs: Runs[PlanRow]
    weight_bytes: tuple[int, ...]
    optimizer_bytes: tuple[int, ...]
    storage_bytes: tuple[int, ...]
    host_bytes: tuple[int, ...]
    perf_ms: tuple[float, ...]
    capacity_bytes: int
    tried: int
    fitting: int

    @property
    def world_size(self) -> int:
        return len(self.weight_bytes)

    @property
    def rows(self) -> tuple[PlanRow, ...]:
        """The rows of all shards, created on each access."""
        return tuple(self.row_runs)

    def rows_for(self, replicas: Sequence[int]) -> tuple[PlanRow, ...]:
        """Return the rows of all shards; for copied tables, only the copies on the ranks `replicas`."""
        rows: list[PlanRow] = []
        for count, first in self.row_runs.runs:
            ranks = replicas if first.sharding_kind.is_copied else range(first.rank, first.rank + count)
            rows += [next_row(first, rank - first.rank) for rank in ranks]
        return tuple(rows)

    def table(self, name: str) -> PlannedTable:
        """Return the table of this name; KeyError if there is none."""
        return {table.name: table for table in self.tables}[name]


def plan_of(
    proposal: Sequence[ShardingOption], perf: Sequence[float], scenario: Scenario, *, tried: int = 0, fitting: int = 0
) -> Plan:
    """Return the plan of a placed proposal; `perf` is the load of each rank, in ms."""
    model = Recommender.of(scenario.workload).model
    by_name = {option.name: option for option in proposal}
    world = scenario.sharding_ranks
    tier = device_tier(scenario)
    tables = tuple(planned_table(by_name[table.name], tier, world) for table in model.tables)
    held = partial(device_bytes, model=model, load_factors={one.name: one.cache_load_factor for one in model.tables})
    return Plan(
        tables=tables,
        row_runs=Runs(chain.from_iterable(runs_of(table.shards) for table in tables), next_row),
        weight_bytes=by_rank(tables, world, lambda shard: held(shard).weights),
        optimizer_bytes=by_rank(tables, world, lambda shard: held(shard).state),
        storage_bytes=by_rank(tables, world, lambda shard: shard.storage_bytes),
        host_bytes=by_rank(tables, world, lambda shard: shard.host_bytes),
        perf_ms=tuple(perf),
        capacity_bytes=capacity_bytes(scenario),
        tried=tried,
        fitting=fitting,
    )


@dataclass(frozen=True, slots=True)
class RankBytes:
    """Bytes of weights and of optimizer state."""

    weights: int
    state: int


def device_bytes(shard: PlanRow, model: Model, load_factors: Mapping[str, float]) -> RankBytes:
    """Return the bytes of a shard in its rank's own memory: none of rows in host memory, except for a cache's share.

    State for each row stays on the device. State for each element lies with the whole table, uncached, as in fbgemm's
    split_table_batched_embeddings_ops_training (v1.0, `construct_split_state`).
    """
    share, is_in_host = 1.0, shard.kernel.is_in_host
    if is_in_host:
        share = load_factors[shard.table] if shard.kernel.is_cached else 0.0
    whole = whole_bytes(shard, model)
    weights = whole.weights if share == 1 else round(shard.rows * share) * whole.weights // max(shard.rows, 1)
    return RankBytes(weights, shard.rows * model.optimizer.state_bytes(0) if is_in_host else whole.state)


def whole_bytes(shard: PlanRow, model: Model) -> RankBytes:
    """Return the bytes of all rows of a shard, in whichever memory."""
    weights = shard.rows * shard.columns * ELEMENT_BYTES[model.embedding_dtype]
    return RankBytes(weights, shard.rows * model.optimizer.state_bytes(shard.columns))


def planned_table(option: ShardingOption, tier: Callable[[Storage], int], world_size: int) -> PlannedTable:
    """Return a placed option as a value; `tier` returns which of a shard's bytes are in its rank's own memory."""
    ids = option.batch_size * sum(option.input_lengths)
    if not option.sharding_kind.is_copied:  # a replica serves only the samples of its own rank
        ids *= world_size
    by_row = option.sharding_kind.cuts_rows
    rows = max((shard.offset[0] + count * shard.size[0] for count, shard in runs_of(option.shards)), default=0) or 1
    runs: list[Run[PlanRow]] = []
    number = 0
    for count, shard in runs_of(option.shards):
        if shard.rank is None:
            raise ValueError(f"{shard} of table {option.name}: no rank; partition the proposal first")
        storage = known_storage(shard)
        own = tier(storage)
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
            storage_bytes=own,
            host_bytes=storage.hbm + storage.ddr - own,
            perf_ms=perf_ms(shard),
            ids_per_step=ids * shard.size[0] / rows if by_row else ids,
            **_computed_ms(shard),
        )
        runs.append((count, row))
        number += count
    whole = run_count(option.shards) == option.num_shards
    return PlannedTable(
        name=option.name,
        sharding_type=str(option.sharding_type),
        compute_kernel=str(option.compute_kernel),
        shards=tuple(row for _, row in runs) if whole else Runs(runs, next_row),
        load_factor=option.cache_load_factor,
    )


def _computed_ms(shard: Shard) -> dict[str, float]:
    """Return a shard's forward and backward compute times in ms; nothing for the single number of release 0.2.0."""
    if not isinstance(shard.perf, Perf):
        return {}
    return {"forward_ms": shard.perf.fwd_compute + shard.perf.prefetch_compute, "backward_ms": shard.perf.bwd_compute}


def next_row(first: PlanRow, index: int) -> PlanRow:
    """Return the row of the shard `index` ranks after the first: a copy, or the next block of rows."""
    row_offset = first.row_offset + (index * first.rows if first.sharding_kind.cuts_rows else 0)
    return replace(first, shard=first.shard + index, rank=first.rank + index, row_offset=row_offset)


def by_rank(tables: Sequence[PlannedTable], world_size: int, value: Callable[[PlanRow], int]) -> tuple[int, ...]:
    """Return for each rank the sum of `value` over its shards."""
    sums = np.zeros(world_size, np.int64)
    for table in tables:
        for count, shard in runs_of(table.shards):
            sums[shard.rank : shard.rank + count] += value(shard)
    return tuple(sums.tolist())


def device_tier(scenario: Scenario) -> Callable[[Storage], int]:
    """Return a function from a shard's storage to the bytes in its rank's own memory: hbm on a GPU, ddr on a CPU."""
    return attrgetter("hbm" if scenario.cluster.host.gpu.device.has_own_memory else "ddr")
