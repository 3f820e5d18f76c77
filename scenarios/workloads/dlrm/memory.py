"""Computes the GPU memory of a DLRM's step, and the expected load of each rank, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch

from scenarios.config.host_classes import Floats
from scenarios.config.scenario import Bag, Model, Recommender, Scenario, Table
from scenarios.planner.estimators.storage import CACHE_ROW_BYTES, CACHED_ROW_BYTES
from scenarios.planner.options import host_capacity_bytes
from scenarios.planner.placed import Plan, device_bytes, whole_bytes
from scenarios.quantized.codec import quantized_comms
from scenarios.seam.memory import CACHED_ROWS, IDS, ROWS_AHEAD, SPARSE_BUFFERS, TABLE_STATE, TABLES, MemoryPart
from scenarios.seam.trace import IN_HOST, MemoryRow, PlanRow
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.groups import TableGroup
from scenarios.sparse.sequences import SequenceGroup
from scenarios.workloads.dlrm.distinct_ids import DistinctGroup, ExpectedDistinct
from scenarios.workloads.dlrm.ids.distinct import DistinctDraws, distinct_rows, expected_ids
from scenarios.workloads.dlrm.ids.distribution import TableDraws
from scenarios.workloads.dlrm.tables.prices import WEIGHT_BYTES

LABEL_BYTES = 4  # of a float32

Number = TypeVar("Number", float, Floats)


def memory_rows(
    scenario: Scenario,
    plan: Iterable[PlanRow],
    dense: Sequence[MemoryPart],
    ranks: Sequence[int] | None = None,
    *,
    counts: Sequence[int] | None = None,
) -> tuple[MemoryRow, ...]:
    """Return every part of memory on every rank, or on `ranks`.

    Args:
        plan: must have all shards on these ranks.
        dense: parts of the dense part, of which every rank has a copy.
        counts: the number of ranks that each of `ranks` represents.
    """
    capacity_bytes = scenario.cluster.host.gpu.memory_bytes
    tables = {table.name: table for table in scenario.workload.tables}
    ahead = _ahead_parts(scenario)  # equal on each rank
    chosen = range(scenario.cluster.world_size) if ranks is None else ranks
    shards: dict[int, list[PlanRow]] = {rank: [] for rank in chosen}
    for row in plan:
        if row.rank in shards:
            shards[row.rank].append(row)
    return tuple(
        part.row(rank, host_capacity_bytes(scenario) if part.phases == IN_HOST else capacity_bytes, count)
        for rank, count in zip(chosen, counts or (1,) * len(chosen), strict=True)
        for part in (*_embedding_parts(scenario, tables, shards[rank], ahead), *dense)
    )


def _embedding_parts(
    scenario: Scenario, tables: Mapping[str, Table], shards: Iterable[PlanRow], ahead: Iterable[MemoryPart]
) -> tuple[MemoryPart, ...]:
    """Return a rank's parts: rows, optimizer state, buffers of ids, looked-up rows and gradients, and `ahead`."""
    model, samples = Recommender.of(scenario.workload).model, scenario.run.batch_size * scenario.sharding_ranks
    weights = cache = state = hosted = buffers = 0.0
    for shard in shards:
        stays = shard.sharding_kind.is_copied
        table = tables[shard.table]
        bag, pooled = table.bag, len(table.by_feature) * (scenario.run.batch_size if stays else samples)
        own = device_bytes(shard, model, {table.name: table.cache_load_factor})
        whole = whole_bytes(shard, model)
        if shard.kernel.is_cached:
            cached = round(shard.rows * table.cache_load_factor)
            cache += own.weights + CACHE_ROW_BYTES * shard.rows + CACHED_ROW_BYTES * cached
            hosted += whole.weights  # also of rows that are in the cache
        else:
            weights += own.weights
            hosted += whole.weights - own.weights
        state += own.state
        hosted += whole.state - own.state
        ids = shard.ids_per_step if bag != "distinct" else _distinct_ids(scenario, shard)
        found = (ids if bag in ("sequence", "distinct") else pooled) * shard.columns
        buffers += _buffer_bytes(scenario, bag, ids=ids, lengths=pooled, found=found, stays=stays)
    parts = [
        MemoryPart("embedding weights", round(weights), kind=TABLES),
        MemoryPart("embedding optimizer", round(state), kind=TABLE_STATE),
        MemoryPart("sparse buffers", round(buffers), kind=SPARSE_BUFFERS),
        *ahead,
    ]
    if cache:
        parts.append(MemoryPart("embedding cache", round(cache), kind=CACHED_ROWS))
    if hosted:
        parts.append(MemoryPart("embedding rows in host memory", round(hosted), IN_HOST, TABLES))
    return tuple(parts)


