"""The sharding types of embedding tables and their properties: for placing, exchanging, pricing, reporting tables."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn

# Names in scenario files, in the order in which messages list them.
ShardingType = Literal[
    "data_parallel",
    "table_wise",
    "row_wise",
    "table_row_wise",
    "column_wise",
    "table_column_wise",
    "grid_shard",
]

# Types that TorchRec 1.8's EmbeddingBagCollectionSharder considers on GPUs, in its order.
DEFAULT_TYPES: tuple[ShardingType, ...] = (
    *("data_parallel", "table_wise", "column_wise", "table_column_wise"),
    *("row_wise", "table_row_wise", "grid_shard"),
)
# Types by which TorchRec 1.8 shards an EmbeddingCollection.
SEQUENCE_TYPES: tuple[ShardingType, ...] = ("data_parallel", "table_wise", "row_wise", "column_wise")
# Those of them that exchange rows, optionally once for each distinct id.
DISTINCT_TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "column_wise")

WHERE_SHARDS_LIE = (
    "table_wise wants one rank, table_row_wise all of a host, grid_shard all of several, row_wise and data_parallel all"
    " ranks in order"
)


class PartitionByType(StrEnum):
    """The unit on which a group of shards is placed."""

    DEVICE = "device"
    HOST = "host"
    UNIFORM = "uniform"
    MULTI_HOST = "multi_host"


class ShardingKind(StrEnum):
    """A way to cut a table: TorchRec's ShardingType, with its properties."""

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID_SHARD = "grid_shard"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"sharding type {value!r}: expected one of {', '.join(cls)}")

    @property
    def partition_by(self) -> PartitionByType:
        """Unit on which the planner places shards."""
        return _CUTS[self].partition_by

    @property
    def rows_over(self) -> Literal["", "host", "all"]:
        """Ranks among which rows are cut: those of a "host", or "all"; "": rows are not cut."""
        return _CUTS[self].rows_over

    @property
    def cuts_columns(self) -> bool:
        """Whether a shard has only some of the columns."""
        return _CUTS[self].cuts_columns

    @property
    def is_on_all_ranks(self) -> bool:
        """Whether every rank has one shard, in rank order."""
        return self.partition_by is PartitionByType.UNIFORM

    @property
    def is_on_hosts(self) -> bool:
        """Whether the shards of a table, or of a run of columns, share a host."""
        return self.partition_by in (PartitionByType.HOST, PartitionByType.MULTI_HOST)

    @property
    def cuts_rows(self) -> bool:
        """Whether a shard has only some of the rows, so that each id travels to the rank of its row."""
        return self.rows_over != ""

    @property
    def is_copied(self) -> bool:
        """Whether every rank holds the whole table: ids stay local, and gradients are all-reduced."""
        return self.is_on_all_ranks and not self.cuts_rows

    @property
    def is_whole(self) -> bool:
        """Whether a single rank holds the table."""
        return self.partition_by is PartitionByType.DEVICE and not self.cuts_columns

    @property
    def is_usual(self) -> bool:
        """Whether TorchRec's planner considers it for a table without constraints."""
        return self.partition_by is not PartitionByType.MULTI_HOST

    @property
    def reach(self) -> Literal["GPU", "host", "cluster"]:
        """Memory into which a table has to fit."""
        if self.partition_by is PartitionByType.HOST:
            return "host"
        return "GPU" if self.is_copied or self.is_whole else "cluster"

    def row_blocks(self, ranks: int, host_ranks: int) -> int:
        """Return the number of blocks into which rows are cut."""
        return {"": 1, "host": host_ranks, "all": ranks}[self.rows_over]

    def owner_ranks(self, ranks: int, host_ranks: int) -> int:
        """Return how many consecutive ranks hold a run of columns together, each a block of rows or a copy."""
        return ranks if self.is_copied else self.row_blocks(ranks, host_ranks)


class _Cut(NamedTuple):
    partition_by: PartitionByType
    rows_over: Literal["", "host", "all"] = ""
    cuts_columns: bool = False


_CUTS = {
    ShardingKind.DATA_PARALLEL: _Cut(PartitionByType.UNIFORM),
    ShardingKind.TABLE_WISE: _Cut(PartitionByType.DEVICE),
    ShardingKind.COLUMN_WISE: _Cut(PartitionByType.DEVICE, cuts_columns=True),
    ShardingKind.ROW_WISE: _Cut(PartitionByType.UNIFORM, rows_over="all"),
    ShardingKind.TABLE_ROW_WISE: _Cut(PartitionByType.HOST, rows_over="host"),
    ShardingKind.TABLE_COLUMN_WISE: _Cut(PartitionByType.HOST, cuts_columns=True),
    ShardingKind.GRID_SHARD: _Cut(PartitionByType.MULTI_HOST, rows_over="host", cuts_columns=True),
}

# Names in the plans of run folders.
COPIED_TYPES = tuple(kind.value for kind in ShardingKind if kind.is_copied)


@lru_cache
def widest_reach(types: tuple[str, ...]) -> Literal["GPU", "host", "cluster"]:
    """Return the widest place over which one of these types may spread a table."""
    return min((ShardingKind(kind).reach for kind in types), key=("cluster", "host", "GPU").index)


@lru_cache
def may_cut_rows(types: tuple[str, ...]) -> bool:
    """Return whether one of these types cuts a table's rows."""
    return any(ShardingKind(kind).cuts_rows for kind in types)
