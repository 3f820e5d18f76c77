"""Converts descriptions of operators to JSON and back."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any

from scenarios.seam.operations.bags import Bags
from scenarios.seam.operations.operation import MOST_KEPT, Operation
from scenarios.seam.operations.pointwise import Operand

_IS = "is"
_CLASSES: dict[str, type] = {**Operation.kinds, "Operand": Operand, "Bags": Bags}


def to_json(value: Any) -> Any:
    """Return a description, or a value inside one, for JSON; fields with default values are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {one.name: getattr(value, one.name) for one in fields(value) if getattr(value, one.name) != _usual(one)}
        return {_IS: type(value).__name__, **{name: to_json(each) for name, each in given.items()}}
    return [to_json(each) for each in value] if isinstance(value, tuple) else value


def from_json(value: Any) -> Any:
    """Return the value from which `to_json` made this one."""
    if isinstance(value, dict):
        kind = _CLASSES[value[_IS]]
        return kind(**{name: from_json(each) for name, each in value.items() if name != _IS})
    return tuple(map(from_json, value)) if isinstance(value, list) else value


@lru_cache(MOST_KEPT)
def text_of(operations: tuple[Operation, ...]) -> str:
    """Return descriptions as one line of JSON, which `operations_of` reads."""
    return json.dumps([to_json(each) for each in operations], separators=(",", ":"))


def operations_of(text: str) -> tuple[Operation, ...]:
    """Return the descriptions in a text.

    Raises:
        KeyError, TypeError, ValueError: the text holds none.
    """
    found = from_json(json.loads(text))
    if not (isinstance(found, tuple) and found and all(isinstance(each, Operation) for each in found)):
        raise ValueError(f"operations = {text}: expected descriptions of operators")
    return found


def is_operation(value: Any) -> bool:
    """Return whether a value from JSON is a description of an operator."""
    try:
        return isinstance(from_json(value), Operation)
    except (KeyError, TypeError):
        return False


def _usual(field: Any) -> Any:
    return field.default if field.default is not MISSING else MISSING
