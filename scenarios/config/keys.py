"""Declarations of TOML keys beside the fields of frozen values; sections, schema and docs derive from these."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: typing hashes it
class Names:
    """A table whose keys are names, all with values of one kind: its title in schemas, and the meaning of each name."""

    title: str
    doc: str
    names: Mapping[str, str]


# Metadata of a field whose key was added when runs had been recorded: run folders and digests have it only where it is
# not the default. So scenarios that do not set the key keep their digests, and stay comparable with older runs.
LATER: Mapping[str, bool] = {"is_later": True}

REST = "*"  # stands for a key's name: the mapping takes all keys of the table that belong to no field


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """Field metadata: the TOML key; a string beside it, or alone, is the key's meaning.

    Without a `name` the key has the field's, less its unit (`usual_name`). The field's type defines what the key
    accepts unless `accepts` does; then `read` and `write` convert. `names` is for mappings. A calibration writes a key
    if it differs from the field's default, or `always`. `after`: the key behind which this one stands, if not behind
    the previous field. `title`: the name of the value's table in schemas. `or_file`: a file may be named in the array's
    place, whose items stand there before the key is read. A class's `file_keys` are keys of its table that become no
    field, but affect others.
    """

    name: str = ""
    doc: str = ""
    names: Names | None = None
    accepts: Any = None
    read: Callable[[Any], object] | None = None
    write: Callable[[Any], object] | None = None
    always: bool = False
    after: str = ""
    title: str = ""
    or_file: bool = False


ALWAYS = Key(always=True)


class OnlyWith:
    """Field metadata: the values that other keys of the table must have; with any others the key is refused."""

    def __init__(self, **keys: tuple[str, ...]) -> None:
        self.keys = keys


class Inline:
    """Field metadata: the keys of a nested value stand in the table of the value around it.

    `keys` are the meanings of the nested fields' keys, by field; without any, the keys are those that the nested class
    declares.
    """

    def __init__(self, **keys: str) -> None:
        self.keys = keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One key: the path of fields to its value, its declared type and default."""

    path: tuple[str, ...]
    key: Key
    hint: Any
    default: object
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    table: Any = field(init=False)  # the dataclass that declares the key's table, or those of an array; None: no table

    def __post_init__(self) -> None:
        kinds = [] if self.key.accepts is not None else [self.hint, *get_args(self.hint)]
        table = next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)
        object.__setattr__(self, "table", table)

    @property
    def is_array(self) -> bool:
        """Whether the key takes several values."""
        return get_origin(self.hint) is tuple


@cache
def declared_keys(kind: Any) -> tuple[Declared, ...]:
    """Return the keys of a dataclass in the order of its fields, tables behind plain values."""
    found = sorted(_declare(kind), key=lambda one: one.table is not None)
    for one in [one for one in found if one.key.after]:
        found.remove(one)
        found.insert([other.key.name for other in found].index(one.key.after) + 1, one)
    return tuple(found)


@cache
def conditional(kind: Any) -> tuple[Declared, ...]:
    """Return the keys of a dataclass that have a `OnlyWith`, and the tables in which there are some."""
    keys = () if kind is None else declared_keys(kind)
    return tuple(one for one in keys if one.where or (one.table is not None and conditional(one.table)))


def _declare(kind: Any, meanings: Mapping[str, str] | None = None) -> Iterator[Declared]:
    """Yield a dataclass's keys in the order of its fields; `meanings` replace those that the fields declare."""
    for key in getattr(kind, "file_keys", ()):
        yield Declared(path=(), key=key, hint=key.accepts, default=None)
    hints = get_type_hints(kind, include_extras=True)
    for one in dataclasses.fields(kind):
        hint = hints[one.name]
        marks = getattr(hint, "__metadata__", ())
        bare = _strip_marks(hint)
        inline = next((mark for mark in marks if isinstance(mark, Inline)), None)
        if inline is not None:
            for inner in _declare(bare, inline.keys or None):
                yield dataclasses.replace(inner, path=(one.name, *inner.path))
            continue
        key = _key_of(one.name, [meanings.get(one.name)] if meanings else marks)
        if key is not None:
            factory = one.default_factory
            default = one.default if factory is dataclasses.MISSING else factory()
            where = next((mark.keys for mark in marks if isinstance(mark, OnlyWith)), {})
            yield Declared(path=(one.name,), key=key, hint=bare, default=default, where=where)


def _key_of(name: str, marks: Sequence[object]) -> Key | None:
    """Return the key that a field's metadata declares; None if it declares none."""
    key = next((mark for mark in marks if isinstance(mark, Key)), None)
    doc = next((mark for mark in marks if isinstance(mark, str)), key.doc if key else "")
    if key is None and not doc:
        return None
    return dataclasses.replace(key or Key(), name=key.name if key and key.name else usual_name(name), doc=doc)


def usual_name(field_name: str) -> str:
    """Return a field's name without its unit: "launch" for launch_ns, "l2_rate" for l2_bytes_per_s."""
    rate = re.sub(r"(^|_)bytes_per_s$", r"\1rate", field_name).replace("flops_per_s", "flops")
    return rate if rate.endswith("_per_s") else re.sub(r"_(bytes|ns|s)$", "", rate)


def _strip_marks(hint: Any) -> Any:
    """Return a type without this module's marks, but with the marks that read its values."""
    if get_origin(hint) is not Annotated:
        return hint
    bare, *marks = get_args(hint)
    for mark in marks:
        if not isinstance(mark, (Key, Inline, OnlyWith, str)):
            bare = Annotated[bare, mark]
    return bare


def recorded_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that run folders and digests have; of fields with `LATER` no defaults."""
    return {
        one.name: getattr(value, one.name)
        for one in dataclasses.fields(value)
        if not one.metadata or _is_recorded(one, getattr(value, one.name))
    }


def _is_recorded(one: dataclasses.Field[Any], value: object) -> bool:
    return not one.metadata.get("is_of_playing") and not (one.metadata.get("is_later") and value == one.default)


def tenths_of(version: str) -> int:
    """Return 90 for '9.0'."""
    return round(10 * float(version))


def version_of(tenths: int) -> str:
    """Return '9.0' for 90."""
    return str(tenths / 10)


def one_or_list(names: tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the name if there is only one, else all names."""
    return names[0] if len(names) == 1 else names
