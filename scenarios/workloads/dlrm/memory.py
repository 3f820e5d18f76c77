"""What a DLRM's step takes of each GPU's memory, part by part, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from scenarios.config.scenario import Scenario
from scenarios.seam.trace import MemoryRow, PlanRow
from scenarios.workloads.ddp_buckets import reduction_memory_bytes
from scenarios.workloads.dlrm.dense import Layers
from scenarios.workloads.dlrm.embedding import ID_BYTES, LENGTH_BYTES

_ADAGRAD_BYTES = 4  # a float32 for each element of a dense parameter, or for each row of a table


def memory_rows(
    scenario: Scenario,
    plan: Iterable[PlanRow],
    layers: Layers,
    ranks: Sequence[int] | None = None,
    *,
    counts: Sequence[int] | None = None,
) -> tuple[MemoryRow, ...]:
    """Every part on every rank, or on these, each for so many; their shards must all be in `plan`."""
    capacity_bytes = scenario.cluster.host.gpu.memory_bytes
    dense = _dense_parts(scenario, layers)
    asked = range(scenario.cluster.world_size) if ranks is None else ranks
    shards: dict[int, list[PlanRow]] = {rank: [] for rank in asked}
    for row in plan:
        if row.rank in shards:
            shards[row.rank].append(row)
    return tuple(
        MemoryRow(rank=rank, part=part, size_bytes=round(size_bytes), capacity_bytes=capacity_bytes, rank_count=count)
        for rank, count in zip(asked, counts or (1,) * len(asked), strict=True)
        for part, size_bytes in {**_embedding_parts(scenario, shards[rank]), **dense}.items()
    )


def _embedding_parts(scenario: Scenario, shards: Iterable[PlanRow]) -> dict[str, float]:
    """Rows and their optimizer state; ids and pooled rows of the global batch, there and their gradients back."""
    assert scenario.model is not None
    element_bytes = _dtype(scenario).itemsize
    samples = scenario.batch_size * scenario.cluster.world_size
    weights = state = buffers = 0.0
    for shard in shards:
        pooled_samples = scenario.batch_size if shard.sharding_type == "data_parallel" else samples
        weights += shard.rows * shard.columns * element_bytes
        state += shard.rows * _ADAGRAD_BYTES if scenario.model.optimizer.kind == "adagrad" else 0
        # Ids arrive source-major and are put into key-major order: twice.
        buffers += 2 * (ID_BYTES * shard.ids_per_step + LENGTH_BYTES * pooled_samples)
        buffers += 2 * pooled_samples * shard.columns * element_bytes
    return {"embedding weights": weights, "embedding optimizer": state, "sparse buffers": buffers}


def _dense_parts(scenario: Scenario, layers: Layers) -> dict[str, float]:
    """The same on every rank: all is replicated, and a block's output is kept until its backward."""
    assert scenario.model is not None
    dtype = _dtype(scenario)
    elements = sum(block.parameter_count for block in layers.blocks)
    parameters = elements * dtype.itemsize
    kept = sum(block.width_out() for block in layers.blocks) + scenario.model.dense_features
    kept += scenario.model.bottom[-1] + sum(table.dim for table in scenario.model.tables)
    return {
        "dense parameters": parameters,
        "dense optimizer": elements * _ADAGRAD_BYTES if scenario.model.optimizer.kind == "adagrad" else 0,
        "dense gradients": parameters,
        "activations": scenario.batch_size * kept * dtype.itemsize,
        **reduction_memory_bytes(layers.shapes, dtype, scenario.buckets, scenario.compression),
    }


def _dtype(scenario: Scenario) -> torch.dtype:
    assert scenario.model is not None
    dtype: torch.dtype = getattr(torch, scenario.model.dtype)
    return dtype
