"""A finished plan as frozen values: where every shard is, and what each rank holds; how it was found is planner's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scenarios.planner.types import ShardingOption, ShardingType, Storage, known_storage, perf_ms
from scenarios.scenario import Table
from scenarios.trace import PlanRow

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
    """One table: `index` is its number in the model; shards are in the order of the sharding type."""

    index: int
    name: str
    sharding_type: str
    compute_kernel: str
    shards: tuple[PlannedShard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All tables in the model's order, and by rank: bytes of weights, of optimizer state, of both with buffers, and ms.

    `capacity_bytes` is what each rank has for embeddings. `tried` proposals were looked at; `fitting` of them fitted.
    """

    tables: tuple[PlannedTable, ...]
    rows: tuple[PlanRow, ...]
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

    def table(self, name: str) -> PlannedTable:
        """The table of this name; KeyError if there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)


def planned_table(index: int, option: ShardingOption, tier: Callable[[Storage], int]) -> PlannedTable:
    """A placed option as a value; `tier` says which of a shard's bytes count."""
    shards = []
    for shard in option.shards:
        if shard.rank is None:
            raise ValueError(f"{shard} of table {option.name}: no rank; partition the proposal first")
        shards.append(
            PlannedShard(
                rank=shard.rank,
                row_offset=shard.offset[0],
                column_offset=shard.offset[1],
                rows=shard.size[0],
                columns=shard.size[1],
                storage_bytes=tier(known_storage(shard)),
                perf_ms=perf_ms(shard),
            )
        )
    return PlannedTable(
        index=index,
        name=option.name,
        sharding_type=str(option.sharding_type),
        compute_kernel=str(option.compute_kernel),
        shards=tuple(shards),
    )


def plan_rows(planned: PlannedTable, table: Table, batch_size: int, world_size: int) -> list[PlanRow]:
    """The table's shards as rows of a trace; `batch_size` samples a rank."""
    ids = batch_size * table.ids_per_sample
    if planned.sharding_type != ShardingType.DATA_PARALLEL:  # a replica serves its own rank's samples only
        ids *= world_size
    by_row = planned.sharding_type in _SPLIT_BY_ROW
    return [
        PlanRow(
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
        for number, shard in enumerate(planned.shards)
    ]


def held_bytes(tables: Sequence[PlannedTable], world_size: int, element_bytes: int) -> tuple[int, ...]:
    """Bytes of weights on each rank."""
    held = [0] * world_size
    for table in tables:
        for shard in table.shards:
            held[shard.rank] += shard.rows * shard.columns * element_bytes
    return tuple(held)


def state_bytes(tables: Sequence[PlannedTable], world_size: int, row_bytes: int) -> tuple[int, ...]:
    """Bytes of optimizer state on each rank: `row_bytes` for each row of each shard."""
    held = [0] * world_size
    for table in tables:
        for shard in table.shards:
            held[shard.rank] += shard.rows * row_bytes
    return tuple(held)


def one_tier(storage: Storage) -> int:
    """A shard's bytes in the memory that its rank has: hbm on a GPU, ddr on a CPU."""
    return storage.hbm + storage.ddr
