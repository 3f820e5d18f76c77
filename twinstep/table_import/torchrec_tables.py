"""Reads TorchRec's table configs and a planner's constraints by their attributes: TorchRec itself is not imported.

Names are those of TorchRec 1.8: `EmbeddingBagConfig`, `EmbeddingConfig`, collections with `embedding_bag_configs` or
`embedding_configs`, `ParameterConstraints`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from scenarios.compute_kernel import COPIES_KERNEL, SCENARIO_KERNELS, ComputeKernel
from scenarios.sharding_kind import ShardingType

EXPECTED = (
    "embedding configs, a collection or model that has some, or several of these, with or without a mapping of names"
    " to ParameterConstraints"
)
DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
_METHODS = ("embedding_bag_configs", "embedding_configs")
# What no scenario has; None and False are TorchRec's defaults.
_OF_CONFIG = (
    *("use_virtual_table", "virtual_table_eviction_policy", "total_num_buckets", "num_embeddings_post_pruning"),
    *("need_pos", "input_dim", "stash_weights"),
)
_OF_CONSTRAINTS = (
    *("num_poolings", "batch_sizes", "enforce_hbm", "stochastic_rounding", "bounds_check_mode", "output_dtype"),
    *("device_group", "key_value_params", "use_virtual_table"),
)
_OF_CACHE = ("algorithm", "reserved_memory", "precision", "prefetch_pipeline", "multipass_prefetch_config")


@dataclass(slots=True, kw_only=True)
class ImportedTable:
    """A table with the values that its line in a table file has; `ids` has a number for each feature, or none."""

    name: str
    rows: int
    dim: int
    data_type: str
    features: list[str]
    ids: list[float] = field(default_factory=list)
    sharding: list[str] = field(default_factory=list)
    kernel: str = ""
    cache_load_factor: float | None = None
    min_partition: int | None = None
    is_weighted: bool = False
    is_pooled: bool = True

    @property
    def sequence(self) -> int:
        """Rows of a sample that a table that is not pooled hands on one by one; 0 if rows are summed."""
        return 0 if self.is_pooled else max(1, math.ceil(max(self.ids, default=1)))


class Notes:
    """Settings that could not be carried over, each with its tables, in the order found."""

    def __init__(self) -> None:
        self._tables: dict[str, list[str]] = {}

    def add(self, what: str, table: str) -> None:
        """Note something of a table."""
        self._tables.setdefault(what, []).append(table)

    def __iter__(self) -> Iterator[str]:
        for what, tables in self._tables.items():
            more = f" and {len(tables) - 3} more" if len(tables) > 3 else ""
            yield f"{what}: {', '.join(tables[:3])}{more}"


def read_tables(found: object, further: object = ()) -> tuple[list[ImportedTable], Notes]:
    """Return the tables among what a user's function has returned, and notes on what no table file can have.

    Args:
        found: configs, collections, models and constraints, in sequences or mappings.
        further: constraints that were given apart.

    Raises:
        ValueError: nothing is a table, or something is neither table nor constraint; the message is a phrase.
    """
    constraints: dict[str, Any] = {}
    configs = [*_configs(found, constraints), *_configs(further, constraints)]
    if not configs:
        raise ValueError(f"{EXPECTED}, but found no table")
    notes, tables = Notes(), []
    for config, is_weighted in {id(config): (config, is_weighted) for config, is_weighted in configs}.values():
        table = _table(config, notes)
        table.is_weighted = is_weighted
        tables.append(table)
    _make_names_unique(tables, notes)
    by_name = {table.name: table for table in tables}
    for name, constraint in constraints.items():
        if name in by_name:
            _constrain(by_name[name], constraint, notes)
        else:
            notes.add("constraints of unknown tables", name)
    return tables, notes


def _configs(found: object, constraints: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each config, and whether ids have weights; add constraints by their table's name."""
    if hasattr(found, "num_embeddings") and hasattr(found, "embedding_dim"):
        yield found, False
    elif callable(getattr(found, "modules", None)):
        for module in found.modules():  # type: ignore[attr-defined]
            yield from _of_collection(module)
    elif any(callable(getattr(found, name, None)) for name in _METHODS):
        yield from _of_collection(found)
    elif isinstance(found, Mapping):
        for name, value in found.items():
            if hasattr(value, "pooling_factors") or hasattr(value, "sharding_types"):
                constraints[str(name)] = value
            else:
                yield from _configs(value, constraints)
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _configs(each, constraints)
    elif found is not None:
        raise ValueError(f"{EXPECTED}, but found {type(found).__name__}")


