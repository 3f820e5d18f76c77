"""Tables of TOML from declared fields, and frozen values from such tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias, UnionType
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

from pydantic import create_model

from scenarios.config.keys import Declared, declared
from scenarios.config.toml.section import Section, about

Extra = Mapping[str, tuple[Any, str]]  # keys that have no field: what each accepts and means


def section_of(name: str, kind: Any, first: Extra | None = None, last: Extra | None = None) -> type[Section]:
    """The table that a dataclass declares; its description is the first line of the class's docstring."""
    keys: dict[str, Any] = {key: _field(*what) for key, what in (first or {}).items()}
    keys |= {one.key.name: _field(_accepted(one), one.key.doc) for one in declared(kind)}
    keys |= {key: _field(*what) for key, what in (last or {}).items()}
    made: type[Section] = create_model(name, __base__=Section, __doc__=str(kind.__doc__).partition("\n")[0], **keys)
    return made


def frozen(kind: Any, section: Section | None, **given: object) -> Any:
    """Return the dataclass that a checked table describes; its defaults stand for what is absent, also the whole table.

    `given` are fields.
    """
    values: dict[tuple[str, ...], dict[str, object]] = {(): dict(given)}
    for one in declared(kind):
        if section is None or not one.path or one.path[0] in given:
            continue
        value = getattr(section, one.key.name)
        if value is not None:
            values.setdefault(one.path[:-1], {})[one.path[-1]] = _value(one, value)
    for path in sorted(values, key=len, reverse=True)[:-1]:
        values.setdefault(path[:-1], {})[path[-1]] = _inlined(kind, path)(**values[path])
    return kind(**values[()])


def _accepted(one: Declared) -> Any:
    if one.table is not None:
        section: Any = section_of(f"{one.key.name.capitalize()}Section", one.table)
        return list[section] if one.is_array else section
    if one.key.names is not None:
        accepts = get_args(one.hint)[1]
        keys: dict[str, Any] = {name: _field(accepts, meaning) for name, meaning in one.key.names.names.items()}
        return create_model(one.key.names.title, __base__=Section, __doc__=one.key.names.doc, **keys)
    return _with_lists(one.hint) if one.key.accepts is None else one.key.accepts


def _with_lists(hint: Any) -> Any:
    """Return a type with lists, which TOML has, in place of tuples."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return GenericAlias(list, (_with_lists(inner[0]),))
    if origin is UnionType:
        return Union[tuple(map(_with_lists, inner))]  # noqa: UP007 - made at run time
    return hint


def _with_tuples(value: Any) -> Any:
    """Return a value with tuples in place of lists."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _field(accepts: Any, meaning: str) -> tuple[Any, Any]:
    return Optional[accepts], about(meaning)  # noqa: UP045 - made at run time


def _value(one: Declared, value: Any) -> object:
    if one.table is not None:
        return tuple(frozen(one.table, each) for each in value) if one.is_array else frozen(one.table, value)
    if one.key.names is not None:
        return {name: each for name, each in value if each is not None}
    return _with_tuples(value) if one.key.read is None else one.key.read(value)


def _inlined(kind: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        kind = get_type_hints(kind)[name]
    return kind
