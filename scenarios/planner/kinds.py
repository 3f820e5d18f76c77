"""The planner's closed vocabularies, as in TorchRec 1.8: sharding types, kernels, kinds of error, releases."""

from __future__ import annotations

from enum import StrEnum

RELEASE = "1.8.0"
"""The TorchRec release whose behaviour is matched unless another is asked for (1.9.2 gives the same results)."""

RELEASES = ("1.8.0", "0.2.0")


class ShardingType(StrEnum):
    """How a table is cut."""

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID_SHARD = "grid_shard"


class PartitionByType(StrEnum):
    """What a group of shards is placed on."""

    DEVICE = "device"
    HOST = "host"
    UNIFORM = "uniform"
    MULTI_HOST = "multi_host"


class ComputeKernel(StrEnum):
    """Which lookup kernel serves a shard, and so in which memory its rows live."""

    DENSE = "dense"
    FUSED = "fused"
    FUSED_UVM = "fused_uvm"
    FUSED_UVM_CACHING = "fused_uvm_caching"
    QUANT = "quant"
    QUANT_UVM = "quant_uvm"
    QUANT_UVM_CACHING = "quant_uvm_caching"
    KEY_VALUE = "key_value"
    CUSTOMIZED_KERNEL = "customized_kernel"
    SSD_VIRTUAL_TABLE = "ssd_virtual_table"
    DRAM_VIRTUAL_TABLE = "dram_virtual_table"
    DRAM_SSD_VIRTUAL_TABLE = "dram_ssd_virtual_table"
    FUSED_TRITON = "fused_triton"


EmbeddingComputeKernel = ComputeKernel
"""TorchRec's name for it."""


class SortBy(StrEnum):
    """Which groups the partitioner places first: the largest ones, or the slowest ones."""

    STORAGE = "storage"
    PERF = "perf"


PARTITION_BY = {
    ShardingType.DATA_PARALLEL: PartitionByType.UNIFORM,
    ShardingType.ROW_WISE: PartitionByType.UNIFORM,
    ShardingType.TABLE_WISE: PartitionByType.DEVICE,
    ShardingType.COLUMN_WISE: PartitionByType.DEVICE,
    ShardingType.TABLE_ROW_WISE: PartitionByType.HOST,
    ShardingType.TABLE_COLUMN_WISE: PartitionByType.HOST,
    ShardingType.GRID_SHARD: PartitionByType.MULTI_HOST,
}


class PlannerErrorType(StrEnum):
    """Which part of planning failed."""

    INSUFFICIENT_STORAGE = "insufficient_storage"
    STRICT_CONSTRAINTS = "strict_constraints"
    PARTITION = "partition"
    OTHER = "other"
