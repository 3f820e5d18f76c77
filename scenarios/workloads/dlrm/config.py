"""Builds a recommender from a scenario file's tables, and declares the program that runs it; loads no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from scenarios.config.scenario import (
    CACHE_LOAD_FACTOR,
    Buckets,
    Feature,
    Ids,
    Model,
    PlanFile,
    Planner,
    Recommender,
    Scenario,
)
from scenarios.config.scenario import Table as EmbeddingTable
from scenarios.config.scenario.recommender import FileIds, MeanIds, ZipfIds
from scenarios.config.toml.derive import freeze
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, check_dtype
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.given_file import content
from scenarios.planner.plan_file import GivenTable, read_plan
from scenarios.sharding_kind import DEFAULT_TYPES, ShardingKind, ShardingType, may_cut_rows
from scenarios.workloads.dlrm.checks import MODEL, SHARDING, own_types
from scenarios.workloads.dlrm.ids.file import read_bags
from scenarios.workloads.dlrm.optimizer_checks import check_precision
from scenarios.workloads.effort import Effort
from scenarios.workloads.locate import import_named
from scenarios.workloads.step_tables import (
    BUCKETS,
    COMPRESSION,
    DATA,
    DENSE_PARALLEL,
    LAUNCHING,
    PIPELINE,
    QCOMMS,
    REPLICATION,
    check_data,
    check_qcomms_dtype,
    sharding_shape,
    why_each_shard,
)

# Messages of a group's exchanges: sizes, lengths, ids, pooled rows and their gradients; operations of a group, with the
# computations between messages; operations of a layer: its passes and its share of the reduction.
EXCHANGES_OF_GROUP, OPERATIONS_OF_GROUP, OPERATIONS_OF_LAYER = 5, 16, 4
UNIFORM = Ids()
NUMBER_BYTES = 8  # of an id or a bag's length in a loaded batch


def _model(document: Document, mistakes: Mistakes) -> Model:
    model, gpus = MODEL.of(document), have(sharding_shape(document)[1])
    sharding = SHARDING.or_empty(document)
    types, placed = sharding.types or DEFAULT_TYPES, {}
    if sharding.plan is not None:
        placed = read_plan(_plan_file(sharding, mistakes))
    tables = []
    for index, table in enumerate(model.tables):
        path: KeyPath = ("model", "tables", index)
        ranks = _pinned_ranks(table, gpus) if table.ranks or table.hosts else ()
        place = placed.get(table.name)
        chosen = {
            "dim": table.dim or model.embedding_dim,
            "ranks": ranks,
            **_bags_of_table(table, model.ids_per_sample, mistakes, path),
        }
        chosen |= _kernel(table, get_args(ShardingType) if ranks else types, place)
        tables.append(freeze(EmbeddingTable, table, **chosen))
    dtype = model.embedding_dtype or model.dtype or "float32"
    return MODEL.build(document, tables=tuple(tables), embedding_dtype=dtype)


def _kernel(table: Any, usual: Sequence[str], place: GivenTable | None) -> dict[str, Any]:
    """Return the fields of a table for its kernel and the sharding types that it may take.

    They follow from `place`, the table's entry in a plan file, if there is one.
    """
    if place is not None:
        share = place.load_factor or table.cache_load_factor or CACHE_LOAD_FACTOR
        return {"sharding": (place.sharding_type.value,), "kernel": place.kernel, "cache_load_factor": share}
    if own := own_types(table)[1] if table.index_dedup or table.sequence else ():
        usual = [kind for kind in usual if kind in own] or own
    if table.kernel is not None and table.kernel.is_in_host:
        usual = [kind for kind in usual if not ShardingKind(kind).is_copied]
    return {"sharding": tuple(table.sharding or usual)}


def _pinned_ranks(table: Any, gpus: int) -> tuple[int, ...]:
    """Return the ranks to which the table is pinned, with `gpus` ranks per host."""
    of_hosts = [range(host * gpus, (host + 1) * gpus) for host in table.hosts or []]
    return tuple(table.ranks or chain.from_iterable(of_hosts))


def _bags_of_table(table: Any, usual: Any, mistakes: Mistakes, path: KeyPath) -> dict[str, Any]:
    """Return the fields on bags of a table, or of its features; `usual` ids where neither says how many."""
    if not table.features:
        return _bags(table, usual, mistakes, path)
    features = [
        freeze(Feature, feature, **_bags(feature, usual, mistakes, (*path, "features", place)))
        for place, feature in enumerate(table.features)
    ]
    total = sum(feature.ids_per_sample for feature in features)
    return {"features": tuple(features), "ids_per_sample": total, "ids": UNIFORM}


def _bags(section: Any, usual: Any, mistakes: Mistakes, path: KeyPath) -> dict[str, Any]:
    """Return the fields on bags of a table or a feature: the law of ids, and their number per sample."""
    law, count = section.ids, usual if section.ids_per_sample is None else section.ids_per_sample
    kind = getattr(law, "declared_by", None)
    if kind is FileIds:
        file = named_file(mistakes, (*path, "ids", "file"), law.file)
        lengths = [len(bag) for bag in read_bags(file)]
        fixed, mean = len(set(lengths)) == 1, sum(lengths) / len(lengths)
        ids = Ids(kind="file", path=file, sha256=_sha256(file))
        return {"ids": ids, "ids_per_sample": mean, "ids_per_sample_kind": "fixed" if fixed else "poisson"}
    ids = UNIFORM
    if kind is ZipfIds:
        ids = _zipf(law.zipf, law.order or "shuffled", law.bags or "independent")
    if getattr(count, "declared_by", None) is MeanIds:
        return {"ids": ids, "ids_per_sample": count.mean, "ids_per_sample_kind": "poisson"}
    return {"ids": ids, "ids_per_sample": float(count)}


@lru_cache
def _zipf(exponent: float, order: Any, bags: Any) -> Ids:
    """Return the law, cached so that all tables with it share one value."""
    return Ids(kind="zipf", exponent=exponent, order=order, bags=bags)


def _sha256(file: Path) -> str:
    return hashlib.sha256(content(file)).hexdigest()


def _check(document: Document, look: Look) -> None:
    section = MODEL.of(document)
    check_dtype(section.dtype if section else None, "model", document, look)
    sharding = SHARDING.of(document)
    if sharding is not None and sharding.choose == "simulated" and sharding.plan is not None:
        look.mistakes.add(("sharding", "choose"), "'estimated' beside sharding.plan, which is taken as it is")
    check_qcomms_dtype(section.dtype if section else None, document, look)
    check_data(document, look)
    if section is not None:
        check_precision(section, document, look)
    if section is not None and section.dense is not None:
        try:
            import_named(section.dense, Path(look.mistakes.tree.origin(("model", "dense"))).parent)
        except ValueError as error:
            look.mistakes.add(("model", "dense"), str(error))


def _planner(document: Document, mistakes: Mistakes) -> Planner:
    sharding = SHARDING.of(document)
    if sharding is None or sharding.plan is None:
        return SHARDING.build(document)
    file = _plan_file(sharding, mistakes)
    return SHARDING.build(document, plan=PlanFile(path=file, sha256=_sha256(file)))


def _plan_file(sharding: Any, mistakes: Mistakes) -> Path:
    return named_file(mistakes, ("sharding", "plan"), sharding.plan)


def _buckets(document: Document, mistakes: Mistakes) -> Buckets:
    """Build the buckets; the first one is as large as the others, unless the document says otherwise."""
    buckets, section = BUCKETS.build(document), BUCKETS.of(document)
    is_given = section is not None and section.first is not None
    return buckets if is_given else replace(buckets, first_bytes=buckets.cap_bytes)


def _why_each(document: Document) -> str:
    section = REPLICATION.of(document)
    return (
        why_each_shard(document)
        if section is None
        else f"replication.sharding_group_size = {section.sharding_group_size}"
    )


def _effort(scenario: Scenario) -> Effort:
    """Estimate the effort as if each table took its most expensive allowed type."""
    features = Recommender.of(scenario.workload).model.features
    read = {feature.name for feature in features if feature.index_dedup or may_cut_rows(feature.sharding)}
    return step_effort(scenario, read, len({kind for feature in features for kind in feature.sharding}))


def step_effort(scenario: Scenario, read: Collection[str], groups: int) -> Effort:
    """Return the effort of simulating every rank, with real ids of the features `read`, and `groups` table groups."""
    workload, ranks = Recommender.of(scenario.workload), scenario.cluster.world_size
    model, pipeline, features = workload.model, workload.pipeline, workload.model.features
    ids = sum([feature.ids_per_sample for feature in features if feature.name in read])
    layers = len(model.bottom) + len(model.top) + model.interaction.layers
    passes = pipeline.accumulation
    held = workload.data.held_batches(scenario.run.steps * passes + pipeline.depth)
    numbers = len(features) + sum([feature.ids_per_sample for feature in features])
    return Effort(
        entries=passes * ranks * scenario.run.batch_size * (len(features) + ids),
        pairs=passes * ranks * scenario.sharding_ranks * groups * EXCHANGES_OF_GROUP,
        operations=passes * ranks * (groups * OPERATIONS_OF_GROUP + layers * OPERATIONS_OF_LAYER),
        loaded_bytes=held * ranks * scenario.run.batch_size * numbers * NUMBER_BYTES,
    )


SPEC = ProgramSpec(
    factory="scenarios.workloads.dlrm.program:DlrmProgram",
    workload=Recommender,
    summary="a training step of a recommender",
    needs=replace(MODEL, make=_model),
    may=(
        replace(SHARDING, field="planner", make=_planner),
        replace(BUCKETS, make=_buckets),
        *(COMPRESSION, PIPELINE, DATA, LAUNCHING, QCOMMS, REPLICATION, DENSE_PARALLEL),
    ),
    batch_size="required",
    check=_check,
    why_each=_why_each,
    effort=_effort,
    names=("model", "dense"),
)
