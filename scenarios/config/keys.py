"""How fields of frozen values are written in TOML: declared beside the field, read by whatever derives from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: typing hashes it
class Names:
    """A table whose keys are names, all with values of one kind: its title in schemas, and what each name means."""

    title: str
    doc: str
    names: Mapping[str, str]


REST = "*"  # in place of a key's name: the mapping has all keys of the table that are no field's


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """Field metadata: the key in the value's table, and what it means; a text alone is of a key of the field's name.

    A class's `file_keys` are those of its table that become no field, but decide others.
    The field's own type says what the key accepts, unless `accepts` does; then `read` and `write` convert. `names` is
    for mappings. A calibration writes a key that differs from the field's default, or `always`. `after`: the key
    behind which it stands, if not the field before. `title`: what schemas call the value's table.
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


class Inline:
    """Field metadata: the keys of a nested value stand in the table of the value around it.

    `keys` are those of its fields, by name; none: as the nested class declares them.
    """

    def __init__(self, **keys: Key) -> None:
        self.keys = keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One key: where its value is, from field to field, its declared type and default."""

    path: tuple[str, ...]
    key: Key
    hint: Any
    default: object
    table: Any = field(init=False)  # the dataclass that declares the key's table, or those of an array; None: no table

    def __post_init__(self) -> None:
        kinds = [] if self.key.accepts is not None else [self.hint, *get_args(self.hint)]
        table = next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)
        object.__setattr__(self, "table", table)

    @property
    def is_array(self) -> bool:
        """Whether the key has several values."""
        return get_origin(self.hint) is tuple


@cache
def declared(kind: Any) -> tuple[Declared, ...]:
    """Return the keys of a dataclass in the order of its fields, tables behind plain values."""
    found = sorted(_declared(kind), key=lambda one: one.table is not None)
    for one in [one for one in found if one.key.after]:
        found.remove(one)
        found.insert([other.key.name for other in found].index(one.key.after) + 1, one)
    return tuple(found)


def _declared(kind: Any, keys: Mapping[str, Key] | None = None) -> Iterator[Declared]:
    """`keys`: in place of those that the fields declare."""
    for key in getattr(kind, "file_keys", ()):
        yield Declared(path=(), key=key, hint=key.accepts, default=None)
    hints = get_type_hints(kind, include_extras=True)
    for one in dataclasses.fields(kind):
        hint = hints[one.name]
        marks = getattr(hint, "__metadata__", ())
        bare = _unmarked(hint)
        inline = next((mark for mark in marks if isinstance(mark, Inline)), None)
        if inline is not None:
            for inner in _declared(bare, inline.keys or None):
                yield dataclasses.replace(inner, path=(one.name, *inner.path))
            continue
        key = keys.get(one.name) if keys else _key_of(one.name, marks)
        if key is not None:
            factory = one.default_factory
            default = one.default if factory is dataclasses.MISSING else factory()
            yield Declared(path=(one.name,), key=key, hint=bare, default=default)


def _key_of(name: str, marks: Sequence[object]) -> Key | None:
    """Return the key that a field's metadata declares; None if it declares none."""
    key = next((mark for mark in marks if isinstance(mark, (Key, str))), None)
    if isinstance(key, str):
        return Key(name, key)
    return key if key is None or key.name else dataclasses.replace(key, name=name)


def _unmarked(hint: Any) -> Any:
    """A type without our marks, but with what reads its values."""
    if get_origin(hint) is not Annotated:
        return hint
    bare, *marks = get_args(hint)
    for mark in marks:
        if not isinstance(mark, (Key, Inline, str)):
            bare = Annotated[bare, mark]
    return bare


def tenths_of(version: str) -> int:
    """90 of '9.0'."""
    return round(10 * float(version))


def version_of(tenths: int) -> str:
    """'9.0' of 90."""
    return str(tenths / 10)


def one_or_list(names: tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the only name, else all names."""
    return names[0] if len(names) == 1 else names