def _distinct_ids(scenario: Scenario, shard: PlanRow) -> float:
    """Return the expected number of ids that all ranks together send to a shard, made distinct by each rank."""
    (table,) = (table for table in scenario.workload.tables if table.name == shard.table)
    rows = range(shard.row_offset, shard.row_offset + shard.rows)
    return scenario.sharding_ranks * sum(
        distinct_rows(feature, rows, expected_ids(feature, rows, scenario.run.batch_size))
        for feature in table.by_feature
    )


def _ahead_parts(scenario: Scenario) -> list[MemoryPart]:
    """Return the parts of a rank's own batches, if they are copied, and of rows ahead in a semi-synchronous pipeline.

    Batches on the GPU are the ids of the trained batch, and all of the batches behind it; rows ahead are those of the
    next batch.
    """
    workload, samples = Recommender.of(scenario.workload), scenario.run.batch_size
    model, pipeline = workload.model, workload.pipeline
    element_bytes: int = getattr(torch, model.dtype).itemsize
    naming = 0.0
    for feature in model.features:
        ids = float(TableDraws(feature, samples).mean()[0])
        weight_bytes = WEIGHT_BYTES if feature.weighted else 0
        naming += (getattr(torch, model.ids_dtype).itemsize + weight_bytes) * ids
        naming += getattr(torch, model.lengths_dtype).itemsize * samples
    dense = float(samples * (model.dense_features * element_bytes + LABEL_BYTES))
    copied = (pipeline.copied_ahead + 1) * naming + pipeline.copied_ahead * dense if scenario.copies_batches else 0.0
    rows = samples * sum(feature.dim * max(1, feature.sequence) for feature in model.features) * element_bytes
    parts = [MemoryPart("batches", round(copied), kind=IDS)] if copied else []
    return [*parts, MemoryPart("embeddings ahead", rows, kind=ROWS_AHEAD)] if pipeline.kind == "semi_sync" else parts


def _buffer_bytes(
    scenario: Scenario, bag: Bag, *, ids: Number, lengths: Number, found: Number, stays: bool = False
) -> Number:
    """Return the bytes of a rank's sparse buffers.

    Args:
        ids: number of ids.
        lengths: number of lengths.
        found: elements of looked-up rows, and of their gradient.
        stays: whether both stay on the rank; if not, encoded copies are sent.
    """
    workload = Recommender.of(scenario.workload)
    model, pipeline = workload.model, workload.pipeline
    id_bytes: int = getattr(torch, model.ids_dtype).itemsize
    length_bytes: int = getattr(torch, model.lengths_dtype).itemsize
    held = 3 if pipeline.kind == "semi_sync" else 2  # looked-up rows, those of the next batch, and a gradient
    element_bytes: float = held * getattr(torch, model.dtype).itemsize
    if not stays:
        codecs = quantized_comms(workload.qcomms).all_to_all
        sent = (codec.encoded_size(1.0) * codec.dtype.itemsize for codec in (codecs.forward, codecs.backward) if codec)
        element_bytes += sum(sent)
    # Ids are held twice, source-major as received and key-major; a pipeline also holds those of the next batches.
    copies = 2 + pipeline.exchanged_ahead
    weight_bytes = WEIGHT_BYTES if bag == "weighted" else 0
    naming: Number = (id_bytes + weight_bytes) * ids + length_bytes * lengths
    return copies * naming + element_bytes * found


