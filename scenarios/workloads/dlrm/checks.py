"""What must hold within a recommender: layers, tables, and that each table fits somewhere; the rest is `checks`'."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.config.ids_file import read_bags
from scenarios.config.scenario import Planner, ShardingType
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.reading import expected
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.values import BYTES_BELOW
from scenarios.config.units import format_bytes
from scenarios.workloads.dlrm.sections import (
    FileIds,
    InteractionSection,
    MeanIds,
    ModelSection,
    ShardingSection,
    TableSection,
    ZipfIds,
)

DEFAULT_TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "table_row_wise", "data_parallel")
WIDEST_FIRST = ("cluster", "host", "GPU")
REACH = {  # over what a table of this type may be spread
    **{"data_parallel": "GPU", "table_wise": "GPU", "table_row_wise": "host", "table_column_wise": "host"},
    **{"row_wise": "cluster", "column_wise": "cluster", "grid_shard": "cluster"},
}


def _check_model(model: ModelSection, document: Document, look: Look) -> None:
    """Add what is missing from the model or does not fit together."""
    mistakes = look.mistakes
    for key in ("dense_features", "bottom", "top", "interaction", "tables"):
        if getattr(model, key) is None:
            mistakes.missing(("model", key), expected(ModelSection, key))
    for key in ("bottom", "top", "tables"):
        if getattr(model, key) == []:
            mistakes.add(("model", key), f"at least one {'table' if key == 'tables' else 'width'}")
    if model.top and model.top[-1] != 1:
        mistakes.add(("model", "top"), "a last width of 1, the logit")
    _check_interaction(model.interaction or InteractionSection(), model, mistakes)
    _check_names(model.tables or [], mistakes)
    for index, table in enumerate(model.tables or []):
        _check_table(table, ("model", "tables", index), model, mistakes)
        _check_fits(table, ("model", "tables", index), document, mistakes)


def _check_types(types: Sequence[str] | None, path: KeyPath, mistakes: Mistakes) -> None:
    """Add what is wrong with a list of sharding types."""
    if types is not None and len(types) == 0:
        mistakes.add(path, "at least one sharding type")
    elif types is not None and len(set(types)) < len(types):
        mistakes.add(path, "each sharding type once")


def table_dim(table: TableSection, model: ModelSection) -> int | None:
    """Elements a row: the table's own, else the model's."""
    return table.dim or model.embedding_dim


def _check_interaction(interaction: InteractionSection, model: ModelSection, mistakes: Mistakes) -> None:
    path = ("model", "interaction")
    if interaction.kind is None:
        mistakes.missing((*path, "kind"), expected(InteractionSection, "kind"))
        return
    for key in ("layers", "low_rank"):
        if interaction.kind == "dcn" and getattr(interaction, key) is None:
            mistakes.missing((*path, key), expected(InteractionSection, key))
        if interaction.kind != "dcn" and getattr(interaction, key) is not None:
            mistakes.add((*path, key), f"no {key} with kind = '{interaction.kind}'")
    if interaction.kind == "dot":
        _check_dot(model, mistakes)


def _check_dot(model: ModelSection, mistakes: Mistakes) -> None:
    width = model.bottom[-1] if model.bottom else None
    for index, table in enumerate(model.tables or []):
        dim = table_dim(table, model)
        if width is not None and dim is not None and dim != width:
            key: KeyPath = ("model", "tables", index, "dim") if table.dim else ("model", "embedding_dim")
            if mistakes.sound(key):
                mistakes.add(key, f"{width}, the last width of model.bottom, because of interaction 'dot'")


def _check_names(tables: Sequence[TableSection], mistakes: Mistakes) -> None:
    first: dict[str, int] = {}
    for index, table in enumerate(tables):
        if table.name is not None and first.setdefault(table.name, index) != index:
            place = f"model.tables[{first[table.name]}]"
            mistakes.add(("model", "tables", index, "name"), f"a name of its own, but {place} has it already")


def _check_table(table: TableSection, path: KeyPath, model: ModelSection, mistakes: Mistakes) -> None:
    for key in ("name", "rows"):
        if getattr(table, key) is None:
            mistakes.missing((*path, key), expected(TableSection, key))
    if table_dim(table, model) is None and mistakes.sound(("model", "embedding_dim")):
        mistakes.missing((*path, "dim"), f"{expected(TableSection, 'dim')}, here or as model.embedding_dim")
    _check_types(table.sharding, (*path, "sharding"), mistakes)
    _check_ids(table, path, mistakes)


def _check_ids(table: TableSection, path: KeyPath, mistakes: Mistakes) -> None:
    if isinstance(table.ids_per_sample, MeanIds) and table.ids_per_sample.mean is None:
        mistakes.missing((*path, "ids_per_sample", "mean"), expected(MeanIds, "mean"))
    if isinstance(table.ids, ZipfIds) and table.ids.zipf is None and not _names_file(mistakes, (*path, "ids")):
        mistakes.missing((*path, "ids", "zipf"), expected(ZipfIds, "zipf"))
    if not isinstance(table.ids, FileIds):
        if table.ids_per_sample is None and mistakes.sound((*path, "ids")):
            mistakes.missing((*path, "ids_per_sample"), expected(TableSection, "ids_per_sample"))
        return
    if table.ids_per_sample is not None:
        mistakes.add((*path, "ids_per_sample"), "no ids_per_sample, because the file says it")
    if table.ids.file is not None:
        key = (*path, "ids", "file")
        try:
            read_bags(named_file(mistakes, key, table.ids.file), table.rows)
        except ValueError as error:
            mistakes.add(key, str(error))


def _names_file(mistakes: Mistakes, path: KeyPath) -> bool:
    """Whether the table has a `file` after all, left out of the document because it is wrong."""
    ids = mistakes.tree.at(path)
    return isinstance(ids, dict) and "file" in ids


def _check_fits(table: TableSection, path: KeyPath, document: Document, mistakes: Mistakes) -> None:
    """The widest of the table's sharding types must have room for its weights at least."""
    model, sharding = have(MODEL.of(document)), SHARDING.of(document) or ShardingSection()
    types = table.sharding or sharding.types or DEFAULT_TYPES
    own: KeyPath = (*path, "sharding") if table.sharding else ("sharding", "types")
    settled = mistakes.sound(own, (*path, "dim"), ("model", "dtype"), ("sharding", "reserved_share"))
    widest = min((REACH[kind] for kind in types), key=WIDEST_FIRST.index)
    room = _room_bytes(widest, document)
    dim = table_dim(table, model)
    if not settled or dim is None or table.rows is None:
        return
    row_bytes = dim * (4 if model.dtype in (None, "float32") else 2)
    if table.rows * row_bytes >= BYTES_BELOW:
        rows = (BYTES_BELOW - 1) // row_bytes
        mistakes.add((*path, "rows"), f"at most {rows} rows of {row_bytes} bytes, below {format_bytes(BYTES_BELOW)}")
    elif room is not None and table.rows * row_bytes > room:
        most = f"at most {int(room // row_bytes)} rows of {row_bytes} bytes"
        place = f"in the {format_bytes(room)} that one {widest} has for tables"
        mistakes.add((*path, "rows"), f"{most}, {place}, because it may be {' or '.join(types)}")


def _room_bytes(widest: str, document: Document) -> float | None:
    """What one GPU, host or cluster has for tables; None while that is not known."""
    cluster = document.cluster or ClusterSection()
    memory = cluster.gpu.memory if cluster.gpu else None
    reserved = (SHARDING.of(document) or ShardingSection()).reserved_share
    gpus = {"GPU": (), "host": (cluster.gpus_per_host,), "cluster": (cluster.gpus_per_host, cluster.hosts)}[widest]
    room = None if memory is None else memory * (1 - (Planner().reserved_share if reserved is None else reserved))
    for count in gpus:
        room = None if room is None or count is None else room * count
    return room


def _check_sharding(sharding: ShardingSection, document: Document, look: Look) -> None:
    _check_types(sharding.types, ("sharding", "types"), look.mistakes)


MODEL = Table(
    key="model", section=ModelSection, about="The recommender. Required by program 'dlrm'.", check=_check_model
)
SHARDING = Table(
    key="sharding",
    section=ShardingSection,
    about="What the planner may do. Default: all its defaults.",
    check=_check_sharding,
)
