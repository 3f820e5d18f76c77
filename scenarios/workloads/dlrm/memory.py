"""What a DLRM's step takes of each GPU's memory, and what it is expected to ask of each rank, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch

from scenarios.config.host_classes import Floats
from scenarios.config.scenario import Bag, Model, Recommender, Scenario, Table
from scenarios.modules.memory import MemoryPart
from scenarios.planner.estimators.storage import CACHE_ROW_BYTES, CACHED_ROW_BYTES
from scenarios.planner.options import host_capacity_bytes
from scenarios.planner.placed import Plan, device_bytes, whole_bytes
from scenarios.quantized.codec import quantized_comms
from scenarios.seam.trace import IN_HOST, MemoryRow, PlanRow
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.groups import TableGroup
from scenarios.sparse.sequences import SequenceGroup
from scenarios.workloads.dlrm.distinct_ids import DistinctGroup, ExpectedDistinct
from scenarios.workloads.dlrm.ids.distinct import DistinctDraws, distinct_rows, expected_ids
from scenarios.workloads.dlrm.ids.distribution import draws_of
from scenarios.workloads.dlrm.tables.prices import WEIGHT_BYTES

LABEL_BYTES = 4  # a float32

Number = TypeVar("Number", float, Floats)


def memory_rows(
    scenario: Scenario,
    plan: Iterable[PlanRow],
    dense: Sequence[MemoryPart],
    ranks: Sequence[int] | None = None,
    *,
    counts: Sequence[int] | None = None,
) -> tuple[MemoryRow, ...]:
    """Return every part on every rank, or on these, each for so many; their shards must all be in `plan`.

    `dense` are the parts of the dense part, of which every rank has a copy.
    """
    capacity_bytes = scenario.cluster.host.gpu.memory_bytes
    tables = {table.name: table for table in scenario.workload.tables}
    ahead = [
        MemoryPart(name, round(size)) for name, size in _ahead_bytes(scenario).items() if size
    ]  # each rank's alike
    chosen = range(scenario.cluster.world_size) if ranks is None else ranks
    shards: dict[int, list[PlanRow]] = {rank: [] for rank in chosen}
    for row in plan:
        if row.rank in shards:
            shards[row.rank].append(row)
    return tuple(
        MemoryRow(
            rank=rank,
            part=part.name,
            size_bytes=part.size_bytes,
            capacity_bytes=host_capacity_bytes(scenario) if part.phases == IN_HOST else capacity_bytes,
            rank_count=count,
            phases=part.phases,
        )
        for rank, count in zip(chosen, counts or (1,) * len(chosen), strict=True)
        for part in (*_embedding_parts(scenario, tables, shards[rank], ahead), *dense)
    )


def _embedding_parts(
    scenario: Scenario, tables: Mapping[str, Table], shards: Iterable[PlanRow], ahead: Iterable[MemoryPart]
) -> tuple[MemoryPart, ...]:
    """Return a rank's rows and their optimizer state, ids and what they look up for all ranks that share them, and
    their gradients; and the parts `ahead`."""
    model, samples = Recommender.of(scenario.workload).model, scenario.batch_size * scenario.sharding_ranks
    weights = cache = state = hosted = buffers = 0.0
    for shard in shards:
        stays = shard.sharding_kind.is_copied
        table = tables[shard.table]
        bag, pooled = table.bag, len(table.by_feature) * (scenario.batch_size if stays else samples)
        own = device_bytes(shard, model, {table.name: table.cache_load_factor})
        whole = whole_bytes(shard, model)
        if shard.kernel.is_cached:
            cached = round(shard.rows * table.cache_load_factor)
            cache += own.weights + CACHE_ROW_BYTES * shard.rows + CACHED_ROW_BYTES * cached
            hosted += whole.weights  # also of rows that the cache has
        else:
            weights += own.weights
            hosted += whole.weights - own.weights
        state += own.state
        hosted += whole.state - own.state
        ids = shard.ids_per_step if bag != "distinct" else _distinct_ids(scenario, shard)
        found = (ids if bag in ("sequence", "distinct") else pooled) * shard.columns
        buffers += _buffer_bytes(scenario, bag, ids=ids, lengths=pooled, found=found, stays=stays)
    sizes = {"embedding weights": weights, "embedding optimizer": state, "sparse buffers": buffers}
    parts = [MemoryPart(name, round(size)) for name, size in sizes.items()]
    parts += ahead
    if cache:
        parts.append(MemoryPart("embedding cache", round(cache)))
    if hosted:
        parts.append(MemoryPart("embedding rows in host memory", round(hosted), IN_HOST))
    return tuple(parts)


def _distinct_ids(scenario: Scenario, shard: PlanRow) -> float:
    """What all ranks together send of ids that each has made distinct."""
    (table,) = (table for table in scenario.workload.tables if table.name == shard.table)
    rows = range(shard.row_offset, shard.row_offset + shard.rows)
    return scenario.sharding_ranks * sum(
        distinct_rows(feature, rows, expected_ids(feature, rows, scenario.batch_size)) for feature in table.by_feature
    )


def _ahead_bytes(scenario: Scenario) -> dict[str, float]:
    """What a rank has of its own batches, if they are copied to it: ids of that which is trained on and all of those
    behind it; and what has come home of the next batch's rows in a semi-synchronous pipeline."""
    workload, samples = Recommender.of(scenario.workload), scenario.batch_size
    model, pipeline = workload.model, workload.pipeline
    element_bytes: int = getattr(torch, model.dtype).itemsize
    naming = 0.0
    for feature in model.features:
        ids = float(draws_of(feature, samples).moments().mean[0])
        weight_bytes = WEIGHT_BYTES if feature.weighted else 0
        naming += (getattr(torch, model.ids_dtype).itemsize + weight_bytes) * ids
        naming += getattr(torch, model.lengths_dtype).itemsize * samples
    dense = float(samples * (model.dense_features * element_bytes + LABEL_BYTES))
    copied = (pipeline.copied_ahead + 1) * naming + pipeline.copied_ahead * dense if scenario.copies_batches else 0.0
    rows = samples * sum(feature.dim * max(1, feature.sequence) for feature in model.features) * element_bytes
    return {"batches": copied, "embeddings ahead": rows if pipeline.kind == "semi_sync" else 0.0}


