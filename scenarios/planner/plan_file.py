"""Reads and writes plans as files: TorchRec's `ShardingPlan` in JSON, one `EmbeddingModuleShardingPlan` per module.

    {"sparse_arch.embedding_bag_collection": {
        "t_user": {
            "sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [3],
            "sharding_spec": {"shards": [
                {"shard_offsets": [0, 0], "shard_sizes": [1000, 64], "placement": "rank:3/cuda:3"}]}}}}

Names are those of TorchRec's `ParameterSharding`, `EnumerableShardingSpec` and `ShardMetadata`; a data_parallel table
has no spec. docs/reference/planner.md shows how to save a plan from a running TorchRec job, and how to load one there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from scenarios.compute_kernel import COPIES_KERNEL, DEFAULT_KERNEL, SCENARIO_KERNELS, ComputeKernel
from scenarios.config.toml.look import utf8_content
from scenarios.given_file import parse_json
from scenarios.planner.placed import Plan, PlannedTable
from scenarios.seam.trace import PlanRow
from scenarios.sharding_kind import ShardingKind

MODULE = "sparse_arch.embedding_bag_collection"
"""Where TorchRec's own DLRM has its tables."""

# The plan's file in the folder of a run whose plan was found by simulation.
PLAN_FILE = "plan.json"
_MOST = 2**53  # of an offset, a size or a rank, so that their sums fit into 64 bits
_PLACEMENT = re.compile(r"rank:(\d{1,9})(/.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenShard:
    """A rectangle of a table, and its rank."""

    rank: int
    row_offset: int
    column_offset: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTable:
    """A table's place in a plan file: the ranks of its copies if data_parallel, else shards by column and row.

    `load_factor` is that of its cache; None: the file has none.
    """

    name: str
    sharding_type: ShardingKind
    ranks: tuple[int, ...]
    shards: tuple[GivenShard, ...] = ()
    kernel: ComputeKernel = DEFAULT_KERNEL
    load_factor: float | None = None

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows and columns that the shards cover; there must be at least one shard."""
        ends = [(shard.row_offset + shard.rows, shard.column_offset + shard.columns) for shard in self.shards]
        rows, columns = zip(*ends, strict=True)
        return max(rows), max(columns)


def read_plan(path: Path) -> dict[str, GivenTable]:
    """Return the tables of all modules of a plan, by name.

    Raises:
        ValueError: as `read_modules` does, or two modules have a table of one name; the message is a phrase, too.
    """
    found: dict[str, GivenTable] = {}
    for tables in read_modules(path).values():
        for name, table in tables.items():
            if name in found:
                raise ValueError(f"each table once, but {path} has {name!r} in two modules")
            found[name] = table
    return found


def read_modules(path: Path) -> dict[str, dict[str, GivenTable]]:
    """Return the tables of a plan by the path of their module, and by name.

    Raises:
        ValueError: the file does not exist, is no plan in JSON, or has an unsupported sharding type, kernel or
            placement; the message is the expected phrase.
    """
    content = utf8_content(path)
    try:
        modules = parse_json(content, once=True)
    except ValueError as error:
        raise ValueError(f"a plan in JSON, but {path} is none: {error}") from None
    return {
        module: {
            name: _table(name, _mapping(parameter, f"a ParameterSharding of table {name!r}"))
            for name, parameter in _mapping(tables, f"tables of module {module!r}").items()
        }
        for module, tables in _mapping(modules, "modules").items()
    }


def plan_json(
    plan: Plan,
    gpus_per_host: int,
    device: str,
    module: str = MODULE,
    places: Mapping[str, tuple[str, str]] = {},
) -> str:
    """Format the plan as JSON, one line per table.

    Args:
        plan: the plan.
        gpus_per_host: of the cluster.
        device: cuda or cpu.
        module: the path of the tables' module.
        places: a table's own module, and its name there, by the plan's name of the table.
    """

    def placement(rank: int) -> str:
        return f"rank:{rank}/{device}:{rank % gpus_per_host}" if device == "cuda" else f"rank:{rank}/{device}"

    def shard_of(row: PlanRow) -> dict[str, object]:
        return {
            "shard_offsets": [row.row_offset, row.column_offset],
            "shard_sizes": [row.rows, row.columns],
            "placement": placement(row.rank),
        }

    def parameter_of(table: PlannedTable) -> dict[str, object]:
        shared = not ShardingKind(table.sharding_type).is_copied
        return {
            "sharding_type": table.sharding_type,
            "compute_kernel": table.compute_kernel,
            "ranks": [shard.rank for shard in table.shards],
            "sharding_spec": {"shards": [shard_of(shard) for shard in table.shards]} if shared else None,
            **({"cache_params": {"load_factor": table.load_factor}} if table.load_factor is not None else {}),
        }

    modules: dict[str, list[str]] = {}
    for table in plan.tables:
        path, name = places.get(table.name, (module, table.name))
        modules.setdefault(path, []).append(f"  {json.dumps(name)}: {json.dumps(parameter_of(table))}")
    texts = [f"{json.dumps(path)}: {{\n" + ",\n".join(lines) + "\n}" for path, lines in modules.items()]
    return "{" + ",\n ".join(texts) + "}\n"


def _table(name: str, parameter: Mapping[str, Any]) -> GivenTable:
    sharding_type = ShardingKind(_one_of(parameter, "sharding_type", tuple(ShardingKind), name))
    kernels = (COPIES_KERNEL,) if sharding_type.is_copied else SCENARIO_KERNELS
    kernel = ComputeKernel(_one_of(parameter, "compute_kernel", kernels, name))
    ranks = parameter.get("ranks")
    if ranks is not None:
        _whole(ranks, f"ranks of table {name!r}", len(ranks) if isinstance(ranks, list) else 1)
    if sharding_type.is_copied:
        if not ranks:
            raise ValueError(f"ranks of table {name!r}, which is {sharding_type}")
        return GivenTable(name=name, sharding_type=sharding_type, ranks=tuple(ranks))
    spec = _mapping(parameter.get("sharding_spec"), f"a sharding_spec of table {name!r}")
    listed = spec.get("shards")
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"a list of shards in the sharding_spec of table {name!r}")
    # Empty shards have one offset; sorting them by rank makes their order unique.
    shards = sorted((_shard(each, name) for each in listed), key=attrgetter("column_offset", "row_offset", "rank"))
    held_by = tuple(shard.rank for shard in shards)
    if ranks and set(ranks) != set(held_by):
        raise ValueError(f"ranks of table {name!r} to be those of its shards, {_short(held_by)}, not {_short(ranks)}")
    return GivenTable(
        name=name,
        sharding_type=sharding_type,
        ranks=held_by,
        shards=tuple(shards),
        kernel=kernel,
        load_factor=_load_factor(parameter, name) if kernel.is_cached else None,
    )


def _load_factor(parameter: Mapping[str, Any], name: str) -> float | None:
    """Return the load factor in TorchRec's `CacheParams`; None if the file has none."""
    cache = parameter.get("cache_params")
    factor = None if cache is None else _mapping(cache, f"cache_params of table {name!r}").get("load_factor")
    if factor is None:
        return None
    if type(factor) not in (int, float) or not 0 < factor <= 1:
        raise ValueError(f"a load_factor of table {name!r} above 0 and at most 1, not {_short(factor)}")
    return float(factor)


def _shard(listed: object, name: str) -> GivenShard:
    shard = _mapping(listed, f"a shard of table {name!r}")
    offsets = _whole(shard.get("shard_offsets"), f"shard_offsets of table {name!r}", 2)
    sizes = _whole(shard.get("shard_sizes"), f"shard_sizes of table {name!r}", 2)
    if not sizes[1]:
        raise ValueError(f"shard_sizes of table {name!r} with at least 1 column, not {_short(sizes)}")
    placement = shard.get("placement")
    found = _PLACEMENT.fullmatch(placement) if isinstance(placement, str) else None
    if found is None:
        raise ValueError(f"placements such as 'rank:0/cuda:0', but table {name!r} has {json.dumps(placement)}")
    return GivenShard(
        rank=int(found[1]), row_offset=offsets[0], column_offset=offsets[1], rows=sizes[0], columns=sizes[1]
    )


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} as a JSON object, not {_short(value)}")
    return value


def _whole(value: object, what: str, count: int) -> list[int]:
    sound = isinstance(value, list) and len(value) == count and all(type(each) is int and each >= 0 for each in value)
    if not sound:
        raise ValueError(f"{what} as {count} whole numbers of at least 0, not {_short(value)}")
    numbers: list[int] = value  # type: ignore[assignment]
    if max(numbers, default=0) > _MOST:
        raise ValueError(f"{what} as numbers up to 2^53, not {_short(numbers)}")
    return numbers


def _one_of(parameter: Mapping[str, Any], key: str, known: tuple[str, ...], name: str) -> str:
    value = parameter.get(key)
    if value not in known:
        raise ValueError(f"{key} of table {name!r} to be {' or '.join(known)}, not {_short(value)}")
    return str(value)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
