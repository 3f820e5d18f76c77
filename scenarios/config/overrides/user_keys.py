"""Maps values of a frozen scenario to the keys by which users write them in files or after --set.

The keys are derived from the declarations beside the fields and from the tables that files may have, so that every
printed name is a valid key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from scenarios.config.hardware import Cluster
from scenarios.config.keys import declared_keys
from scenarios.config.toml.document import editors_document
from scenarios.config.toml.sections import RunSection

# Fields whose table has another name.
_TABLES = {"planner": "sharding", "faults": "slow", "sources": "program"}
# Units that a field's name ends with, and what replaces each in its key.
_UNITS = (("_bytes_per_s", "_rate"), ("_bytes", ""), ("_ns", ""), ("_s", ""))

Node = Mapping[str, Any]


@cache
def user_key(path: tuple[str, ...]) -> str:
    """Return the key that a user writes for a value at `path` of `Scenario.as_dict()`, such as cluster.nic.rate.

    The part of `path` behind an array is the index of an item, printed as `[0]`. A value within a key's value gets that
    key. A value that no file can set keeps its own path.
    """
    schema = _schema()
    node, rest, found = schema, [*_in_cluster(path)], ""
    if rest[0] not in node["properties"] and _key(rest[0], RunSection.model_fields):
        rest.insert(0, "run")
    while rest:
        name = _key(rest[0], node.get("properties", {}))
        if not name:
            break
        found = f"{found}.{name}".removeprefix(".")
        (node, is_array), rest = _table(schema, node["properties"][name]), rest[1:]
        if rest and is_array:
            found += f"[{rest[0]}]"
            rest = rest[1:]
    return found or ".".join(path)


@cache
def _schema() -> Node:
    found: Node = editors_document().model_json_schema()
    return found


def _key(field: str, keys: Mapping[str, Any]) -> str:
    """Return which of `keys` a field has, by its name, without its unit, or by its other name; "" if none."""
    shortened = [field[: -len(unit)] + rate for unit, rate in _UNITS if field.endswith(unit)]
    return next((name for name in (field, _TABLES.get(field, ""), *shortened) if name in keys), "")


def _table(schema: Node, node: Node) -> tuple[Node, bool]:
    """Return the table that a key's value (or array item) is, and whether the key is an array; {} for plain values."""
    for one in _variants(node):
        inner = one.get("items", one)
        reference = inner.get("$ref", "")
        resolved = schema["$defs"][reference.rpartition("/")[2]] if reference else inner
        if "properties" in resolved:
            return resolved, "items" in one
    return {}, False


def _variants(node: Node) -> Iterator[Node]:
    """Yield a value's schema, and those of which it may be any."""
    yield node
    for key in ("anyOf", "oneOf", "allOf"):
        for one in node.get(key, ()):
            yield from _variants(one)


def _in_cluster(path: tuple[str, ...]) -> Sequence[str]:
    """Return `path` with the names of the cluster's fields replaced by their keys."""
    if path[:1] != ("cluster",):
        return path
    kind, done, rest = Cluster, ["cluster"], path[1:]
    while rest and kind is not None:
        one = next((one for one in declared_keys(kind) if one.path == rest[: len(one.path)]), None)
        if one is None:
            break
        done.append(one.key.name)
        kind, rest = one.table, rest[len(one.path) :]
    return [*done, *rest]
