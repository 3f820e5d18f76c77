"""What a scenario file says of a recommender as frozen values, and the program that reads it; loads no torch."""

from __future__ import annotations

import hashlib
from typing import Any

from scenarios.config.scenario import Ids, Interaction, Model, Optimizer, Planner, ShardingType
from scenarios.config.scenario import Table as EmbeddingTable
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, check_dtype
from scenarios.config.toml.section import given, have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.workloads.dlrm.ids_file import read_bags
from scenarios.workloads.dlrm.sections import (
    DEFAULT_TYPES,
    MODEL,
    SHARDING,
    FileIds,
    MeanIds,
    ModelSection,
    OptimizerSection,
    ShardingSection,
    TableSection,
    ZipfIds,
    table_dim,
)
from scenarios.workloads.gradient_tables import BUCKETS, COMPRESSION, build_reduction


def _model(model: ModelSection, sharding: ShardingSection | None, mistakes: Mistakes) -> Model:
    """The recommender and the sharding types of its tables."""
    interaction = have(model.interaction)
    types = tuple((sharding.types if sharding else None) or DEFAULT_TYPES)
    optimizer = given(model.optimizer or OptimizerSection(), "kind", "learning_rate")
    return Model(
        dense_features=have(model.dense_features),
        bottom=tuple(have(model.bottom)),
        interaction=Interaction(
            kind=have(interaction.kind), layers=interaction.layers or 0, low_rank=interaction.low_rank or 0
        ),
        top=tuple(have(model.top)),
        tables=tuple(
            _table(table, model, types, mistakes, index=index) for index, table in enumerate(have(model.tables))
        ),
        dtype=model.dtype or "float32",
        optimizer=Optimizer(**optimizer),
    )


def _table(
    table: TableSection, model: ModelSection, types: tuple[ShardingType, ...], mistakes: Mistakes, *, index: int
) -> EmbeddingTable:
    ids, mean, fixed = _ids(table, mistakes, ("model", "tables", index, "ids", "file"))
    return EmbeddingTable(
        name=have(table.name),
        rows=have(table.rows),
        dim=have(table_dim(table, model)),
        ids_per_sample=mean,
        ids_per_sample_kind="fixed" if fixed else "poisson",
        ids=ids,
        sharding=tuple(table.sharding) if table.sharding else types,
    )


def _ids(table: TableSection, mistakes: Mistakes, path: KeyPath) -> tuple[Ids, float, bool]:
    """The ids, how many of them a sample has on average, and whether all samples have that many."""
    if isinstance(table.ids, FileIds):
        file = named_file(mistakes, path, have(table.ids.file))
        lengths = [len(bag) for bag in read_bags(file)]
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        return Ids(kind="file", path=file, sha256=sha256), sum(lengths) / len(lengths), len(set(lengths)) == 1
    ids = Ids()
    if isinstance(table.ids, ZipfIds):
        ids = Ids(kind="zipf", exponent=have(table.ids.zipf), order=table.ids.order or "shuffled")
    if isinstance(table.ids_per_sample, MeanIds):
        return ids, have(table.ids_per_sample.mean), False
    return ids, float(have(table.ids_per_sample)), True


def _check(document: Document, look: Look) -> None:
    section = MODEL.of(document)
    check_dtype(section.dtype if section else None, "model", document, look)


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    sharding = SHARDING.of(document)
    return {
        "model": _model(have(MODEL.of(document)), sharding, mistakes),
        "planner": Planner(**given(sharding, "sort_by", "balance_modules", "reserved_share")),
        **build_reduction(document),
    }


SPEC = ProgramSpec(
    name="dlrm",
    factory="scenarios.workloads.dlrm.program:DlrmProgram",
    summary="a training step",
    needs=MODEL,
    may=(SHARDING, BUCKETS, COMPRESSION),
    batch_size="required",
    plan="scenarios.planner.plan:plan_tables",
    check=_check,
    build=_build,
)