def expected_features(model: Model, batch_size: int) -> dict[Bag, ExpectedJagged]:
    """Return the expected features of each rank before any exchange, by kind of bag."""
    by_feature = {bag: [each for table in tables for each in table.by_feature] for bag, tables in model.bags.items()}
    return {
        bag: ExpectedJagged(
            keys=tuple(feature.name for feature in features),
            ids=tuple(float(TableDraws(feature, batch_size).mean()[0]) for feature in features),
            stride=batch_size,
            weighted=bag == "weighted",
            ids_dtype=getattr(torch, model.ids_dtype),
            lengths_dtype=getattr(torch, model.lengths_dtype),
        )
        for bag, features in by_feature.items()
    }


def expected_inputs(groups: Sequence[TableGroup], model: Model, batch_size: int) -> tuple[ExpectedInput, ...]:
    """Return the groups' input exchanges with expected sizes."""
    draws = {
        feature.name: (DistinctDraws(feature, batch_size) if feature.index_dedup else TableDraws(feature, batch_size))
        for feature in model.features
    }
    return tuple(
        (ExpectedDistinct if isinstance(group, DistinctGroup) else ExpectedInput)(
            group.layout, draws, group.label, sequence=isinstance(group, SequenceGroup)
        )
        for group in groups
    )


def rank_loads(groups: Sequence[TableGroup], inputs: Sequence[ExpectedInput], scenario: Scenario) -> Floats:
    """Return the expected load of each rank for each group: [groups, ranks, 5].

    Numbers are: ids from one rank, elements of their rows, keys, elements sent back to that rank, and elements of rows
    in host memory, weighted by kernel. Copied tables have none.
    """
    world_size, batch_size, hosted = scenario.cluster.world_size, scenario.run.batch_size, _number_places(scenario)
    loads = np.zeros((len(groups), world_size, 5))
    for of_rank, group, exchange in zip(loads, groups, inputs, strict=True):
        layout = group.layout
        for owner, pieces in enumerate(layout.pieces) if not layout.sharding_type.is_copied else ():
            for rank in range(owner * layout.span, (owner + 1) * layout.span) if pieces else ():
                ids, columns = exchange.ids_for(rank), [piece.columns for piece in pieces]
                elements = sum(count * width for count, width in zip(ids, columns, strict=True))
                found = elements if isinstance(group, SequenceGroup) else batch_size * sum(columns)
                of_host = [
                    hosted[piece.table] * count * piece.columns for count, piece in zip(ids, pieces, strict=True)
                ]
                of_rank[rank] = sum(ids), elements, len(ids), found, sum(of_host)
    return loads


def _number_places(scenario: Scenario) -> dict[str, float]:
    """Map each table to a number for where its rows lie: 0 GPU memory, 2 host memory, else the cached share.

    Hosts whose tables differ in it fall into different host classes.
    """
    tables = [(table, scenario.kernel_of(table)) for table in scenario.workload.tables]
    return {
        table.name: table.cache_load_factor if kernel.is_cached else 2.0 if kernel.is_in_host else 0.0
        for table, kernel in tables
    }


def host_loads(loads: Floats, gpus: int) -> Floats:
    """Regroup `rank_loads` by host: [hosts, numbers]."""
    groups, ranks, kinds = loads.shape
    return loads.transpose(1, 0, 2).reshape(ranks // gpus, gpus * groups * kinds)


def held_bytes(loads: Floats, bags: Sequence[Bag], plan: Plan, scenario: Scenario) -> Floats:
    """Return the bytes of embedding rows, optimizer state and sparse buffers, [ranks], without equal parts.

    `loads` are `rank_loads`, `bags` those of its groups.
    """
    world, buffers = plan.world_size, np.zeros(plan.world_size)
    for bag, of_rank in zip(bags, loads, strict=True):
        ids, _, keys, found, _ = world * of_rank.T
        buffers += _buffer_bytes(scenario, bag, ids=ids, lengths=scenario.run.batch_size * keys, found=found)
    return np.asarray(np.array(plan.weight_bytes) + np.array(plan.optimizer_bytes) + buffers)
