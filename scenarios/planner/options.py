"""The planner's input from a scenario: its cluster's topology, and the sharding options of each table."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.compute_kernel import COPIES_KERNEL, ComputeKernel
from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Recommender, Scenario, Table
from scenarios.planner.search.enumerator import EmbeddingEnumerator
from scenarios.planner.topology import HBM_TO_DDR_MEM_BW, Topology
from scenarios.planner.types import (
    CacheParams,
    ParameterConstraints,
    ShardingOption,
    TensorShape,
)
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.sharding_kind import ShardingKind

_MODULE = "model.tables"


def topology_of(scenario: Scenario) -> Topology:
    """Return the planner's view of a cluster: bandwidths of one rank in bytes/ms, and its memory for embeddings.

    If there is replication, the topology is that of one sharding group, whose nodes count as hosts, as in TorchRec's
    planner. A CPU rank's memory counts as ddr. Shared NICs and bridges are divided among the GPUs that share them.
    """
    cluster = scenario.cluster
    gpu = cluster.host.gpu
    memory_bytes_per_ms = gpu.memory_bytes_per_s / 1000
    inside = cluster.host.shared_gpu_bytes_per_s / 1000
    to_host = cluster.host.shared_memory_bytes_per_s
    return Topology(
        scenario.sharding_ranks,
        gpu.kind,
        hbm_cap=capacity_bytes(scenario),
        ddr_cap=host_capacity_bytes(scenario) if gpu.device.has_own_memory else capacity_bytes(scenario),
        local_world_size=scenario.sharding_host_ranks,
        hbm_mem_bw=memory_bytes_per_ms,
        ddr_mem_bw=memory_bytes_per_ms,
        hbm_to_ddr_mem_bw=HBM_TO_DDR_MEM_BW if to_host is None else to_host / 1000,
        intra_host_bw=inside,
        # The estimator prices a replica's all-reduce by this rate even on a single host.
        inter_host_bw=_network_bytes_per_s(cluster) / 1000 if cluster.hosts > 1 else inside,
    )


def capacity_bytes(scenario: Scenario) -> int:
    """Return the bytes of one rank's memory that embeddings may take."""
    return int(scenario.cluster.host.gpu.memory_bytes * (1 - Recommender.of(scenario.workload).planner.reserved_share))


def host_capacity_bytes(scenario: Scenario) -> int:
    """Return one rank's share of its host's memory, in bytes."""
    return scenario.cluster.host.memory_bytes // scenario.cluster.host.gpus


def _network_bytes_per_s(cluster: Cluster) -> float:
    """Return one GPU's rate out of its host while all GPUs use the network, in bytes/s of payload."""
    nics, network = cluster.host.nics, cluster.network
    rate = nics.link.bytes_per_s * cluster.payload_share
    if nics.per == "host":
        rate *= min(1.0, nics.count / cluster.host.gpus)
    crosses = cluster.hosts > (network.hosts_per_leaf or cluster.hosts)
    return rate / network.oversubscription if crosses else rate


class _TableSharder:
    """A sharder with the sharding types that a scenario allows one table.

    Replicas use the dense kernel, so that tables in host memory have none.
    """

    module_type = Table

    def __init__(self, table: Table, kernel: ComputeKernel) -> None:
        self._table, self._kernel = table, kernel

    def shardable_parameters(self, module: Table) -> dict[str, TensorShape]:
        return {module.name: TensorShape((module.rows, module.dim))}

    def sharding_types(self, compute_device_type: str) -> Sequence[str]:
        return self._table.sharding

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> Sequence[str]:
        if not ShardingKind(sharding_type).is_copied:
            return [self._kernel]
        return [] if self._kernel.is_in_host else [COPIES_KERNEL]


def options_of(table: Table, scenario: Scenario, topology: Topology) -> list[ShardingOption]:
    """Return an option for each sharding type that the table may take, with perf and storage of its shards."""
    workload = Recommender.of(scenario.workload)
    model = workload.model
    kernel = scenario.kernel_of(table)
    cache = None
    if kernel.is_cached:
        prefetches = workload.pipeline.kind == "prefetch_sparse_dist"
        cache = CacheParams(load_factor=table.cache_load_factor, prefetch_pipeline=prefetches)
    wished = ParameterConstraints(
        cache_params=cache,
        sharding_types=table.sharding,
        min_partition=table.min_partition,
        pooling_factors=[feature.ids_per_sample for feature in table.by_feature],
    )
    enumerator = EmbeddingEnumerator(topology, scenario.run.batch_size, {table.name: wished})
    # A shape in place of a tensor: the planner reads sizes only, and a table may exceed this machine's memory.
    tensor = TensorShape((table.rows, table.dim), ELEMENT_BYTES[model.embedding_dtype], *model.optimizer.planned_bytes)
    return enumerator.of_table(table.name, tensor, (_MODULE, table), _TableSharder(table, kernel))
