"""Tables and the places of their shards, checked against their sharding types.

Shard shapes equal TorchRec 1.8.0's: rows are cut into blocks of rows / ranks, rounded up; the last may be empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from scenarios.run_length import Run, Runs, runs_of
from scenarios.seam.trace import PlanRow
from scenarios.sharding_kind import ShardingKind
from scenarios.sparse.input_dist import block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShard:
    """One shard: its rank, and its rows and columns."""

    rank: int
    row_offset: int
    rows: int
    column_offset: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedTable:
    """A table and its shards, in the planner's order; without `features` it has one of its own name.

    `shards` may be `Runs`, where the shards of one run are on consecutive ranks.
    """

    name: str
    rows: int
    dim: int
    sharding_type: str
    shards: Sequence[TableShard]
    has_feature_processor: bool = False
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Columns of a table, with all its rows, for one of its features: the unit that is sent as one key."""

    table: str
    feature: str
    rows: int
    column_offset: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout of all tables of one sharding type: `pieces[owner]`, where an owner is `span` consecutive ranks.

    An owner's ranks cut each piece's rows into `buckets` blocks, or all hold the whole piece (`buckets` is 1). Columns
    that several features read are consecutive pieces, one per feature; so are the parts of a table cut by columns.
    """

    sharding_type: ShardingKind
    span: int
    buckets: int
    pieces: tuple[tuple[Piece, ...], ...]
    has_feature_processor: bool

    @property
    def sending_order(self) -> tuple[Piece, ...]:
        """All pieces, owner by owner, in sending order."""
        return tuple(piece for owned in self.pieces for piece in owned)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of columns of each owner."""
        return tuple(sum(piece.columns for piece in owned) for owned in self.pieces)


def tables_of_plan(plan: Iterable[PlanRow], feature_processors: Sequence[str] = ()) -> tuple[ShardedTable, ...]:
    """Return the tables that a plan describes, in the order of their first rows; `feature_processors` names tables.

    If the plan is `Runs` (`Plan.row_runs`), where no run spans tables, so are the shards.
    """
    found: dict[str, list[Run[PlanRow]]] = {}
    for run in runs_of(plan if isinstance(plan, Sequence) else tuple(plan)):
        found.setdefault(run[1].table, []).append(run)
    return tuple(
        ShardedTable(
            name=name,
            rows=max(_end(run) for run in runs),
            dim=max(row.column_offset + row.columns for _, row in runs),
            sharding_type=runs[0][1].sharding_type,
            shards=_shards(sorted(runs, key=lambda run: run[1].shard)),
            has_feature_processor=name in feature_processors,
        )
        for name, runs in found.items()
    )


def layouts(tables: Sequence[ShardedTable], world_size: int, local_world_size: int) -> tuple[Layout, ...]:
    """Return one layout per sharding type, in the order in which the types first occur.

    Raises:
        ValueError: shards are not laid out as their sharding type requires.
    """
    types = dict.fromkeys(table.sharding_type for table in tables)
    return tuple(
        _layout(
            ShardingKind(kind), [table for table in tables if table.sharding_type == kind], world_size, local_world_size
        )
        for kind in map(ShardingKind, types)
    )


def _end(run: Run[PlanRow]) -> int:
    """Return the row at which the run's last shard ends."""
    count, row = run
    return row.row_offset + row.rows * (1 if row.sharding_kind.is_copied else count)


def _shards(runs: Sequence[Run[PlanRow]]) -> Sequence[TableShard]:
    if all(count == 1 for count, _ in runs):
        return tuple(_shard(row) for _, row in runs)
    following = _next_copy if runs[0][1].sharding_kind.is_copied else _next_block
    return Runs(((count, _shard(row)) for count, row in runs), following)


def _next_copy(first: TableShard, index: int) -> TableShard:
    """Return a copy of the shard for rank `first.rank + index`."""
    return replace(first, rank=first.rank + index)


def _next_block(first: TableShard, index: int) -> TableShard:
    """Return the block of rows `index` blocks after the first."""
    return replace(first, rank=first.rank + index, row_offset=first.row_offset + index * first.rows)


