"""Checks across the keys of the tables `model` and `sharding` of a scenario file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from scenarios.compute_kernel import names_of
from scenarios.config.scenario import Model, Planner
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.reading import expected_phrase
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.values import (
    BYTES_BELOW,
)
from scenarios.config.units import format_bytes
from scenarios.planner.make_room import make_room
from scenarios.planner.plan_file import GivenTable, read_plan
from scenarios.sharding_kind import (
    DEFAULT_TYPES,
    DISTINCT_TYPES,
    SEQUENCE_TYPES,
    ShardingKind,
    ShardingType,
    widest_reach,
)
from scenarios.workloads.dlrm.ids.checks import check_ids, check_names
from scenarios.workloads.step_tables import REPLICATION, check_host_path, sharding_shape

INT32_ROWS = 1 << 31
# Averaging would also write back and empty the caches, which hold rows of batches that were fetched ahead.
_IN_GPU = names_of(lambda kernel: not kernel.is_in_host)
_CACHED = names_of(lambda kernel: kernel.is_cached)
_NOT_CACHED = names_of(lambda kernel: not kernel.is_cached)
WHY_IN_GPU = "with replication, which averages rows in GPU memory"


def _check_model(model: Any, document: Document, look: Look) -> None:
    """Add what is missing from the model or does not fit together."""
    mistakes = look.mistakes
    look.need(("model",), model, "dense_features", "tables")
    if model.dense is None:
        look.need(("model",), model, "bottom", "top", "interaction")
        look.refuse(("model",), model, ("dense_options",), "without dense")
    else:
        look.refuse(("model",), model, ("bottom", "top", "interaction"), "with dense, which is in their place")
    if model.dense_optimizer is not None:
        look.need(("model", "dense_optimizer"), model.dense_optimizer, "kind")
    for key in ("bottom", "top", "tables"):
        if getattr(model, key) is not None and not getattr(model, key):
            mistakes.add(("model", key), f"at least one {'table' if key == 'tables' else 'width'}")
    if model.top and model.top[-1] != 1:
        mistakes.add(("model", "top"), "a last width of 1, the logit")
    if model.interaction is not None:
        _check_interaction(model.interaction, model, look)
    check_names(((("model", "tables", at), one.name) for at, one in enumerate(model.tables or [])), {}, mistakes)
    given = _given_plan(document, mistakes)
    rooms = _Rooms(document)
    for index, table in enumerate(model.tables or []):
        path: KeyPath = ("model", "tables", index)
        _check_table(table, path, model, look)
        if table.ranks is not None or table.hosts is not None:
            _check_pins(table, path, document, look, given)
        if table.kernel is not None or table.cache_load_factor is not None:
            _check_kernel(table, path, document, look, given)
        if given is None:
            _check_fits(table, path, model, rooms, mistakes)
    check_ids(model, look)


def _check_types(types: Sequence[str], path: KeyPath, mistakes: Mistakes) -> None:
    """Add what is wrong with a list of sharding types."""
    if not types:
        mistakes.add(path, "at least one sharding type")
    elif len(set(types)) < len(types):
        mistakes.add(path, "each sharding type once")


def own_types(table: Any) -> tuple[str, tuple[ShardingType, ...]]:
    """Return the key that limits a table's sharding types, and these types; ("", ()) if nothing limits them."""
    if table.index_dedup:
        return "index_dedup", DISTINCT_TYPES
    return ("", ()) if table.sequence is None else ("a sequence", SEQUENCE_TYPES)


def _is_in_host(table: Any) -> bool:
    """Return whether the table's rows lie in the host's memory, without a plan."""
    return table.kernel is not None and table.kernel.is_in_host


def _check_interaction(interaction: Any, model: Any, look: Look) -> None:
    path = ("model", "interaction")
    look.need(path, interaction, "kind")
    if interaction.kind == "dcn":
        look.need(path, interaction, "layers", "low_rank")
    elif interaction.kind is not None:
        look.refuse(path, interaction, ("layers", "low_rank"), f"with kind = '{interaction.kind}'")
    if interaction.kind == "dot":
        _check_dot(model, look.mistakes)


