"""The single values of a scenario file: what each accepts, and the phrase that says so; tables of them are `document`.

Each is an `Annotated` type whose `Accept` both reads a TOML value and describes it, to people and to editors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from scenarios import units
from scenarios.units import Quantity

_MOST = 2**63 - 1  # TOML promises no larger integers, and neither do seeds and tensors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared by identity: typing hashes it
class Accept:
    """Field metadata: `read` turns a TOML value into ours, or raises ValueError with a phrase ("" for `expected`)."""

    expected: str
    read: Callable[[Any], object]
    json_schema: Mapping[str, object] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.json_schema)

    def _validate(self, value: object) -> object:
        try:
            return self.read(value)
        except (ValueError, OverflowError) as error:
            phrase = str(error) if isinstance(error, ValueError) else ""
            raise PydanticCustomError("expected", "{phrase}", {"phrase": phrase or self.expected}) from None


def _whole(least: int, alternative: str = "") -> Accept:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise ValueError(f"a whole number of at most {_MOST}" if isinstance(value, int) and value > _MOST else "")
        return value

    expected = f"a whole number of at least {least}{alternative}"
    return Accept(expected=expected, read=read, json_schema={"type": "integer", "minimum": least})


def _number(expected: str, fits: Callable[[float], bool]) -> Accept:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError
        number = float(value)
        if not math.isfinite(number) or not fits(number):
            raise ValueError
        return number

    return Accept(expected=expected, read=read, json_schema={"type": "number"})


def _quantity(kind: Quantity, parse: Callable[[str], float], *, positive: bool = True) -> Accept:
    above = f"{kind.noun} above zero, such as '{kind.example}'" if positive else f"{kind.noun} of at least zero"

    def read(value: object) -> float:
        if not isinstance(value, str):
            raise ValueError
        number = parse(value)
        if number < 0 or (positive and number == 0):
            raise ValueError(above)
        return number

    return Accept(expected=kind.expected, read=read, json_schema={"type": "string", "examples": [kind.example]})


def _text(expected: str, fits: Callable[[str], bool]) -> Accept:
    def read(value: object) -> str:
        if not isinstance(value, str) or not fits(value):
            raise ValueError
        return value

    return Accept(expected=expected, read=read, json_schema={"type": "string"})


Count = Annotated[int, _whole(1)]
CountOrZero = Annotated[int, _whole(0)]
IdsCount = Annotated[int, _whole(1, " or a table such as {mean = 2.5}")]
Share = Annotated[float, _number("a share above 0 and at most 1", lambda value: 0 < value <= 1)]
Reserve = Annotated[float, _number("a share from 0 to below 1", lambda value: 0 <= value < 1)]
Positive = Annotated[float, _number("a number above 0", lambda value: value > 0)]
NotNegative = Annotated[float, _number("a number of at least 0", lambda value: value >= 0)]
AtLeastOne = Annotated[float, _number("a number of at least 1", lambda value: value >= 1)]
Rate = Annotated[float, _quantity(units.RATE, units.parse_rate)]
Size = Annotated[int, _quantity(units.SIZE, units.parse_size)]
Latency = Annotated[int, _quantity(units.TIME, units.parse_time, positive=False)]
Duration = Annotated[int, _quantity(units.TIME, units.parse_time)]
FlopRate = Annotated[float, _quantity(units.FLOP_RATE, units.parse_flop_rate)]
Flops = Annotated[float, _quantity(units.FLOPS, units.parse_flops, positive=False)]
Name = Annotated[str, _text("a name without '/'", lambda value: bool(value.strip()) and "/" not in value)]
File = Annotated[str, _text("a path relative to this file", lambda value: bool(value.strip()))]
Profile = Annotated[str, _text("a profile's name, or a path that ends in .toml", lambda value: bool(value.strip()))]
Text = Annotated[str, _text("a string", lambda value: True)]
Uniform = Annotated[str, _text("'uniform', {zipf = 1.05} or {file = 'ids.csv'}", lambda value: value == "uniform")]
