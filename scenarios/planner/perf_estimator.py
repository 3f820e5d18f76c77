"""What a shard costs in ms by TorchRec 1.8's closed formulas; latency, overlap and contention are left to sim.

Only ratios between options matter to the planner. Times measured or simulated are never put in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from scenarios.planner.topology import Topology
from scenarios.planner.types import CacheParams, ComputeKernel, ParameterConstraints, Perf, ShardingOption, ShardingType

BIGINT_BYTES = 8
CACHE_LOAD_FACTOR = 0.2
FULL_BLOCK_DIM = 32  # columns that a lookup kernel reads at least
UVM_SLOWDOWN = 10
BATCHED_COPY_FACTOR = 2.455  # of the rows' gradients, against memory bandwidth
DP_COPY_FACTOR = 9.22

_ROW_BLOCKS = (ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD)


@dataclass(frozen=True, slots=True)
class Load:
    """What a step asks of one table: ids in and rows out on one rank, bytes of an element, and how it is looked up."""

    ids: float
    rows_out: float
    element_bytes: int
    is_pooled: bool
    is_weighted: bool
    cache: CacheParams | None


def load_of(option: ShardingOption, constraints: ParameterConstraints | None) -> Load:
    """The load of an option: `input_lengths` ids a sample in each feature, as often as it is pooled, of one batch.

    A pooled bag gives one row, and a feature with less than one id a sample gives a row as often as it has an id.
    """
    wished = constraints or ParameterConstraints()
    poolings = wished.num_poolings or [1.0] * option.num_inputs
    batches = wished.batch_sizes or [option.batch_size] * option.num_inputs
    pooled = option.is_pooled is not False
    triples = list(zip(option.input_lengths, poolings, batches, strict=True))
    ids = sum(length * pooling * batch for length, pooling, batch in triples)
    rows_out = sum(min(1.0, length) * pooling * batch for length, pooling, batch in triples) if pooled else ids
    return Load(
        ids=ids,
        rows_out=rows_out,
        element_bytes=option.tensor.element_size(),
        is_pooled=pooled,
        is_weighted=wished.is_weighted,
        cache=option.cache_params or wished.cache_params,
    )


def volumes(sharding_type: str, load: Load, topology: Topology) -> tuple[float, float]:
    """Ids that a shard's rank gets, and rows that it gives, in one step."""
    world, group = topology.world_size, topology.intra_group_size
    if sharding_type == ShardingType.DATA_PARALLEL:
        return load.ids, load.rows_out
    if sharding_type == ShardingType.ROW_WISE:
        ids = load.ids / world * world
    elif sharding_type in _ROW_BLOCKS:
        ids = load.ids * world / group
    else:
        return load.ids * world, load.rows_out * world
    return ids, load.rows_out * world if load.is_pooled else ids