def _check_dot(model: Any, mistakes: Mistakes) -> None:
    width = model.bottom[-1] if model.bottom else None
    for index, table in enumerate(model.tables or []):
        dim = table.dim or model.embedding_dim
        if width is not None and dim is not None and dim != width:
            key: KeyPath = ("model", "tables", index, "dim") if table.dim else ("model", "embedding_dim")
            if mistakes.sound(key):
                mistakes.add(key, f"{width}, the last width of model.bottom, because of interaction 'dot'")


def _check_table(table: Any, path: KeyPath, model: Any, look: Look) -> None:
    mistakes = look.mistakes
    if table.name is None or table.rows is None:
        look.need(path, table, "name", "rows")
    if table.count is not None:
        mistakes.add(
            (*path, "count"), f"a value of its own, such as --set {mistakes.name_of(path)}.count={table.count}"
        )
    if table.sequence is not None:
        look.refuse(path, table, ("weighted", "index_dedup"), "with sequence")
        if model.dense is None:
            mistakes.add((*path, "sequence"), "no sequence without model.dense, a module that takes one")
    if table.dim is None and model.embedding_dim is None and mistakes.sound(("model", "embedding_dim")):
        mistakes.missing((*path, "dim"), f"{expected_phrase(type(table), 'dim')}, here or as model.embedding_dim")
    if table.sharding is not None:
        _check_types(table.sharding, (*path, "sharding"), mistakes)
    if table.index_dedup:
        look.refuse(path, table, ("weighted",), "with index_dedup")
        if table.kernel is not None and table.kernel.is_cached:
            mistakes.add((*path, "kernel"), f"{_NOT_CACHED} with index_dedup")
    reason, own = own_types(table) if table.sharding is not None else ("", ())
    if own and not {*table.sharding} <= {*own}:
        mistakes.add((*path, "sharding"), f"of a table with {reason} {' or '.join(own)}")
    if model.ids_dtype == "int32" and (table.rows or 1) > INT32_ROWS:
        mistakes.add((*path, "rows"), f"at most {INT32_ROWS} rows with model.ids_dtype = 'int32'")


def _check_pins(
    table: Any, path: KeyPath, document: Document, look: Look, given: Mapping[str, GivenTable] | None
) -> None:
    mistakes, (ranks, host_ranks) = look.mistakes, sharding_shape(document)
    if given is not None:
        if not _lies_there(table, given, host_ranks):
            look.refuse(path, table, ("ranks", "hosts"), "with sharding.plan, which places every table")
    elif table.ranks is not None:
        look.refuse(path, table, ("hosts",), "with ranks")
    hosts = (document.cluster or ClusterSection()).hosts
    if REPLICATION.of(document) is not None:
        hosts = None if ranks is None or host_ranks is None else ranks // host_ranks
    counts = {"hosts": hosts, "ranks": ranks}
    for key, count in counts.items():
        named = getattr(table, key)
        if named is None or count is None:
            continue
        if not named or len(set(named)) < len(named):
            mistakes.add((*path, key), f"at least one of the {key}, and each once")
        elif max(named) >= count:
            mistakes.add((*path, key), f"{key} from 0 to {count - 1}")


def _lies_there(table: Any, given: Mapping[str, GivenTable], host_ranks: int | None) -> bool:
    """Return whether the plan has a table on the ranks, or all ranks of the hosts, to which the scenario pins it."""
    place = given.get(table.name or "")
    if place is None or host_ranks is None:
        return False
    ranks = list(dict.fromkeys(place.ranks))
    of_hosts = {host * host_ranks + rank for host in table.hosts or [] for rank in range(host_ranks)}
    return tuple(ranks) == table.ranks if table.ranks is not None else set(ranks) == of_hosts


