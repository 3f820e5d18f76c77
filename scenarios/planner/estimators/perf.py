"""Estimates a shard's cost in ms by TorchRec 1.8's closed formulas, without latency, overlap or contention.

Only ratios between options matter to the planner. Measured or simulated times never enter here.
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
FULL_BLOCK_DIM = 32  # least number of columns that a lookup kernel reads
UVM_SLOWDOWN = 10
BATCHED_COPY_FACTOR = 2.455  # for the gradients of rows, relative to memory bandwidth
DP_COPY_FACTOR = 9.22
WEIGHTED_KERNEL_FACTOR = 1.1

_FORWARD, _BACKWARD = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER


@dataclass(frozen=True, slots=True)
class TableLoad:
    """The load of one table in a step: ids in and rows out on one rank, bytes of an element, and kind of lookup."""

    ids: float
    rows_out: float
    element_bytes: int
    is_pooled: bool
    is_weighted: bool
    cache: CacheParams | None


def load_of(option: ShardingOption, constraints: ParameterConstraints | None) -> TableLoad:
    """Return the load of an option on one rank in one batch.

    A feature has `input_lengths` ids per sample and pooling. A pooled bag has one row; a feature with less than one id
    per sample has a row for each id.
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
    """Return whether ids have weights: by the module's attribute or method if it has one, else by the constraints."""
    said = getattr(module, "is_weighted", wished.is_weighted)
    return bool(said() if callable(said) else said)


def volumes(kind: ShardingKind, load: TableLoad, topology: Topology) -> tuple[float, float]:
    """Return the number of ids that a shard's rank receives, and of rows that it sends, in one step."""
    world, group = topology.world_size, topology.intra_group_size
    if kind.is_copied:
        return load.ids, load.rows_out
    if not kind.cuts_rows:
        return load.ids * world, load.rows_out * world
    # Operations in TorchRec's order, for results that are equal to the last bit.
    ids = load.ids / world * world if kind.is_on_all_ranks else load.ids * world / group
    return ids, load.rows_out * world if load.is_pooled else ids


class EmbeddingPerfEstimator:
    """An estimator that writes `perf` into the shards of options.

    `constraints` are by table name. `is_inference`: without a backward pass.
    """

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
        """Write the perf of every shard, in ms.

        `sharder_data_map` is ignored: cache sizes and quantized exchanges of sharders are not priced.
        """
        for option in sharding_options:
            load = load_of(option, self._constraints.get(option.name))
            # By width: the number of rows matters only to a replicated table, whose shards are identical.
            priced: dict[int, Perf] = {}
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
        """Return the times of the exchange of rows and of ids, in ms."""
        if kind.is_copied:
            return 0.0, 0.0
        # All ranks' ids, also where rows are cut: TorchRec prices the exchange of ids alike for all sharding types.
        ids_bytes = ceil(load.ids * self._topology.world_size * BIGINT_BYTES)
        return self._rows_out(kind, load, dim, _FORWARD), ids_bytes / self._bandwidth(CollectiveType.ALL_TO_ALL)

    def _backward_comms(self, kind: ShardingKind, load: TableLoad, rows: int, dim: int, *, bandwidth: float) -> float:
        """Return the time to send the rows' gradients back to the shard, in ms; for a replica, of its all-reduce."""
        if kind.is_copied:
            return self._time_of_replicas(rows * dim * load.element_bytes, bandwidth)
        exchange = self._rows_out(kind, load, dim, _BACKWARD)
        if not kind.cuts_rows:
            return exchange
        out_bytes = volumes(kind, load, self._topology)[1] * dim * load.element_bytes
        return exchange + out_bytes * BATCHED_COPY_FACTOR / bandwidth

    def _rows_out(self, kind: ShardingKind, load: TableLoad, dim: int, by_rows: CollectiveType) -> float:
        """Return the time of exchanging looked-up rows, in ms; `by_rows` is the collective of tables with cut rows."""
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
        """Return the bandwidth of a collective of all ranks, in bytes/ms."""
        topology = self._topology
        return topology.comms_bandwidths.get_bw(topology.local_world_size, topology.world_size, collective)

    def _time_of_replicas(self, table_bytes: int, bandwidth: float) -> float:
        """Return the time of the all-reduce of a replicated table's gradient, in ms."""
        world, local = self._topology.world_size, self._topology.local_world_size
        # TorchRec's formula as it stands: it knows one host and two, and takes twice the time of two for more.
        hosts = min(world / local, 2)
        reduce = table_bytes * (2 * hosts - 1) / hosts / self._bandwidth(CollectiveType.ALL_REDUCE)
        if world > 2 * local:
            reduce *= 2
        return reduce + table_bytes * DP_COPY_FACTOR / bandwidth

    def _prefetch(self, kind: ShardingKind, load: TableLoad, dim: int) -> float:
        """Return the time to fetch the rows that the cache misses, in ms; 0 if its size or statistics are unknown."""
        cache = load.cache
        if cache is None or cache.stats is None or cache.load_factor is None:
            return 0.0
        topology = self._topology
        misses = cache.stats.expected_miss_rate(cache.load_factor) * cache.stats.expected_lookups
        misses /= kind.row_blocks(topology.world_size, topology.intra_group_size)
        return misses * dim * load.element_bytes / topology.hbm_to_ddr_mem_bw


def load_factor(cache: CacheParams | None) -> float:
    """Return the share of a table's rows that its cache holds."""
    return CACHE_LOAD_FACTOR if cache is None or cache.load_factor is None else cache.load_factor


def kernel_bandwidth(compute_kernel: str, cache: CacheParams | None, topology: Topology) -> float:
    """Return the rate at which a kernel reads rows, in bytes/ms.

    Raises:
        ValueError: this device has no such kernel.
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
    """Return the bytes that a forward lookup moves; narrow rows cost more unless the table is copied or cut by rows."""
    read = ceil(ids * BIGINT_BYTES) * (2 if load.is_weighted else 1)
    sliced = kind.is_copied or kind.cuts_rows
    lookup_dim = dim if sliced else max(dim, FULL_BLOCK_DIM)
    # TorchRec's HALF_BLOCK_PENALTY and QUARTER_BLOCK_PENALTY, which it calls empirical.
    penalty = 1.0 if sliced or dim >= 128 else 1.15 if dim >= 64 else 1.75
    return (read + ids * lookup_dim * load.element_bytes + rows_out * dim * load.element_bytes) * penalty
