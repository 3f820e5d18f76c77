"""Derives TOML tables from declared fields, and frozen values from such tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Optional, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Discriminator, Strict, Tag, ValidationError, WrapValidator, create_model
from pydantic_core import PydanticCustomError

from scenarios.config.keys import REST, Declared, declared_keys
from scenarios.config.toml.reading import phrase_of
from scenarios.config.toml.section import TAG, FreeOptions, OrFile, Section, about
from scenarios.config.toml.values import Accept

_LAX = (tuple, set, frozenset)


@cache
def section_of(kind: Any, title: str = "") -> type[Section]:
    """Return the table that a dataclass declares; its description is the first line of the class's docstring."""
    keys = [one for one in declared_keys(kind) if one.key.name != REST]
    base = Section if len(keys) == len(declared_keys(kind)) else FreeOptions
    fields: dict[str, Any] = {one.key.name: _field(_accept(one), one.key.doc) for one in keys}
    doc = str(kind.__doc__).partition("\n")[0]
    made: type[Section] = create_model(title or f"{kind.__name__}Section", __base__=base, __doc__=doc, **fields)
    made.declared_by = kind
    return made


def freeze(kind: Any, section: Section | None, **given: object) -> Any:
    """Return the frozen value that a checked table describes; absent keys, or an absent table, have the defaults.

    `given` are fields whose values come from elsewhere.
    """
    values: dict[tuple[str, ...], dict[str, object]] = {(): dict(given)}
    for one in declared_keys(kind):
        if section is None or not one.path or one.path[0] in given:
            continue
        value = section.model_extra if one.key.name == REST else getattr(section, one.key.name)
        if value is not None:
            held = value if isinstance(value, (str, int, float)) and one.key.read is None else _value(one, value)
            values.setdefault(one.path[:-1], {})[one.path[-1]] = held
    # Innermost values first, because outer values contain them.
    for path in sorted(values, key=len, reverse=True)[:-1]:
        values.setdefault(path[:-1], {})[path[-1]] = _inline(kind, path)(**values[path])
    return kind(**values[()])


def _accept(one: Declared) -> Any:
    if one.table is not None:
        section: Any = section_of(one.table, one.key.title)
        array: Any = Annotated[list[section], OrFile()] if one.key.or_file else list[section]
        return array if one.is_array else section
    if one.key.names is not None:
        accepts = get_args(one.hint)[1]
        keys: dict[str, Any] = {name: _field(accepts, meaning) for name, meaning in one.key.names.names.items()}
        return create_model(one.key.names.title, __base__=Section, __doc__=one.key.names.doc, **keys)
    if one.key.accepts is not None:
        return _either(one.key.accepts)
    return FreeOptions if get_origin(one.hint) is Mapping else readable(one.hint)


def _either(accepts: Any) -> Any:
    """Return a type that tells the tables of a union apart by their first keys, and from its plain value."""
    tables: list[Any] = [kind for kind in get_args(accepts) if isinstance(kind, type) and is_dataclass(kind)]
    if not tables:
        return accepts

    firsts = {declared_keys(kind)[0].key.name: f"{TAG}{kind.__name__}" for kind in tables}

    def tag(value: object) -> str:
        if not isinstance(value, dict):
            return TAG
        return firsts[next(filter(value.__contains__, firsts), next(iter(firsts)))]

    read = (
        (kind, TAG) if kind not in tables else (section_of(kind, kind.__name__), f"{TAG}{kind.__name__}")
        for kind in get_args(accepts)
    )
    return Annotated[Union[tuple(Annotated[kind, Tag(name)] for kind, name in read)], Discriminator(tag)]  # noqa: UP007


def readable(hint: Any, table: Callable[[Any], Any] = lambda kind: kind) -> Any:
    """Return a type as it is read from TOML; the same object if nothing changes.

    Tuples and sets are read from arrays, enum members from their values, paths from text. `table` returns what a class
    of a table is read as.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bare, *marks = inner
        read = bare if any(isinstance(mark, Accept) for mark in marks) else readable(bare, table)
        return hint if read is bare else Annotated[(read, *marks)]
    if origin in (Union, UnionType, list, dict, *_LAX):
        each = tuple(one if one is Ellipsis else readable(one, table) for one in inner)
        is_union = origin in (Union, UnionType)
        made = hint
        if any(a is not b for a, b in zip(each, inner, strict=True)):
            made = Union[each] if is_union else origin[each]  # noqa: UP007 - made at run time
        if is_union and len([one for one in inner if one is not NoneType]) > 1:
            return Annotated[made, WrapValidator(_one_of)]
        return Annotated[made, Strict(False)] if origin in _LAX else made
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, BaseModel)):
        return table(hint)
    if isinstance(hint, type) and issubclass(hint, (*_LAX, Enum, PurePath)):
        return Annotated[hint, Strict(False)]
    return hint


def _one_of(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return the value read by one of several types; the error names all of them."""
    try:
        return read(value)
    except ValidationError as error:
        phrases = dict.fromkeys(phrase_of(each) for each in error.errors(include_url=False))
        raise PydanticCustomError("expected", "{phrase}", {"phrase": " or ".join(phrases)}) from None


def _field(accepts: Any, meaning: str) -> tuple[Any, Any]:
    return Optional[accepts], about(meaning)  # noqa: UP045 - made at run time


def _value(one: Declared, value: Any) -> object:
    if one.table is not None:
        return tuple(freeze(one.table, each) for each in value) if one.is_array else freeze(one.table, value)
    if one.key.names is not None:
        return {name: each for name, each in value if each is not None}
    if isinstance(value, FreeOptions):
        return dict(value.model_extra or {})
    return value if one.key.read is None else one.key.read(value)


@cache
def _inline(kind: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        kind = get_type_hints(kind)[name]
    return kind