def _check_kernel(
    table: Any, path: KeyPath, document: Document, look: Look, given: Mapping[str, GivenTable] | None
) -> None:
    if given is not None:
        place = given.get(table.name or "")
        if place is None or place.kernel != table.kernel:
            look.refuse(path, table, ("kernel",), "with sharding.plan, which says it of every table")
        return
    if table.kernel is None or not table.kernel.is_cached:
        look.refuse(path, table, ("cache_load_factor",), f"unless kernel = {_CACHED}")
    if not _is_in_host(table):
        return
    if _averages_on_gpus(document):
        look.mistakes.add((*path, "kernel"), f"{_IN_GPU} {WHY_IN_GPU}")
    types = table.sharding or SHARDING.or_empty(document).types or DEFAULT_TYPES
    if all(ShardingKind(kind).is_copied for kind in types):
        look.mistakes.add((*path, "kernel"), f"{_IN_GPU}, because the table may be {types[0]} only")
    check_host_path(f"table {table.name!r} is {table.kernel}", document, look.mistakes)


def _averages_on_gpus(document: Document) -> bool:
    """Return whether replicas of rows are averaged on GPUs, which is priced and done in GPU memory."""
    return REPLICATION.of(document) is not None and _has_own_memory(document)


def _has_own_memory(document: Document) -> bool:
    """Return whether GPUs have memory of their own; assumed until a kind is named."""
    return document.device is None or document.device.has_own_memory


def _given_plan(document: Document, mistakes: Mistakes) -> Mapping[str, GivenTable] | None:
    """Return the tables of the scenario's plan file, {} if it cannot be read; None without a plan."""
    plan = SHARDING.or_empty(document).plan
    if plan is None:
        return None
    with suppress(ValueError):  # the check of `sharding` reports it
        return read_plan(named_file(mistakes, ("sharding", "plan"), plan))
    return {}


def _check_fits(table: Any, path: KeyPath, model: Any, rooms: _Rooms, mistakes: Mistakes) -> None:
    """Check that the widest of the table's sharding types has room at least for its weights."""
    types, dim = table.sharding or rooms.types, table.dim or model.embedding_dim
    in_host = _is_in_host(table) and rooms.has_own_memory
    widest = widest_reach(tuple(types))
    room = rooms.in_host[widest] if in_host else rooms.in_gpus[widest]
    if dim is None or table.rows is None:
        return
    row_bytes = dim * (4 if (model.embedding_dtype or model.dtype or "float32") == "float32" else 2)
    size_bytes = table.rows * row_bytes
    if size_bytes < BYTES_BELOW and (room is None or size_bytes <= room):
        return
    own: KeyPath = (*path, "sharding") if table.sharding else ("sharding", "types")
    dtypes: tuple[KeyPath, ...] = (("model", "dtype"), ("model", "embedding_dtype"))
    if not mistakes.sound(own, (*path, "dim"), (*path, "rows"), *dtypes, ("sharding", "reserved_share")):
        return
    if size_bytes >= BYTES_BELOW or room is None:
        rows = (BYTES_BELOW - 1) // row_bytes
        mistakes.add((*path, "rows"), f"at most {rows} rows of {row_bytes} bytes, below {format_bytes(BYTES_BELOW)}")
        return
    used = [kind for kind in types if ShardingKind(kind).reach == widest]
    ways = make_room(
        widest,
        halves=row_bytes == 4 * dim,
        in_host=in_host,
        may_leave=rooms.has_own_memory and not in_host,
    )
    most = f"at most {int(room // row_bytes)} rows of {row_bytes} bytes"
    place = f"{_PLACES[widest]} {format_bytes(room)} {'of host memory' if in_host else 'for tables'}"
    mistakes.add((*path, "rows"), f"{most}, as a {' or '.join(used)} table lies on {place}{ways}")


_PLACES = {
    "GPU": "one GPU, which has",
    "host": "the GPUs of one host, which have together",
    "cluster": "all GPUs, which have together",
}