def _ends(shards: Sequence[TableShard]) -> Iterator[tuple[int, TableShard]]:
    """Yield number and shard of each run's first and last shard; what holds for both holds for those between."""
    if not isinstance(shards, Runs):
        yield from enumerate(shards)
        return
    number = 0
    for count, first in shards.runs:
        yield number, first
        if count > 1:
            yield number + count - 1, shards[number + count - 1]
        number += count


def _shard(row: PlanRow) -> TableShard:
    return TableShard(
        rank=row.rank,
        row_offset=row.row_offset,
        rows=row.rows,
        column_offset=row.column_offset,
        columns=row.columns,
    )


def _layout(kind: ShardingKind, tables: Sequence[ShardedTable], world_size: int, local: int) -> Layout:
    span, buckets = kind.owner_ranks(world_size, local), kind.row_blocks(world_size, local)
    owned: list[list[Piece]] = [[] for _ in range(world_size // span)]
    for table in tables:
        _check_ranks(table, world_size)
        for start in range(0, len(table.shards), span):
            owner, pieces = _pieces(table, table.shards[start : start + span], span, buckets)
            owned[owner] += pieces
        _check_columns(table, table.shards[::span])
    return Layout(
        sharding_type=kind,
        span=span,
        buckets=buckets,
        pieces=tuple(tuple(pieces) for pieces in owned),
        has_feature_processor=any(table.has_feature_processor for table in tables),
    )


def _pieces(table: ShardedTable, shards: Sequence[TableShard], span: int, buckets: int) -> tuple[int, list[Piece]]:
    """Return the owner of at most `span` shards, and for each feature the piece that they form.

    Shards must be one per rank of the owner, in order.
    """
    first = shards[0]
    owner = first.rank // span
    block = block_size(table.rows, buckets)
    missing = [(len(shards), None)] if len(shards) < span else []
    for index, shard in chain(_ends(shards), missing):
        rank = owner * span + index
        start = min(index * block, table.rows) if buckets > 1 else 0
        end = min(start + block, table.rows)
        wanted = (rank, start, end, first.column_offset, first.columns)
        if shard is None or _place(shard, table.rows) != wanted:
            raise ValueError(
                f"table {table.name!r} ({table.sharding_type}): {_describe(shard)},"
                f" expected rows {start} to {end} on rank {rank}"
            )
    columns = first.column_offset, first.columns
    return owner, [
        Piece(table=table.name, feature=feature, rows=table.rows, column_offset=columns[0], columns=columns[1])
        for feature in table.features or (table.name,)
    ]


def _place(shard: TableShard, rows: int) -> tuple[int, int, int, int, int]:
    """Return a shard's rank, rows and columns; an empty shard, of any offset, counts as lying at the table's end."""
    start = shard.row_offset if shard.rows else rows
    return shard.rank, start, start + shard.rows, shard.column_offset, shard.columns


def _describe(shard: TableShard | None) -> str:
    if shard is None:
        return "a shard is missing"
    return f"rows {shard.row_offset} to {shard.row_offset + shard.rows} on rank {shard.rank}"


def _check_ranks(table: ShardedTable, world_size: int) -> None:
    for _, shard in _ends(table.shards):
        if not 0 <= shard.rank < world_size:
            raise ValueError(
                f"table {table.name!r} ({table.sharding_type}): a shard on rank {shard.rank},"
                f" expected ranks 0 to {world_size - 1}"
            )


def _check_columns(table: ShardedTable, firsts: Sequence[TableShard]) -> None:
    """Check that the pieces' columns are contiguous and cover the table."""
    runs = sorted((shard.column_offset, shard.columns) for shard in firsts)
    ends = [0, *(offset + columns for offset, columns in runs)]
    if [offset for offset, _ in runs] + [table.dim] != ends:
        raise ValueError(
            f"table {table.name!r} ({table.sharding_type}): its shards hold columns"
            f" {', '.join(f'{offset} to {offset + columns}' for offset, columns in runs) or 'none'},"
            f" expected each of 0 to {table.dim} once"
        )
