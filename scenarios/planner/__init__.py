"""Where the shards of embedding tables go: TorchRec's planner, under its names."""

from scenarios.planner.comms import BasicCommsBandwidths, CollectiveType, GeneralizedCommsBandwidth
from scenarios.planner.enumerator import EmbeddingEnumerator
from scenarios.planner.memory_balanced import MemoryBalancedPartitioner
from scenarios.planner.partitioner import GreedyPerfPartitioner
from scenarios.planner.perf_estimator import EmbeddingPerfEstimator
from scenarios.planner.plan_text import format_plan, format_proposal
from scenarios.planner.planner import EmbeddingShardingPlanner, Search
from scenarios.planner.proposers import GreedyProposer, GridSearchProposer, UniformProposer
from scenarios.planner.storage_estimator import EmbeddingStorageEstimator, PipelineType
from scenarios.planner.topology import CustomTopologyData, DeviceHardware, Topology
from scenarios.planner.types import (
    CacheParams,
    CacheStatistics,
    EmbeddingComputeKernel,
    MultiPassPrefetchConfig,
    ParameterConstraints,
    PartitionByType,
    Perf,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    ShardingType,
    SortBy,
    Storage,
    TensorShape,
)

__all__ = [
    "BasicCommsBandwidths",
    "CacheParams",
    "CacheStatistics",
    "CollectiveType",
    "CustomTopologyData",
    "DeviceHardware",
    "EmbeddingComputeKernel",
    "EmbeddingEnumerator",
    "EmbeddingPerfEstimator",
    "EmbeddingShardingPlanner",
    "EmbeddingStorageEstimator",
    "GeneralizedCommsBandwidth",
    "GreedyPerfPartitioner",
    "GreedyProposer",
    "GridSearchProposer",
    "MemoryBalancedPartitioner",
    "MultiPassPrefetchConfig",
    "ParameterConstraints",
    "PartitionByType",
    "Perf",
    "PipelineType",
    "PlannerError",
    "PlannerErrorType",
    "Search",
    "Shard",
    "ShardingOption",
    "ShardingType",
    "SortBy",
    "Storage",
    "TensorShape",
    "Topology",
    "UniformProposer",
    "format_plan",
    "format_proposal",
]
