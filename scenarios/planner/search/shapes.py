"""How a table is cut into shards: sizes and offsets by sharding type; what a shard costs is left to the estimators."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.planner.topology import Topology
from scenarios.planner.types import Shard, ShardingType
from scenarios.seam.run_length import KeptRuns

MIN_CW_DIM = 128
"""Columns of a shard below which TorchRec 1.8 does not cut by default."""

_COLUMN_ALIGNMENT = 4


def cut(
    sharding_type: str, rows: int, dim: int, topology: Topology, *, min_partition: int | None = None
) -> Sequence[Shard]:
    """Shards of a table [rows, dim] without costs or ranks; in data_parallel each is a full copy.

    A shard on every rank comes as `KeptRuns`, everything else as a list.

    Raises:
        ValueError: an unknown sharding type.
    """
    world, group = topology.world_size, topology.intra_group_size
    if sharding_type == ShardingType.DATA_PARALLEL:
        return KeptRuns([(world, Shard([rows, dim], [0, 0]))], _copy)
    if sharding_type == ShardingType.TABLE_WISE:
        return [Shard([rows, dim], [0, 0])]
    if sharding_type == ShardingType.ROW_WISE:
        return _blocks(rows, world, dim, 0)
    if sharding_type == ShardingType.TABLE_ROW_WISE:
        return list(_blocks(rows, group, dim, 0))
    width = column_width(dim, min_partition or MIN_CW_DIM)
    columns = range(0, dim, width)
    if sharding_type in (ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE):
        return [Shard([rows, width], [0, column]) for column in columns]
    if sharding_type == ShardingType.GRID_SHARD:
        return [shard for column in columns for shard in _blocks(rows, group, width, column)]
    raise ValueError(f"sharding type {sharding_type!r}: expected one of {', '.join(ShardingType)}")


def column_width(dim: int, min_partition: int) -> int:
    """The narrowest even cut of at least `min_partition` columns, a multiple of four; else the whole table."""
    for width in range(min_partition, dim):
        if dim % width == 0 and width % _COLUMN_ALIGNMENT == 0:
            return width
    return dim


def _blocks(rows: int, count: int, width: int, column: int) -> KeptRuns[Shard]:
    """`count` blocks of rows, all alike but the last ones, which may be shorter or empty."""
    block = -(-rows // count)
    whole, rest = divmod(rows, block) if block else (0, 0)
    shorter = 1 if rest else 0
    runs = [
        (whole, Shard([block, width], [0, column])),
        (shorter, Shard([rest, width], [rows - rest, column])),
        (count - whole - shorter, Shard([0, width], [rows, column])),
    ]
    return KeptRuns(runs, _next_block)


def _copy(first: Shard, index: int) -> Shard:
    """The replica on the `index`-th rank after the first one's."""
    rank = None if first.rank is None else first.rank + index
    return Shard([*first.size], [*first.offset], first.storage, first.perf, rank)


def _next_block(first: Shard, index: int) -> Shard:
    """The block of rows that comes `index` blocks after the first."""
    block = _copy(first, index)
    block.offset = [first.offset[0] + index * first.size[0], first.offset[1]]
    return block
