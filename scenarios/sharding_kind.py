"""The sharding types of embedding tables: what each is, once, for all who place, exchange, price or report tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple, NoReturn

# As scenario files write them, in the order in which sentences list them.
ShardingType = Literal[
    "data_parallel",
    "table_wise",
    "row_wise",
    "table_row_wise",
    "column_wise",
    "table_column_wise",
    "grid_shard",
]

# What TorchRec 1.8's EmbeddingBagCollectionSharder may choose from on GPUs, in its order.
DEFAULT_TYPES: tuple[ShardingType, ...] = (
    *("data_parallel", "table_wise", "column_wise", "table_column_wise"),
    *("row_wise", "table_row_wise", "grid_shard"),
)
# What TorchRec 1.8 shards an EmbeddingCollection by.
SEQUENCE_TYPES: tuple[ShardingType, ...] = ("data_parallel", "table_wise", "row_wise", "column_wise")
# Those of them whose rows travel: once for each distinct id, where that is wanted.
DISTINCT_TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "column_wise")

WHERE_SHARDS_LIE = (
    "table_wise wants one rank, table_row_wise all of a host, grid_shard all of several, row_wise and data_parallel all"
    " ranks in order"
)


class PartitionByType(StrEnum):
    """What a group of shards is placed on."""

    DEVICE = "device"
    HOST = "host"
    UNIFORM = "uniform"
    MULTI_HOST = "multi_host"


class ShardingKind(StrEnum):
    """How a table is cut: TorchRec's ShardingType, with what follows from it."""

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
        """What the planner places its shards on."""
        return _CUTS[self].partition_by

    @property
    def rows_over(self) -> Literal["", "host", "all"]:
        """Ranks whose shards are blocks of rows: those of a "host", or "all"; "": rows are not cut."""
        return _CUTS[self].rows_over

    @property
    def cuts_columns(self) -> bool:
        """Whether a shard has some of the columns."""
        return _CUTS[self].cuts_columns

    @property
    def is_on_all_ranks(self) -> bool:
        """Whether every rank has one shard, in order."""
        return self.partition_by is PartitionByType.UNIFORM

    @property
    def is_on_hosts(self) -> bool:
        """Whether shards are kept together on a host."""
        return self.partition_by in (PartitionByType.HOST, PartitionByType.MULTI_HOST)

    @property
    def cuts_rows(self) -> bool:
        """Whether a shard has some of the rows: an id decides to which rank it travels."""
        return self.rows_over != ""

    @property
    def is_copied(self) -> bool:
        """Whether every rank holds the table whole: ids stay, and gradients are all-reduced."""
        return self.is_on_all_ranks and not self.cuts_rows

    @property
    def is_whole(self) -> bool:
        """Whether one rank alone holds the table."""
        return self.partition_by is PartitionByType.DEVICE and not self.cuts_columns

    @property
    def is_usual(self) -> bool:
        """Whether TorchRec's planner looks at it for a table whose constraints name none."""
        return self.partition_by is not PartitionByType.MULTI_HOST

    @property
    def reach(self) -> Literal["GPU", "host", "cluster"]:
        """Where a table has to fit."""
        if self.partition_by is PartitionByType.HOST:
            return "host"
        return "GPU" if self.is_copied or self.is_whole else "cluster"

    def row_blocks(self, ranks: int, host_ranks: int) -> int:
        """Return into how many blocks rows are cut."""
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

# As plans of run folders have them.
COPIED_TYPES = tuple(kind.value for kind in ShardingKind if kind.is_copied)