class _Rooms:
    """The memory for tables of one GPU, host and cluster, in GPUs and in hosts; None while unknown."""

    def __init__(self, document: Document) -> None:
        cluster, sharding = document.cluster or ClusterSection(), SHARDING.or_empty(document)
        self.has_own_memory, self.types = _has_own_memory(document), sharding.types or DEFAULT_TYPES
        memory, gpus_per_host = cluster.gpu.memory if cluster.gpu else None, cluster.gpus_per_host
        kept = Planner().reserved_share if sharding.reserved_share is None else sharding.reserved_share
        in_gpu = None if memory is None else memory * (1 - kept)
        known = cluster.host_memory is not None and gpus_per_host is not None
        in_host = cluster.host_memory // gpus_per_host if known else None
        ranks, host_ranks = sharding_shape(document)
        counts = {"GPU": 1, "host": host_ranks, "cluster": ranks}
        self.in_gpus, self.in_host = (
            {name: None if room is None or count is None else room * count for name, count in counts.items()}
            for room in (in_gpu, in_host)
        )


def _check_sharding(sharding: Any, document: Document, look: Look) -> None:
    if sharding.types is not None:
        _check_types(sharding.types, ("sharding", "types"), look.mistakes)
    model = MODEL.of(document)
    if sharding.plan is not None and model is not None:
        try:
            given = read_plan(named_file(look.mistakes, ("sharding", "plan"), sharding.plan))
            _check_plan(given, model)
            _check_caches(given, model, look)
            for name, table in given.items():
                if table.kernel.is_in_host:
                    check_host_path(f"the plan has table {name!r} as {table.kernel}", document, look.mistakes)
                    if _averages_on_gpus(document):
                        raise ValueError(
                            f"tables that are {_IN_GPU} {WHY_IN_GPU}, but it has {name!r} as {table.kernel}"
                        )
                    break
        except ValueError as error:
            look.mistakes.add(("sharding", "plan"), str(error))


def _check_plan(given: Mapping[str, GivenTable], model: Any) -> None:
    """Raise ValueError if the plan's tables are not the model's."""
    tables = {table.name: table for table in model.tables or []}
    lacking = [name for name in tables if name is not None and name not in given]
    unknown = [name for name in given if name not in tables]
    if lacking:
        raise ValueError(f"a place for each of the model's tables, but it has none for {_few(lacking)}")
    if unknown:
        raise ValueError(f"no tables but the model's, but it has {_few(unknown)}")
    for name, table in tables.items():
        wanted = (table.rows, table.dim or model.embedding_dim)
        if name is None or None in wanted or not given[name].shards:
            continue
        reason, own = own_types(table)
        if own and given[name].sharding_type.value not in own:
            raise ValueError(
                f"{' or '.join(own)} for table {name!r}, which has {reason}, but it is {given[name].sharding_type}"
            )
        rows, columns = given[name].size
        if (rows, columns) != wanted:
            raise ValueError(
                f"shards of {wanted[0]} x {wanted[1]} for table {name!r}, but they make up {rows} x {columns}"
            )


def _check_caches(given: Mapping[str, GivenTable], model: Any, look: Look) -> None:
    """Check that a table sets the size of its cache only if the plan gives it a cache without a size."""
    for index, table in enumerate(model.tables or []):
        place = given.get(table.name or "")
        if place is None:
            continue
        if not place.kernel.is_cached:
            reason = f"unless sharding.plan has the table as {_CACHED}"
        elif place.load_factor not in (None, table.cache_load_factor):
            reason = f"with sharding.plan, which has the table's load_factor, {place.load_factor}"
        else:
            continue
        look.refuse(("model", "tables", index), table, ("cache_load_factor",), reason)


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


MODEL = ScenarioTable(
    key="model",
    values=Model,
    about="The recommender. Required by program 'dlrm'.",
    check=_check_model,
)
SHARDING = ScenarioTable(
    key="sharding",
    values=Planner,
    section=section_of(Planner, "ShardingSection"),
    about="Options of the planner. Default: the default of each key.",
    check=_check_sharding,
)
