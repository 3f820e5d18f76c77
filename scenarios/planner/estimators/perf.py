"""What a shard costs in ms by TorchRec 1.8's closed formulas; no latency, overlap or contention.

Only ratios between options matter to the planner. Times measured or simulated are never put in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from scenarios.compute_kernel import ComputeKernel
from scenarios.planner.topology import CollectiveType, Topology
from scenarios.planner.types import CacheParams, ParameterConstraints, Perf, ShardingOption
from scenarios.run_length import runs_of
from scenarios.sharding_kind import ShardingKind

BIGINT_BYTES = 8
CACHE_LOAD_FACTOR = 0.2
FULL_BLOCK_DIM = 32  # columns that a lookup kernel reads at least
UVM_SLOWDOWN = 10
BATCHED_COPY_FACTOR = 2.455  # of the rows' gradients, against memory bandwidth
DP_COPY_FACTOR = 9.22
WEIGHTED_KERNEL_FACTOR = 1.1

_FORWARD, _BACKWARD = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER


@dataclass(frozen=True, slots=True)
class TableLoad:
    """What a step asks of one table: ids in and rows out on one rank, bytes of an element, and how it is looked up."""

    ids: float
    rows_out: float
    element_bytes: int
    is_pooled: bool
    is_weighted: bool
    cache: CacheParams | None


def load_of(option: ShardingOption, constraints: ParameterConstraints | None) -> TableLoad:
    """The load of an option: `input_lengths` ids a sample in each feature, as often as it is pooled, of one batch.

    A pooled bag gives one row, and a feature with less than one id a sample gives a row as often as it has an id.
    """
    wished = constraints or ParameterConstraints()
    poolings = wished.num_poolings or option.num_poolings or [1.0] * option.num_inputs
    batches = wished.batch_sizes or [option.batch_size] * option.num_inputs
    pooled = option.is_pooled is not False
    triples = list(zip(option.input_lengths, poolings, batches, strict=True))
    ids = sum(length * pooling * batch for length, pooling, batch in triples)
    rows_out = sum(min(1.0, length) * pooling * batch for length, pooling, batch in triples) if pooled else ids
    return TableLoad(
        ids=ids,
        rows_out=rows_out,
        element_bytes=option.tensor.element_size(),
        is_pooled=pooled,
        is_weighted=_is_weighted(option.module[1], wished),
        cache=option.cache_params or wished.cache_params,
    )


def _is_weighted(module: object, wished: ParameterConstraints) -> bool:
    """What the module says (TorchRec's do, by a method or an attribute), else what the constraints say."""
    said = getattr(module, "is_weighted", wished.is_weighted)
    return bool(said() if callable(said) else said)


def volumes(kind: ShardingKind, load: TableLoad, topology: Topology) -> tuple[float, float]:
    """Ids that a shard's rank gets, and rows that it gives, in one step."""
    world, group = topology.world_size, topology.intra_group_size
    if kind.is_copied:
        return load.ids, load.rows_out
    if not kind.cuts_rows:
        return load.ids * world, load.rows_out * world
    # The order of operations is TorchRec's, to the last bit.
    ids = load.ids / world * world if kind.is_on_all_ranks else load.ids * world / group
    return ids, load.rows_out * world if load.is_pooled else ids


class EmbeddingPerfEstimator:
    """Writes `perf` into the shards of options. `constraints` by table name. `is_inference`: no backward pass."""

    def __init__(
        self,
        topology: Topology,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        is_inference: bool = False,
    ) -> None:
        self._topology = topology
        self._constraints = constraints or {}
        self._is_inference = is_inference

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: object = None) -> None:
        """Perf of every shard, in ms.

        `sharder_data_map` is not looked at: sharders' own cache sizes and quantized exchanges are not priced.
        """
        for option in sharding_options:
            load = load_of(option, self._constraints.get(option.name))
            priced: dict[int, Perf] = {}  # by width: rows matter to a replicated table only, whose shards are identical
            for _, shard in runs_of(option.shards):
                rows, dim = shard.size
                if dim not in priced:
                    priced[dim] = self._perf(option, load, rows, dim)
                shard.perf = priced[dim]

    def _perf(self, option: ShardingOption, load: TableLoad, rows: int, dim: int) -> Perf:
        topology, kind = self._topology, option.sharding_kind
        bandwidth = kernel_bandwidth(option.compute_kernel, load.cache, topology)
        ids, rows_out = volumes(kind, load, topology)
        forward = _forward(kind, load, dim, ids=ids, rows_out=rows_out) / bandwidth
        forward_comms, input_dist = self._forward_comms(kind, load, dim)
        prefetch = self._prefetch(kind, load, dim) if option.compute_kernel == ComputeKernel.FUSED_UVM_CACHING else 0.0
        if self._is_inference:
            return Perf(forward, forward_comms, 0.0, 0.0, input_dist, prefetch)
        backward = forward * topology.bwd_compute_multiplier
        if load.is_weighted:
            backward = backward * topology.weighted_feature_bwd_compute_multiplier + forward * WEIGHTED_KERNEL_FACTOR
        backward_comms = self._backward_comms(kind, load, rows, dim, bandwidth=bandwidth)
        return Perf(forward, forward_comms, backward, backward_comms, input_dist, prefetch)

    def _forward_comms(self, kind: ShardingKind, load: TableLoad, dim: int) -> tuple[float, float]:
        """Rows out and ids in, in ms."""
        if kind.is_copied:
            return 0.0, 0.0
        ids_bytes = ceil(load.ids * self._topology.world_size * BIGINT_BYTES)
        return self._rows_out(kind, load, dim, _FORWARD), ids_bytes / self._bandwidth(CollectiveType.ALL_TO_ALL)

    def _backward_comms(self, kind: ShardingKind, load: TableLoad, rows: int, dim: int, *, bandwidth: float) -> float:
        """Gradients of the rows out, back where they were looked up; of a replica, the all-reduce."""
        if kind.is_copied:
            return self._replicated(rows * dim * load.element_bytes, bandwidth)
        exchange = self._rows_out(kind, load, dim, _BACKWARD)
        if not kind.cuts_rows:
            return exchange
        out_bytes = volumes(kind, load, self._topology)[1] * dim * load.element_bytes
        return exchange + out_bytes * BATCHED_COPY_FACTOR / bandwidth

    def _rows_out(self, kind: ShardingKind, load: TableLoad, dim: int, by_rows: CollectiveType) -> float:
        """The exchange of looked-up rows in ms, `by_rows` being what cut rows are exchanged by."""
        topology, row_bytes = self._topology, dim * load.element_bytes
        out_bytes = volumes(kind, load, topology)[1] * row_bytes
        if kind.rows_over != "host":
            return out_bytes / self._bandwidth(by_rows if kind.cuts_rows else CollectiveType.ALL_TO_ALL)
        hosts = topology.world_size // topology.intra_group_size
        local, get = topology.local_world_size, topology.comms_bandwidths.get_bw
        inside = out_bytes / get(local, topology.intra_group_size, by_rows)
        if hosts < 2:
            return inside
        return inside + load.rows_out * hosts * row_bytes / get(1, hosts, CollectiveType.ALL_TO_ALL)

    def _bandwidth(self, collective: CollectiveType) -> float:
        """Bytes/ms of a collective of all ranks."""
        topology = self._topology
        return topology.comms_bandwidths.get_bw(topology.local_world_size, topology.world_size, collective)

    def _replicated(self, table_bytes: int, bandwidth: float) -> float:
        """The all-reduce of a replicated table's gradient, in ms."""
        world, local = self._topology.world_size, self._topology.local_world_size
        hosts = min(world / local, 2)
        reduce = table_bytes * (2 * hosts - 1) / hosts / self._bandwidth(CollectiveType.ALL_REDUCE)
        if world > 2 * local:
            reduce *= 2
        return reduce + table_bytes * DP_COPY_FACTOR / bandwidth

    def _prefetch(self, kind: ShardingKind, load: TableLoad, dim: int) -> float:
        """Fetching the rows that the cache misses, in ms; 0 where nothing is known of its size or of the accesses."""
        cache = load.cache
        if cache is None or cache.stats is None or cache.load_factor is None:
            return 0.0
        topology = self._topology
        misses = cache.stats.expected_miss_rate(cache.load_factor) * cache.stats.expected_lookups
        misses /= kind.row_blocks(topology.world_size, topology.intra_group_size)
        return misses * dim * load.element_bytes / topology.hbm_to_ddr_mem_bw


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
    cached = (share * hbm + (1 - share) * link) / UVM_SLOWDOWN
    prefetched = cache is not None and bool(cache.prefetch_pipeline)
    rates: dict[tuple[str, str], float] = {
        ("cuda", ComputeKernel.DENSE): 0.5 * hbm,
        ("cuda", ComputeKernel.FUSED): hbm,
        ("cuda", ComputeKernel.FUSED_TRITON): hbm,
        ("cuda", ComputeKernel.FUSED_UVM): link / UVM_SLOWDOWN,
        ("cuda", ComputeKernel.FUSED_UVM_CACHING): hbm if prefetched else cached,
        ("cuda", ComputeKernel.QUANT): hbm,
        ("cuda", ComputeKernel.QUANT_UVM): link / UVM_SLOWDOWN,
        ("cuda", ComputeKernel.QUANT_UVM_CACHING): cached,
        ("cuda", ComputeKernel.KEY_VALUE): topology.ssd_mem_bw,
        ("cuda", ComputeKernel.SSD_VIRTUAL_TABLE): link,
        ("cuda", ComputeKernel.DRAM_VIRTUAL_TABLE): link,
        ("cuda", ComputeKernel.DRAM_SSD_VIRTUAL_TABLE): link,
        ("mtia", ComputeKernel.DENSE): 0.5 * hbm,
        ("mtia", ComputeKernel.FUSED): hbm,
        ("mtia", ComputeKernel.QUANT): hbm,
        ("cpu", ComputeKernel.DENSE): 0.5 * ddr,
        ("cpu", ComputeKernel.FUSED): ddr,
        ("cpu", ComputeKernel.QUANT): ddr,
    }
    key = (topology.compute_device, compute_kernel)
    if key not in rates:
        raise ValueError(f"compute kernel {compute_kernel!r} on {topology.compute_device!r} has no known bandwidth")
    return rates[key]


def _forward(kind: ShardingKind, load: TableLoad, dim: int, *, ids: float, rows_out: float) -> float:
    """Bytes that a forward lookup moves; whole narrow rows cost more than their bytes."""
    read = ceil(ids * BIGINT_BYTES) * (2 if load.is_weighted else 1)
    sliced = kind.is_copied or kind.cuts_rows
    lookup_dim = dim if sliced else max(dim, FULL_BLOCK_DIM)
    penalty = 1.0 if sliced or dim >= 128 else 1.15 if dim >= 64 else 1.75
    return (read + ids * lookup_dim * load.element_bytes + rows_out * dim * load.element_bytes) * penalty