class EmbeddingPerfEstimator:
    """Writes `perf` into the shards of options. `constraints` by table name."""

    def __init__(self, topology: Topology, constraints: Mapping[str, ParameterConstraints] | None = None) -> None:
        self._topology = topology
        self._constraints = constraints or {}

    def estimate(self, sharding_options: list[ShardingOption]) -> None:
        """Perf of every shard, in ms."""
        for option in sharding_options:
            load = load_of(option, self._constraints.get(option.name))
            priced: dict[int, Perf] = {}  # by width: rows matter to a replicated table only, where all are alike
            for shard in option.shards:
                rows, dim = shard.size
                if dim not in priced:
                    priced[dim] = self._perf(option, load, rows, dim)
                shard.perf = priced[dim]

    def _perf(self, option: ShardingOption, load: Load, rows: int, dim: int) -> Perf:
        topology, kind = self._topology, option.sharding_type
        bandwidth = kernel_bandwidth(option.compute_kernel, load.cache, topology)
        ids, rows_out = volumes(kind, load, topology)
        forward = _forward(kind, load, ids, rows_out, dim) / bandwidth
        backward = forward * topology.bwd_compute_multiplier
        if load.is_weighted:
            backward += forward * topology.weighted_feature_bwd_compute_multiplier
        forward_comms, backward_comms, input_dist = self._comms(kind, load, rows, dim, bandwidth)
        prefetch = self._prefetch(load, dim)
        return Perf(forward, forward_comms, backward, backward_comms, input_dist, prefetch)

    def _comms(self, kind: str, load: Load, rows: int, dim: int, bandwidth: float) -> tuple[float, float, float]:
        """Forward, backward and input exchange in ms."""
        topology, row_bytes = self._topology, dim * load.element_bytes
        world, group = topology.world_size, topology.intra_group_size
        if kind == ShardingType.DATA_PARALLEL:
            return 0.0, self._replicated(rows * row_bytes, bandwidth), 0.0
        link = topology.inter_host_bw if world > group else topology.intra_host_bw
        input_dist = ceil(load.ids * world * BIGINT_BYTES) / link
        out_bytes = volumes(kind, load, topology)[1] * row_bytes
        if kind in _ROW_BLOCKS:
            forward = out_bytes / topology.intra_host_bw
            if world > group:
                forward += load.rows_out * (world / group) * row_bytes / topology.inter_host_bw
        else:
            forward = out_bytes / link
        copies = kind in _ROW_BLOCKS or kind == ShardingType.ROW_WISE
        return forward, forward + (out_bytes * BATCHED_COPY_FACTOR / bandwidth if copies else 0.0), input_dist

    def _replicated(self, table_bytes: int, bandwidth: float) -> float:
        """The all-reduce of a replicated table's gradient, in ms."""
        topology = self._topology
        world, group = topology.world_size, topology.intra_group_size
        hosts = min(world / group, 2)
        reduce = table_bytes * (2 * hosts - 1) / hosts / (topology.inter_host_bw * group)
        if world > 2 * group:
            reduce *= 2
        return reduce + table_bytes * DP_COPY_FACTOR / bandwidth

    def _prefetch(self, load: Load, dim: int) -> float:
        """Fetching the rows that the cache misses, in ms; 0 where nothing is known of the accesses."""
        cache = load.cache
        if cache is None or cache.stats is None:
            return 0.0
        misses = cache.stats.expected_miss_rate(load_factor(cache)) * cache.stats.expected_lookups
        return misses * dim * load.element_bytes / self._topology.hbm_to_ddr_mem_bw


def load_factor(cache: CacheParams | None) -> float:
    """The share of a table's rows that its cache holds."""
    return CACHE_LOAD_FACTOR if cache is None or cache.load_factor is None else cache.load_factor


def kernel_bandwidth(compute_kernel: str, cache: CacheParams | None, topology: Topology) -> float:
    """Bytes/ms at which a kernel reads rows.

    Raises:
        ValueError: there is no such kernel on this device.
    """
    hbm, ddr, link = topology.hbm_mem_bw, topology.ddr_mem_bw, topology.hbm_to_ddr_mem_bw
    share = load_factor(cache)
    rates: dict[tuple[str, str], float] = {
        ("cuda", ComputeKernel.DENSE): 0.5 * hbm,
        ("cuda", ComputeKernel.FUSED): hbm,
        ("cuda", ComputeKernel.FUSED_UVM): link / UVM_SLOWDOWN,
        ("cuda", ComputeKernel.FUSED_UVM_CACHING): (share * hbm + (1 - share) * link) / UVM_SLOWDOWN,
        ("cpu", ComputeKernel.DENSE): 0.5 * ddr,
        ("cpu", ComputeKernel.FUSED): ddr,
    }
    key = (topology.compute_device, compute_kernel)
    if key not in rates:
        raise ValueError(f"compute kernel {compute_kernel!r} on {topology.compute_device!r} has no known bandwidth")
    return rates[key]


def _forward(kind: str, load: Load, ids: float, rows_out: float, dim: int) -> float:
    """Bytes that a forward lookup moves; whole narrow rows cost more than their bytes."""
    read = ceil(ids * BIGINT_BYTES) * (2 if load.is_weighted else 1)
    sliced = kind in (ShardingType.DATA_PARALLEL, ShardingType.ROW_WISE, *_ROW_BLOCKS)
    lookup_dim = dim if sliced else max(dim, FULL_BLOCK_DIM)
    penalty = 1.0 if sliced or dim >= 128 else 1.15 if dim >= 64 else 1.75
    return (read + ids * lookup_dim * load.element_bytes + rows_out * dim * load.element_bytes) * penalty
