"""What a shard takes of its rank's memory: weights, optimizer state, cache and exchange buffers; nothing dense."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil

from scenarios.planner.perf_estimator import BIGINT_BYTES, Load, load_factor, load_of, volumes
from scenarios.planner.topology import DEVICES_WITH_HBM, Topology
from scenarios.planner.types import (
    CacheParams,
    ComputeKernel,
    ParameterConstraints,
    Shard,
    ShardingOption,
    ShardingType,
    Storage,
)

# A cached row's bookkeeping: bytes for every row of the table, and for every row that the cache holds.
CACHE_ROW_BYTES, CACHED_ROW_BYTES = 4, 16

_CUT_BY_ROWS = (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD)


class PipelineType(StrEnum):
    """How many batches are under way at a time, which decides how many buffers there are."""

    NONE = "none"
    TRAIN_SPARSE_DIST = "train_sparse_dist"
    TRAIN_PREFETCH_SPARSE_DIST = "train_prefetch_sparse_dist"


class EmbeddingStorageEstimator:
    """Writes `storage` into the shards of options. `constraints` by table name.

    Optimizer state comes from the option's tensor: `optimizer_row_bytes` where it has that (`TensorShape`), else the
    class in `_optimizer_classes` that torch's in-backward optimizers leave there.
    """

    def __init__(
        self,
        topology: Topology,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        pipeline_type: PipelineType = PipelineType.NONE,
    ) -> None:
        self._topology = topology
        self._constraints = constraints or {}
        self._pipeline = pipeline_type

    def estimate(self, sharding_options: list[ShardingOption]) -> None:
        """Storage of every shard, in bytes."""
        for option in sharding_options:
            load = load_of(option, self._constraints.get(option.name))
            priced: dict[tuple[int, int], Storage] = {}  # thousands of shards have one size
            for shard in option.shards:
                rows, dim = shard.size
                if (rows, dim) not in priced:
                    priced[rows, dim] = self._storage(option, load, shard)
                shard.storage = priced[rows, dim]

    def _storage(self, option: ShardingOption, load: Load, shard: Shard) -> Storage:
        io = self._io_bytes(option, load, shard)
        rows, dim = _shape(option)
        total = rows * dim * load.element_bytes
        whole = _with_optimizer(option, shard, _share(total, option, shard))
        if self._topology.compute_device not in DEVICES_WITH_HBM:
            return Storage(0, whole + io)
        if option.compute_kernel == ComputeKernel.FUSED_UVM:
            return Storage(io, whole)
        if option.compute_kernel == ComputeKernel.FUSED_UVM_CACHING:
            factor = load_factor(load.cache)
            cached = _with_optimizer(option, shard, _share(round(total * factor), option, shard))
            books = ceil(shard.size[0] * (CACHE_ROW_BYTES + factor * CACHED_ROW_BYTES))
            return Storage(cached + books + io, whole)
        return Storage(whole + io, 0)

    def _io_bytes(self, option: ShardingOption, load: Load, shard: Shard) -> int:
        """Bytes of the buffers for ids and rows."""
        if shard.size[0] == 0 and option.sharding_type in _CUT_BY_ROWS:
            return 0
        ids, rows_out = volumes(option.sharding_type, load, self._topology)
        inputs = ceil(ids * BIGINT_BYTES)
        outputs = ceil(rows_out * shard.size[1] * load.element_bytes)
        if self._pipeline is PipelineType.NONE:
            return inputs + outputs
        if self._pipeline is PipelineType.TRAIN_SPARSE_DIST:
            return 2 * inputs
        return 3 * inputs + _prefetch_bytes(option, load.cache, inputs)


def _prefetch_bytes(option: ShardingOption, cache: CacheParams | None, inputs: int) -> int:
    if option.compute_kernel != ComputeKernel.FUSED_UVM_CACHING:
        return 0
    passes = cache.multipass_prefetch_config if cache else None
    return ceil((1 + 6 / (passes.num_passes if passes else 1)) * inputs)


def _share(size_bytes: int, option: ShardingOption, shard: Shard) -> int:
    """A shard's part of the table's bytes; a replica's is all of them."""
    rows, dim = _shape(option)
    if option.sharding_type == ShardingType.DATA_PARALLEL:
        return size_bytes
    return ceil(size_bytes * (shard.size[0] * shard.size[1] / (rows * dim)))


def _with_optimizer(option: ShardingOption, shard: Shard, weight_bytes: int) -> int:
    """Weights and the state that an optimizer keeps beside them."""
    row_bytes: int | None = getattr(option.tensor, "optimizer_row_bytes", None)
    if row_bytes is not None:  # in proportion, so that a cache's state is its share
        element_bytes: int = option.tensor.element_size()
        return weight_bytes + ceil(weight_bytes * row_bytes / (shard.size[1] * element_bytes))
    return weight_bytes + ceil(weight_bytes * _optimizer_multiple(option))


def _optimizer_multiple(option: ShardingOption) -> float:
    classes = getattr(option.tensor, "_optimizer_classes", None) or [None]
    name = getattr(classes[0], "__name__", "")
    if name in ("", "SGD"):
        return 0.0
    if name == "RowWiseAdagrad":
        return 1 / _shape(option)[1]
    return 2.0 if name == "Adam" else 1.0


def _shape(option: ShardingOption) -> tuple[int, int]:
    rows, dim = option.tensor.shape
    return int(rows), int(dim)
