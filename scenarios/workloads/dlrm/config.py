"""What a scenario file says of a recommender as frozen values, and the program that reads it; loads no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from scenarios.compute_kernel import DEFAULT_KERNEL, ComputeKernel
from scenarios.config.scenario import (
    CACHE_LOAD_FACTOR,
    MIN_PARTITION,
    DenseOptimizer,
    Feature,
    Ids,
    Interaction,
    Model,
    Optimizer,
    PlanFile,
    Planner,
    Scenario,
)
from scenarios.config.scenario import Table as EmbeddingTable
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, check_dtype
from scenarios.config.toml.section import given, have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.given_file import content
from scenarios.planner.plan_file import GivenTable, read_plan
from scenarios.sharding_kind import DEFAULT_TYPES, ShardingKind, ShardingType
from scenarios.workloads.dense_parallel_table import DENSE_PARALLEL, build_dense_parallel, why_each_shard
from scenarios.workloads.dlrm.checks import MODEL, SHARDING, own_types, table_dim
from scenarios.workloads.dlrm.data_table import DATA, build_data, check_data
from scenarios.workloads.dlrm.ids.file import read_bags
from scenarios.workloads.dlrm.optimizer_checks import check_precision
from scenarios.workloads.dlrm.sections import (
    FeatureSection,
    FileIds,
    InteractionSection,
    MeanIds,
    OptimizerSection,
    ShardingSection,
    TableSection,
    ZipfIds,
)
from scenarios.workloads.effort import Effort
from scenarios.workloads.gradient_tables import BUCKETS, COMPRESSION, build_reduction
from scenarios.workloads.locate import imported
from scenarios.workloads.qcomms_table import QCOMMS, build_qcomms, check_qcomms_dtype
from scenarios.workloads.step_tables import LAUNCHING, PIPELINE, REPLICATION, build_step, sharding_shape

# Sizes, lengths, ids, pooled rows and their gradients; with what is computed around them; a layer's passes, and its
# share of the reduction.
EXCHANGES_OF_GROUP, OPERATIONS_OF_GROUP, OPERATIONS_OF_LAYER = 5, 16, 4
NUMBER_BYTES = 8  # of an id or a bag's length in a batch that waits to be trained on


def _model(document: Document, placed: Mapping[str, GivenTable], mistakes: Mistakes) -> Model:
    """The recommender; `placed` has the tables of a given plan by name."""
    model = have(MODEL.of(document))
    interaction = model.interaction or InteractionSection(kind="cat")
    optimizer = given(model.optimizer, *OptimizerSection.model_fields)
    dense_optimizer = None
    if model.dense_optimizer is not None:
        own = model.dense_optimizer
        dense_optimizer = DenseOptimizer(kind=have(own.kind), options=dict(own.model_extra or {}))
    return Model(
        dense_features=have(model.dense_features),
        bottom=tuple(model.bottom or ()),
        interaction=Interaction(
            kind=have(interaction.kind), layers=interaction.layers or 0, low_rank=interaction.low_rank or 0
        ),
        top=tuple(model.top or ()),
        dense=model.dense or "",
        dense_options=dict(model.dense_options.model_extra or {}) if model.dense_options is not None else {},
        dense_optimizer=dense_optimizer,
        tables=tuple(
            _table(table, document, placed, mistakes, index=index) for index, table in enumerate(have(model.tables))
        ),
        dtype=model.dtype or "float32",
        embedding_dtype=model.embedding_dtype or model.dtype or "float32",
        optimizer=Optimizer(**optimizer),
        **given(model, "ids_dtype", "lengths_dtype", "autocast", "loss_scaling", "tf32"),
    )


def _table(
    table: TableSection, document: Document, placed: Mapping[str, GivenTable], mistakes: Mistakes, *, index: int
) -> EmbeddingTable:
    path: KeyPath = ("model", "tables", index)
    features = tuple(
        Feature(name=have(feature.name), **_bags(feature, mistakes, (*path, "features", place)))
        for place, feature in enumerate(table.features or [])
    )
    total = sum(feature.ids_per_sample for feature in features)
    ranks = _pinned(table, have(sharding_shape(document)[1]))
    usual = get_args(ShardingType) if ranks else (SHARDING.of(document) or ShardingSection()).types or DEFAULT_TYPES
    _, own = own_types(table)
    if own:
        usual = tuple(kind for kind in usual if kind in own) or own
    name = have(table.name)
    place = placed.get(name)
    kernel = place.kernel if place else ComputeKernel(table.kernel or DEFAULT_KERNEL)
    if kernel.is_in_host:
        usual = tuple(kind for kind in usual if not ShardingKind(kind).is_copied)
    return EmbeddingTable(
        name=name,
        rows=have(table.rows),
        dim=have(table_dim(table, have(MODEL.of(document)))),
        **({"ids_per_sample": total} if features else _bags(table, mistakes, path)),
        features=features,
        sharding=(place.sharding_type.value,) if place else tuple(table.sharding or usual),
        ranks=ranks,
        min_partition=table.min_partition or MIN_PARTITION,
        weighted=bool(table.weighted),
        sequence=table.sequence or 0,
        index_dedup=bool(table.index_dedup),
        kernel=kernel,
        cache_load_factor=(place.load_factor if place else None) or table.cache_load_factor or CACHE_LOAD_FACTOR,
    )


def _pinned(table: TableSection, gpus: int) -> tuple[int, ...]:
    """The ranks on which the table is to lie, so many a host; () leaves it to the planner."""
    of_hosts = [range(host * gpus, (host + 1) * gpus) for host in table.hosts or []]
    return tuple(table.ranks or chain.from_iterable(of_hosts))


def _bags(section: TableSection | FeatureSection, mistakes: Mistakes, path: KeyPath) -> dict[str, Any]:
    """What a `Table` or a `Feature` is told of its bags."""
    ids, mean, fixed = _ids(section, mistakes, (*path, "ids", "file"))
    return {"ids": ids, "ids_per_sample": mean, "ids_per_sample_kind": "fixed" if fixed else "poisson"}


def _ids(table: TableSection | FeatureSection, mistakes: Mistakes, path: KeyPath) -> tuple[Ids, float, bool]:
    """The ids, how many of them a sample has on average, and whether all samples have that many."""
    if isinstance(table.ids, FileIds):
        file = named_file(mistakes, path, have(table.ids.file))
        lengths = [len(bag) for bag in read_bags(file)]
        return Ids(kind="file", path=file, sha256=_sha256(file)), sum(lengths) / len(lengths), len(set(lengths)) == 1
    ids = Ids()
    if isinstance(table.ids, ZipfIds):
        own = table.ids
        ids = Ids(
            kind="zipf",
            exponent=have(own.zipf),
            order=own.order or "shuffled",
            bags=own.bags or "independent",
        )
    if isinstance(table.ids_per_sample, MeanIds):
        return ids, have(table.ids_per_sample.mean), False
    return ids, float(have(table.ids_per_sample)), True


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
            imported(section.dense, Path(look.mistakes.tree.origin(("model", "dense"))).parent)
        except ValueError as error:
            look.mistakes.add(("model", "dense"), str(error))


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    sharding = SHARDING.of(document)
    plan, placed = None, {}
    if sharding is not None and sharding.plan is not None:
        file = named_file(mistakes, ("sharding", "plan"), sharding.plan)
        plan, placed = PlanFile(path=file, sha256=_sha256(file)), read_plan(file)
    return {
        "model": _model(document, placed, mistakes),
        "planner": Planner(plan=plan, **given(sharding, "choose", "sort_by", "balance_modules", "reserved_share")),
        **build_reduction(document, first_is_cap=True),
        **build_step(document),
        "qcomms": build_qcomms(document),
        "dense_parallel": build_dense_parallel(document),
        "data": build_data(document),
    }


def _why_each(document: Document) -> str:
    section = REPLICATION.of(document)
    return (
        why_each_shard(document)
        if section is None
        else f"replication.sharding_group_size = {section.sharding_group_size}"
    )


def _effort(scenario: Scenario) -> Effort:
    """As if each table took the type of those it may take that reads most."""
    features = have(scenario.model).features
    read = {
        feature.name
        for feature in features
        if feature.index_dedup or any(ShardingKind(kind).cuts_rows for kind in feature.sharding)
    }
    return step_effort(scenario, read, len({kind for feature in features for kind in feature.sharding}))


def step_effort(scenario: Scenario, read: Collection[str], groups: int) -> Effort:
    """Return what simulating every rank takes, with these features' ids read and so many groups of tables."""
    model, ranks = have(scenario.model), scenario.cluster.world_size
    ids = sum(feature.ids_per_sample for feature in model.features if feature.name in read)
    layers = len(model.bottom) + len(model.top) + model.interaction.layers
    passes = scenario.pipeline.accumulation
    held = scenario.data.held_batches(scenario.steps * passes + scenario.pipeline.depth)
    numbers = len(model.features) + sum(feature.ids_per_sample for feature in model.features)
    return Effort(
        entries=passes * ranks * scenario.batch_size * (len(model.features) + ids),
        pairs=passes * ranks * scenario.sharding_ranks * groups * EXCHANGES_OF_GROUP,
        operations=passes * ranks * (groups * OPERATIONS_OF_GROUP + layers * OPERATIONS_OF_LAYER),
        loaded_bytes=held * ranks * scenario.batch_size * numbers * NUMBER_BYTES,
    )


SPEC = ProgramSpec(
    name="dlrm",
    factory="scenarios.workloads.dlrm.program:DlrmProgram",
    summary="a training step",
    needs=MODEL,
    may=(SHARDING, BUCKETS, COMPRESSION, PIPELINE, DATA, LAUNCHING, QCOMMS, REPLICATION, DENSE_PARALLEL),
    batch_size="required",
    plan="scenarios.planner.plan:plan_tables",
    check=_check,
    build=_build,
    why_each=_why_each,
    effort=_effort,
    names=("model", "dense"),
)
