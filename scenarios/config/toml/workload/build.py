"""Checked workload sections to the frozen values that everyone else reads."""

from __future__ import annotations

import hashlib

from scenarios.config.ids_file import read_bags
from scenarios.config.scenario import (
    Collective,
    Compression,
    Exchange,
    Gradients,
    Ids,
    Interaction,
    Model,
    Optimizer,
    ShardingType,
    Table,
)
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.section import given, have
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.workload.model_checks import DEFAULT_TYPES, named_file, table_dim
from scenarios.config.toml.workload.sections import (
    CollectiveSection,
    CompressionSection,
    ExchangeSection,
    FileIds,
    GradientsSection,
    MeanIds,
    ModelSection,
    OptimizerSection,
    ShardingSection,
    TableSection,
    ZipfIds,
)
from scenarios.workloads.resnet import resnet50_shapes


def build_model(model: ModelSection, sharding: ShardingSection | None, mistakes: Mistakes) -> Model:
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
        tables=tuple(_table(table, model, types, mistakes, index) for index, table in enumerate(have(model.tables))),
        dtype=model.dtype or "float32",
        optimizer=Optimizer(**optimizer),
    )


def _table(
    table: TableSection, model: ModelSection, types: tuple[ShardingType, ...], mistakes: Mistakes, index: int
) -> Table:
    ids, mean, fixed = _ids(table, mistakes, ("model", "tables", index, "ids", "file"))
    return Table(
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


def build_compression(compression: CompressionSection | None) -> Compression:
    """The gradients' compression; without effect where there is none."""
    if compression is None or compression.kind in (None, "none"):
        return Compression()
    return Compression(**given(compression, *CompressionSection.model_fields))


def build_exchange(exchange: ExchangeSection) -> Exchange:
    """What program 'all_to_all' sends."""
    return Exchange(size_bytes=have(exchange.size), **given(exchange, "splits", "skew", "dtype"))


def build_collective(collective: CollectiveSection) -> Collective:
    """What program 'collective' calls."""
    options = given(collective, "splits", "skew", "dtype")
    return Collective(op=have(collective.op), size_bytes=have(collective.size), **options)


def build_gradients(gradients: GradientsSection) -> Gradients:
    """What program 'powersgd' reduces."""
    shapes = resnet50_shapes() if gradients.model else tuple(map(tuple, have(gradients.shapes)))
    return Gradients(shapes=shapes, **given(gradients, "forward_flops", "backward_flops", "dtype"))