def _buffer_bytes(
    scenario: Scenario, bag: Bag, *, ids: Number, lengths: Number, found: Number, stays: bool = False
) -> Number:
    """Bytes of so many ids and lengths for a rank, and elements of what it looks up and of its gradient.

    Unless that `stays`, there is also what is sent of both where it is encoded.
    """
    workload = Recommender.of(scenario.workload)
    model, pipeline = workload.model, workload.pipeline
    id_bytes: int = getattr(torch, model.ids_dtype).itemsize
    length_bytes: int = getattr(torch, model.lengths_dtype).itemsize
    held = 3 if pipeline.kind == "semi_sync" else 2  # what is looked up, of the next batch too, and a gradient
    element_bytes: float = held * getattr(torch, model.dtype).itemsize
    if not stays:
        codecs = quantized_comms(workload.qcomms).all_to_all
        sent = (codec.encoded_size(1.0) * codec.dtype.itemsize for codec in (codecs.forward, codecs.backward) if codec)
        element_bytes += sum(sent)
    # Ids arrive source-major and are put into key-major order: twice; and a pipeline has the next batches' too.
    copies = 2 + pipeline.exchanged_ahead
    weight_bytes = WEIGHT_BYTES if bag == "weighted" else 0
    naming: Number = (id_bytes + weight_bytes) * ids + length_bytes * lengths
    return copies * naming + element_bytes * found


def expected_features(model: Model, batch_size: int) -> dict[Bag, ExpectedJagged]:
    """What each rank has of every feature before any exchange."""
    by_feature = {bag: [each for table in tables for each in table.by_feature] for bag, tables in model.bags.items()}
    return {
        bag: ExpectedJagged(
            keys=tuple(feature.name for feature in features),
            ids=tuple(float(draws_of(feature, batch_size).moments().mean[0]) for feature in features),
            stride=batch_size,
            weighted=bag == "weighted",
            ids_dtype=getattr(torch, model.ids_dtype),
            lengths_dtype=getattr(torch, model.lengths_dtype),
        )
        for bag, features in by_feature.items()
    }


def expected_inputs(groups: Sequence[TableGroup], model: Model, batch_size: int) -> tuple[ExpectedInput, ...]:
    """The groups' input exchanges."""
    draws = {
        feature.name: (DistinctDraws(feature, batch_size) if feature.index_dedup else draws_of(feature, batch_size))
        for feature in model.features
    }
    return tuple(
        (ExpectedDistinct if isinstance(group, DistinctGroup) else ExpectedInput)(
            group.layout, draws, group.label, sequence=isinstance(group, SequenceGroup)
        )
        for group in groups
    )


def rank_loads(groups: Sequence[TableGroup], inputs: Sequence[ExpectedInput], scenario: Scenario) -> Floats:
    """What each rank does of each group: ids for it from one rank, elements of their rows, keys, elements of what is
    sent back to that rank, and of rows in host memory, weighted by their kernel; [groups, ranks, 5]. Tables that every
    rank has a copy of are left out.
    """
    world_size, batch_size, hosted = scenario.cluster.world_size, scenario.batch_size, _hosted(scenario)
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


def _hosted(scenario: Scenario) -> dict[str, float]:
    """By table a number that is the same where kernels are: hosts that differ in it are not alike."""
    tables = [(table, scenario.kernel_of(table)) for table in scenario.workload.tables]
    return {
        table.name: table.cache_load_factor if kernel.is_cached else 2.0 if kernel.is_in_host else 0.0
        for table, kernel in tables
    }


def host_loads(loads: Floats, gpus: int) -> Floats:
    """Regroup `rank_loads` by host, [hosts, numbers]."""
    groups, ranks, kinds = loads.shape
    return loads.transpose(1, 0, 2).reshape(ranks // gpus, gpus * groups * kinds)


def held_bytes(loads: Floats, bags: Sequence[Bag], plan: Plan, scenario: Scenario) -> Floats:
    """Bytes of embedding rows, their optimizer and sparse buffers, [ranks]; without what is equal on all ranks.

    `loads` are `rank_loads`, `bags` those of its groups.
    """
    world, buffers = plan.world_size, np.zeros(plan.world_size)
    for bag, of_rank in zip(bags, loads, strict=True):
        ids, _, keys, found, _ = world * of_rank.T
        buffers += _buffer_bytes(scenario, bag, ids=ids, lengths=scenario.batch_size * keys, found=found)
    return np.asarray(np.array(plan.weight_bytes) + np.array(plan.optimizer_bytes) + buffers)
