"""A finished plan as frozen values: where every shard is, and what each rank holds; how it was found is planner's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.config.scenario import Table
from scenarios.planner.types import Shard, ShardingOption, ShardingType, Storage, known_storage, perf_ms
from scenarios.seam.run_length import Run, Runs, run_count, runs_of
from scenarios.seam.trace import PlanRow

_SPLIT_BY_ROW = (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    """A rectangle of a table on one rank; offsets and sizes in elements. `rows` may be 0 where a table is cut by rows.

    `storage_bytes` (weights, optimizer state and exchange buffers) and `perf_ms` are the planner's estimates.
    """

    rank: int
    row_offset: int
    column_offset: int
    rows: int
    columns: int
    storage_bytes: int
    perf_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """One table: `index` is its number in the model; shards are in the order of the sharding type.

    Shards on every rank are `Runs`.
    """

    index: int
    name: str
    sharding_type: str
    compute_kernel: str
    shards: Sequence[PlannedShard]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All tables in the model's order, and by rank: bytes of weights, of optimizer state, of both with buffers, and ms.

    `capacity_bytes` is what each rank has for embeddings. `tried` proposals were looked at; `fitting` of them fitted.
    `row_runs` is as `rows`, where shards that many ranks have alike are one run.
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
        """How many ranks."""
        return len(self.weight_bytes)

    @property
    def rows(self) -> tuple[PlanRow, ...]:
        """All rows, made anew each time: as many as there are shards."""
        return tuple(self.row_runs)

    def rows_for(self, replicas: Sequence[int]) -> tuple[PlanRow, ...]:
        """The rows of all shards, but of data_parallel tables only the copies on these ranks."""
        return tuple(_rows_for(self.row_runs, replicas))

    def table(self, name: str) -> PlannedTable:
        """The table of this name; KeyError if there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)


def planned_table(index: int, option: ShardingOption, tier: Callable[[Storage], int]) -> PlannedTable:
    """A placed option as a value; `tier` says which of a shard's bytes count."""
    runs = [(count, _planned_shard(shard, option, tier)) for count, shard in runs_of(option.shards)]
    whole = run_count(option.shards) == option.num_shards
    following = _next_copy if option.sharding_type == ShardingType.DATA_PARALLEL else _next_block
    return PlannedTable(
        index=index,
        name=option.name,
        sharding_type=str(option.sharding_type),
        compute_kernel=str(option.compute_kernel),
        shards=tuple(shard for _, shard in runs) if whole else Runs(runs, following),
    )


def _planned_shard(shard: Shard, option: ShardingOption, tier: Callable[[Storage], int]) -> PlannedShard:
    if shard.rank is None:
        raise ValueError(f"{shard} of table {option.name}: no rank; partition the proposal first")
    return PlannedShard(
        rank=shard.rank,
        row_offset=shard.offset[0],
        column_offset=shard.offset[1],
        rows=shard.size[0],
        columns=shard.size[1],
        storage_bytes=tier(known_storage(shard)),
        perf_ms=perf_ms(shard),
    )


def _next_copy(first: PlannedShard, index: int, row_offset: int | None = None) -> PlannedShard:
    """The same on the `index`-th rank after the first one's."""
    return PlannedShard(
        rank=first.rank + index,
        row_offset=first.row_offset if row_offset is None else row_offset,
        column_offset=first.column_offset,
        rows=first.rows,
        columns=first.columns,
        storage_bytes=first.storage_bytes,
        perf_ms=first.perf_ms,
    )


def _next_block(first: PlannedShard, index: int) -> PlannedShard:
    """The block of rows `index` blocks after the first."""
    return _next_copy(first, index, first.row_offset + index * first.rows)


def plan_rows(planned: PlannedTable, table: Table, batch_size: int, world_size: int) -> Iterator[Run[PlanRow]]:
    """The table's shards as rows of a trace; `batch_size` samples a rank."""
    ids = batch_size * table.ids_per_sample
    if planned.sharding_type != ShardingType.DATA_PARALLEL:  # a replica serves its own rank's samples only
        ids *= world_size
    by_row = planned.sharding_type in _SPLIT_BY_ROW
    number = 0
    for count, shard in runs_of(planned.shards):
        row = PlanRow(
            table=planned.name,
            sharding_type=planned.sharding_type,
            compute_kernel=planned.compute_kernel,
            shard=number,
            rank=shard.rank,
            row_offset=shard.row_offset,
            column_offset=shard.column_offset,
            rows=shard.rows,
            columns=shard.columns,
            storage_bytes=shard.storage_bytes,
            perf_ms=shard.perf_ms,
            ids_per_step=ids * shard.rows / table.rows if by_row else ids,
        )
        yield count, row
        number += count


def next_row(first: PlanRow, index: int) -> PlanRow:
    """The row of the shard `index` ranks after the first: a copy, or the next block of rows."""
    return PlanRow(
        table=first.table,
        sharding_type=first.sharding_type,
        compute_kernel=first.compute_kernel,
        shard=first.shard + index,
        rank=first.rank + index,
        row_offset=first.row_offset + (index * first.rows if first.sharding_type in _SPLIT_BY_ROW else 0),
        column_offset=first.column_offset,
        rows=first.rows,
        columns=first.columns,
        storage_bytes=first.storage_bytes,
        perf_ms=first.perf_ms,
        ids_per_step=first.ids_per_step,
    )


def _rows_for(row_runs: Runs[PlanRow], replicas: Sequence[int]) -> Iterator[PlanRow]:
    for count, first in row_runs.runs:
        is_copy = first.sharding_type == ShardingType.DATA_PARALLEL
        ranks = replicas if is_copy else range(first.rank, first.rank + count)
        yield from (next_row(first, rank - first.rank) for rank in ranks)


def by_rank(tables: Sequence[PlannedTable], world_size: int, value: Callable[[PlannedShard], int]) -> tuple[int, ...]:
    """On each rank the sum of what a shard counts."""
    sums = np.zeros(world_size, np.int64)
    for table in tables:
        for count, shard in runs_of(table.shards):
            sums[shard.rank : shard.rank + count] += value(shard)
    return tuple(sums.tolist())


def one_tier(storage: Storage) -> int:
    """A shard's bytes in the memory that its rank has: hbm on a GPU, ddr on a CPU."""
    return storage.hbm + storage.ddr
