"""Maps values of a frozen scenario to the keys by which users write them in files or after --set.

The keys are those that dataclasses declare beside their fields, so that every printed name is a valid key.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from scenarios.config.hardware import Cluster
from scenarios.config.keys import REST, declared_keys
from scenarios.config.scenario import RunSettings
from scenarios.config.toml.document import tables_of

# Keys of fields without a dataclass that declares what is below them.
_WHOLE = {"name": "name", "program": "program", "sources": "program", "options": "options"}


@cache
def user_key(path: tuple[str, ...]) -> str:
    """Return the key that a user writes for a value at `path` of `Scenario.as_dict()`, such as cluster.nic.rate.

    The part of `path` behind an array is the index of an item, printed as `[0]`. A value within a key's value gets that
    key. A value that no file can set keeps its own path.
    """
    if path[0] in _WHOLE:
        return _WHOLE[path[0]]
    if path[:2] == ("cluster", "faults"):
        key = {"speed": ".speed", "begin_ns": ".begin", "end_ns": ".end"}.get("".join(path[3:]), "")
        return f"cluster.faults{''.join(f'[{item}]' for item in path[2:3])}{key}"
    tables = {table.field: (table.key, table.values) for table in tables_of(None)}
    kinds: dict[str, tuple[str, Any]] = {"cluster": ("cluster", Cluster), **tables}
    found, kind = kinds.get(path[0], ("run", RunSettings))
    rest = path[1:] if path[0] in kinds else path
    while kind is not None:
        fitting = (one for one in declared_keys(kind) if one.path and one.path == rest[: len(one.path)])
        one = next((one for one in fitting if one.key.name != REST), None)
        if one is None:
            break
        found, kind, rest = f"{found}.{one.key.name}", one.table, rest[len(one.path) :]
        if rest and kind is not None and one.is_array:
            found, rest = f"{found}[{rest[0]}]", rest[1:]
        elif rest and one.key.names is not None and rest[0] in one.key.names.names:
            found += f".{rest[0]}"
    return ".".join(path) if found == "run" else found