def _of_collection(module: object) -> Iterator[tuple[Any, bool]]:
    weighted = getattr(module, "is_weighted", False)
    is_weighted = bool(weighted() if callable(weighted) else weighted)
    for method in (getattr(module, name, None) for name in _METHODS):
        if callable(method):
            yield from ((config, is_weighted) for config in method())


def _table(config: Any, notes: Notes) -> ImportedTable:
    name = str(getattr(config, "name", ""))
    pooling = getattr(config, "pooling", None)
    if pooling is not None and _text(pooling).upper() != "SUM":
        notes.add(f"pooling {_text(pooling)}, which takes as long as the sum that is predicted", name)
    _note_unknown(config, _OF_CONFIG, name, notes)
    return ImportedTable(
        name=name,
        rows=config.num_embeddings,
        dim=config.embedding_dim,
        data_type=_text(getattr(config, "data_type", "FP32")),
        features=[str(feature) for feature in getattr(config, "feature_names", ())],
        is_pooled=pooling is not None,
    )


def _constrain(table: ImportedTable, constraint: Any, notes: Notes) -> None:
    """Put a planner's constraints into their table."""
    factors = [float(factor) for factor in getattr(constraint, "pooling_factors", None) or ()]
    count = max(1, len(table.features))
    if len(factors) in (1, count):
        table.ids = factors if len(factors) == count else factors * count
    elif factors:
        notes.add(f"{len(factors)} pooling_factors, which are not one per feature", table.name)
    table.is_weighted |= bool(getattr(constraint, "is_weighted", False))
    table.min_partition = getattr(constraint, "min_partition", None)
    known = get_args(ShardingType)
    for kind in map(_text, getattr(constraint, "sharding_types", None) or ()):
        if kind in known:
            table.sharding.append(kind)
        else:
            notes.add(f"sharding type {kind!r}, which is not predicted", table.name)
    _take_kernel(table, [_text(kernel) for kernel in getattr(constraint, "compute_kernels", None) or ()], notes)
    cache = getattr(constraint, "cache_params", None)
    if cache is not None:
        if table.kernel and ComputeKernel(table.kernel).is_cached:
            table.cache_load_factor = getattr(cache, "load_factor", None)
        else:
            notes.add("cache_params, which need the compute kernel 'fused_uvm_caching' alone", table.name)
        _note_unknown(cache, _OF_CACHE, table.name, notes)
    _note_unknown(constraint, _OF_CONSTRAINTS, table.name, notes)


def _take_kernel(table: ImportedTable, kernels: list[str], notes: Notes) -> None:
    """Take the only kernel that a scenario can give the table; 'dense' is that of data_parallel tables."""
    known = [kernel for kernel in kernels if kernel in SCENARIO_KERNELS]
    for kernel in kernels:
        if kernel not in (*SCENARIO_KERNELS, COPIES_KERNEL):
            notes.add(f"compute kernel {kernel!r}, which is not predicted", table.name)
    if len(known) == 1:
        table.kernel = known[0]
    elif known:
        notes.add(f"a choice of compute kernels ({', '.join(known)}); the column kernel takes one", table.name)


def _note_unknown(found: object, names: tuple[str, ...], table: str, notes: Notes) -> None:
    for name in names:
        value = getattr(found, name, None)
        if value is not None and value is not False:
            notes.add(name, table)


def _make_names_unique(tables: list[ImportedTable], notes: Notes) -> None:
    """Rename tables and features that have the same names: a scenario knows no modules to tell them apart."""
    taken = Counter(table.name for table in tables)
    seen: Counter[str] = Counter()
    for table in tables:
        if taken[table.name] > 1 or not table.name:
            seen[table.name] += 1
            notes.add("equal names of tables, which are numbered", repr(table.name))
            table.name = f"{table.name or 'table'}_{seen[table.name] - 1}"
    shared = Counter(feature for table in tables for feature in table.features)
    for table in tables:
        for feature in table.features:
            if shared[feature] > 1:
                notes.add("features of several tables, called feature@table", f"{feature}@{table.name}")
        table.features = [f"{one}@{table.name}" if shared[one] > 1 else one for one in table.features]


def _text(value: object) -> str:
    """Return an enum's value, or what a value is as text."""
    return str(getattr(value, "value", value))
