"""Reads a tree into sections, and turns pydantic's errors into sentences.

A broken value is reported once and then left out, so that everything else can still be read and checked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.section import TAG, Section
from scenarios.config.toml.tree import KeyPath

S = TypeVar("S", bound=Section)


def read_section(mistakes: Mistakes, kind: type[S]) -> S:
    """Read the tree's sound values as a `kind`; broken values are absent from it and added to `mistakes`."""
    values = copy.deepcopy(mistakes.tree.values)
    found = _errors(kind, values)
    for error in found if isinstance(found, list) else []:
        _name(mistakes, error, values, kind)
    # Without one value another may become invalid, for example if a required key is gone: repeat until all are sound.
    while isinstance(found, list):
        before = found
        for error in before:
            _leave_out(values, error)
        found = _errors(kind, values)
        assert not isinstance(found, list) or _place(before[0]) not in map(_place, found), _NO_MORE
    return found


def expected_phrase(section: type[Section], key: str) -> str:
    """Return a phrase of the values that a key accepts, for "expected ..."."""
    try:
        section.model_validate({key: object()})
    except ValidationError as error:
        return phrase_of(error.errors(include_url=False)[0])
    raise AssertionError(f"{section.__name__}.{key} accepts anything")


def _errors(kind: type[S], values: dict[str, Any]) -> S | list[ErrorDetails]:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        return error.errors(include_url=False)


def _name(mistakes: Mistakes, error: ErrorDetails, values: dict[str, Any], kind: type[Section]) -> None:
    path = _path(error)
    if error["type"] == "missing":
        mistakes.missing(path, "a value")
        return
    if error["type"] != "extra_forbidden":
        mistakes.add(path, phrase_of(error))
        return
    table: Any = values
    for key in path[:-1]:
        table = table[key]
    mistakes.add_unknown(path, list(_read_by(kind, error["loc"], table).model_fields))


def _read_by(kind: type[BaseModel], place: tuple[int | str, ...], table: Mapping[str, object]) -> type[BaseModel]:
    """Return the class that read the table of an unknown key; of several, the one that knows most of its keys."""
    kinds = [kind]
    for key in place[:-1]:
        tagged = [one for one in kinds if key == f"{TAG}{one.__name__}"]
        inner = [one.model_fields[key].annotation for one in kinds if isinstance(key, str) and key in one.model_fields]
        kinds = tagged or [one for hint in inner for one in _models_in(hint)] or kinds
    return max(kinds, key=lambda one: len(table.keys() & one.model_fields.keys()))


def _models_in(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for inner in get_args(hint):
        yield from _models_in(inner)


_NO_MORE = "what is left out is wrong no more"
_PHRASES = {
    **{"model_type": "a table", "dict_type": "a table", "bool_type": "true or false", "path_type": "a path"},
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "an array"),
}


def phrase_of(error: ErrorDetails) -> str:
    """Return a phrase of the values expected where pydantic rejected one."""
    context, kind = error.get("ctx", {}), error["type"]
    if kind == "expected":
        return str(context["phrase"])
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "value_error":  # from a user's own validator
        return str(context["error"])
    return _PHRASES.get(kind) or error["msg"].removeprefix("Input should be ")


def _path(error: ErrorDetails) -> KeyPath:
    """Return the value's path, without the tags that pydantic adds for the variant of the union."""
    return tuple(key for key in error["loc"] if not (isinstance(key, str) and key.startswith(TAG)))


def _place(error: ErrorDetails) -> tuple[str, KeyPath]:
    return error["type"], _path(error)


def _leave_out(values: dict[str, Any], error: ErrorDetails) -> None:
    """Remove a broken value: an array as a whole, since its items must not move; a broken table in an array is emptied.

    If a required key is missing, the table around it is removed.
    """
    path = _path(error)
    is_item = error["type"] == "model_type" and isinstance(path[-1], int)
    table: Any = values
    last = (values, "")
    for key in path[:-1] if is_item or error["type"] == "missing" else path:
        if isinstance(table, dict):
            last = (table, str(key))
            table = table.get(key)
        elif isinstance(table, list):
            table = table[int(key)]
    if is_item and isinstance(table, list):  # not yet left out because of another value
        table[int(path[-1])] = {}
    else:
        last[0].pop(last[1], None)
