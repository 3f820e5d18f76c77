"""Turns a line of a table file into the values that the same table would have in a scenario file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scenarios.config.keys import declared_keys
from scenarios.config.overrides.option import value_of
from scenarios.config.scenario.recommender import Table

COLUMNS = tuple(one.key.name for one in declared_keys(Table))
NEEDED = ("name", "rows")
# TorchRec's names, and those of its users.
ALIASES: Mapping[str, str] = {
    **{"table": "name", "table_name": "name"},
    **{"num_embeddings": "rows", "num_rows": "rows", "hash_size": "rows"},
    **{"embedding_dim": "dim", "ids_a_sample": "ids_per_sample"},
    **{"pooling_factor": "ids_per_sample", "pooling_factors": "ids_per_sample"},
    **{"feature": "features", "feature_names": "features", "is_weighted": "weighted"},
    **{"sharding_type": "sharding", "sharding_types": "sharding"},
    **{"compute_kernel": "kernel", "compute_kernels": "kernel"},
}
_TEXTS = ("name", "kernel")
_COUNTS = ("rows", "dim", "count")
_LISTS = ("sharding", "features", "ranks", "hosts")
_BETWEEN = re.compile(r"[\s,;|]+")
_MAYBE_THOUSANDS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")  # 1.000, which some countries write for 1000
Values = dict[str, Any]


def table_of(cells: Mapping[str, object]) -> Values:
    """Return the values of a table by key, of its cells by column; empty cells are absent.

    Raises:
        ValueError: there are several numbers of ids, but not one for each feature; the message is the sentence's rest.
    """
    values = {key: value for key, cell in cells.items() if (value := _value(key, cell)) not in (None, "")}
    features, counts = values.get("features"), values.get("ids_per_sample")
    names = features if isinstance(features, list) and all(isinstance(one, str) for one in features) else []
    if isinstance(counts, list):
        if len(counts) != max(1, len(names)):
            raise ValueError(f"expected one number of ids, or one for each of {len(names) or 'several'} features")
        values["ids_per_sample"] = counts = counts[0] if len(counts) == 1 else counts
    if names:
        shared = {key: values.pop(key) for key in ("ids_per_sample", "ids") if key in values}
        each = counts if isinstance(counts, list) else [counts] * len(names)
        values["features"] = [
            {"name": name, **shared, **({} if count is None else {"ids_per_sample": count})}
            for name, count in zip(names, each, strict=True)
        ]
    return values


def _value(key: str, cell: object) -> Any:
    """Return a cell's value: of text what TOML has, else a list where the key takes one."""
    read = _of_text(key, cell.strip()) if isinstance(cell, str) else _present(cell)
    if key in _LISTS and not isinstance(read, list) and read not in (None, ""):
        read = [read]
    if key == "sharding":
        return [one.lower() if isinstance(one, str) else one for one in read] if isinstance(read, list) else read
    if key == "ids_per_sample":
        return [_ids(one) for one in read] if isinstance(read, list) else _ids(read)
    return read


def _of_text(key: str, text: str) -> Any:
    if key in _TEXTS or not text:
        return text.lower() if key == "kernel" else text
    if key in _COUNTS and _MAYBE_THOUSANDS.fullmatch(text):
        return text  # refused
    if key in (*_LISTS, "ids_per_sample") and text[0] not in "[{":
        found = [one if key == "features" else _whole(value_of(one)) for one in _BETWEEN.split(text) if one]
        return found[0] if len(found) == 1 else found
    return _whole(value_of(text.lower() if text.lower() in ("true", "false") else text))


def _present(value: object) -> Any:
    """Return a value of a Parquet file without what is null in it; None if it is null or no number as a whole."""
    if isinstance(value, Mapping):
        return {key: _present(one) for key, one in value.items() if one is not None} or None
    if isinstance(value, list | tuple):
        return [_present(one) for one in value] or None
    return None if value != value else _whole(value)  # noqa: PLR0124 - pandas writes what is absent as nan


def _whole(value: object) -> Any:
    """Return 20 for 20.0, as which tools write a column of whole numbers with an empty cell."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _ids(value: object) -> object:
    """Return the mean of a random number of ids where a number is not whole."""
    return {"mean": value} if isinstance(value, float) else value
