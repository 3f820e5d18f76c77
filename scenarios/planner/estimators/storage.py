"""Estimates the memory of a shard on its rank: weights, optimizer state, cache and exchange buffers; nothing dense."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil

from scenarios.planner.estimators.perf import BIGINT_BYTES, CACHE_LOAD_FACTOR, TableLoad, load_of, volumes
from scenarios.planner.topology import DEVICES_WITH_HBM, Topology
from scenarios.planner.types import (
    CacheParams,
    ParameterConstraints,
    Shard,
    ShardingOption,
    Storage,
)
from scenarios.run_length import runs_of

# Bytes of a cache's bookkeeping for every row of the table, and for every row that the cache holds.
CACHE_ROW_BYTES, CACHED_ROW_BYTES = 4, 16


class PipelineType(StrEnum):
    """The training pipeline, whose number of concurrent batches decides the number of buffers."""

    NONE = "none"
    TRAIN_BASE = "train_base"
    TRAIN_SPARSE_DIST = "train_sparse_dist"
    TRAIN_PREFETCH_SPARSE_DIST = "train_prefetch_sparse_dist"


_UNPIPELINED = (PipelineType.NONE, PipelineType.TRAIN_BASE)


class EmbeddingStorageEstimator:
    """An estimator that writes `storage` into the shards of options; `constraints` are by table name.

    `run_embedding_at_peak_memory`: a pipeline's outputs are held in addition to its inputs. `is_inference`: weights
    only.

    Optimizer state follows from the option's tensor: from `optimizer_row_bytes` if it has that (`TensorShape`), else
    from the class in `_optimizer_classes`, which torch's in-backward optimizers leave there.
    """

    def __init__(
        self,
        topology: Topology,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        pipeline_type: PipelineType = PipelineType.NONE,
        run_embedding_at_peak_memory: bool = False,
        is_inference: bool = False,
    ) -> None:
        self._topology = topology
        self._constraints = constraints or {}
        self._pipeline = pipeline_type
        self._at_peak = run_embedding_at_peak_memory
        self._is_inference = is_inference

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: object = None) -> None:
        """Write the storage of every shard, in bytes; `sharder_data_map` is ignored, as in the perf estimator."""
        for option in sharding_options:
            load = load_of(option, self._constraints.get(option.name))
            priced: dict[tuple[int, int], Storage] = {}  # thousands of shards have the same size
            for _, shard in runs_of(option.shards):
                rows, dim = shard.size
                if (rows, dim) not in priced:
                    priced[rows, dim] = self._storage(option, load, shard)
                shard.storage = priced[rows, dim]

    def _storage(self, option: ShardingOption, load: TableLoad, shard: Shard) -> Storage:
        io = 0 if self._is_inference else self._io_bytes(option, load, shard)
        (rows, dim), kernel = _shape(option), option.kernel
        total = rows * dim * load.element_bytes
        whole = self._shard_bytes(option, shard, total)
        if self._topology.compute_device not in DEVICES_WITH_HBM:
            return Storage(0, whole + io)
        if kernel.reads_host and not kernel.is_quantized:
            return Storage(io, whole)
        factor = held_share(load.cache)
        books = 0 if self._is_inference else ceil(shard.size[0] * (CACHE_ROW_BYTES + factor * CACHED_ROW_BYTES))
        if kernel.is_on_ssd:
            return Storage(io, 0, whole + books)
        if kernel.is_cached:
            return Storage(self._shard_bytes(option, shard, round(total * factor)) + books + io, whole)
        return Storage(whole + io, 0)

    def _shard_bytes(self, option: ShardingOption, shard: Shard, table_bytes: int) -> int:
        """Return the shard's part of `table_bytes` bytes of its table, plus optimizer state."""
        share = _share(table_bytes, option, shard)
        return share if self._is_inference else share + _optimizer_bytes(option, shard, share)

    def _io_bytes(self, option: ShardingOption, load: TableLoad, shard: Shard) -> int:
        """Return the bytes of the buffers for ids and rows."""
        if shard.size[0] == 0 and option.sharding_kind.cuts_rows:
            return 0
        ids, rows_out = volumes(option.sharding_kind, load, self._topology)
        inputs = ceil(ids * BIGINT_BYTES)
        outputs = ceil(rows_out * shard.size[1] * load.element_bytes)
        if self._topology.compute_device not in DEVICES_WITH_HBM or self._pipeline in _UNPIPELINED:
            return inputs + outputs
        peak = outputs if self._at_peak else 0  # otherwise outputs are allocated after inputs are freed
        if self._pipeline is PipelineType.TRAIN_SPARSE_DIST:
            return 2 * inputs + peak
        return 3 * inputs + _prefetch_bytes(option, load.cache, inputs) + peak


def held_share(cache: CacheParams | None) -> float:
    """Return the share of a table's rows for which its cache has memory; a size of 0 counts as unknown."""
    return (cache.load_factor if cache else None) or CACHE_LOAD_FACTOR


def _prefetch_bytes(option: ShardingOption, cache: CacheParams | None, inputs: int) -> int:
    kernel = option.kernel
    if not kernel.is_on_ssd and (not kernel.is_cached or kernel.is_quantized):
        return 0
    passes = cache.multipass_prefetch_config if cache else None
    return ceil((1 + 6 / (passes.num_passes if passes else 1)) * inputs)


def _share(size_bytes: int, option: ShardingOption, shard: Shard) -> int:
    """Return a shard's part of the table's bytes; for a replica, all of them."""
    rows, dim = _shape(option)
    if option.sharding_kind.is_copied:
        return size_bytes
    return ceil(size_bytes * shard.size[0] * shard.size[1] / (rows * dim))


def _optimizer_bytes(option: ShardingOption, shard: Shard, weight_bytes: int) -> int:
    """Return the bytes of optimizer state for `weight_bytes` bytes of weights."""
    row_bytes: int | None = getattr(option.tensor, "optimizer_row_bytes", None)
    if row_bytes is not None:  # in proportion to the weights, so that a cache holds its share of the state
        element_bytes: int = option.tensor.element_size()
        of_elements = getattr(option.tensor, "optimizer_element_bytes", 0)
        return ceil(weight_bytes * (row_bytes / shard.size[1] + of_elements) / element_bytes)
    return ceil(weight_bytes * _optimizer_multiple(option))


def _optimizer_multiple(option: ShardingOption) -> float:
    classes = getattr(option.tensor, "_optimizer_classes", None) or [None]
    name = getattr(classes[0], "__name__", "")
    if name in ("", "SGD"):
        return 0.0
    if name == "RowWiseAdagrad":
        return 1 / _shape(option)[1]
    # An optimizer that is not known counts as one state of the weights' size, as in TorchRec.
    return 2.0 if name == "Adam" else 1.0


def _shape(option: ShardingOption) -> tuple[int, int]:
    rows, dim = option.tensor.shape
    return int(rows), int(dim)
