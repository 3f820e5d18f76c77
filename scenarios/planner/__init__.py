"""TorchRec's planner, under its names: places the shards of embedding tables on ranks."""

from scenarios.compute_kernel import ComputeKernel as EmbeddingComputeKernel  # TorchRec's name for it
from scenarios.planner.estimators.perf import EmbeddingPerfEstimator
from scenarios.planner.estimators.storage import EmbeddingStorageEstimator, PipelineType
from scenarios.planner.partition.partitioners import GreedyPerfPartitioner, MemoryBalancedPartitioner
from scenarios.planner.plan_text import format_plan, format_proposal
from scenarios.planner.planner import EmbeddingShardingPlanner, Search
from scenarios.planner.search.enumerator import EmbeddingEnumerator
from scenarios.planner.search.proposers import GreedyProposer, GridSearchProposer, UniformProposer
from scenarios.planner.topology import (
    BasicCommsBandwidths,
    CollectiveType,
    CustomTopologyData,
    DeviceHardware,
    GeneralizedCommsBandwidth,
    Topology,
)
from scenarios.planner.types import (
    CacheParams,
    CacheStatistics,
    MultiPassPrefetchConfig,
    ParameterConstraints,
    Perf,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    SortBy,
    Storage,
    TensorShape,
)
from scenarios.sharding_kind import PartitionByType
from scenarios.sharding_kind import ShardingKind as ShardingType  # TorchRec's name for it

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
