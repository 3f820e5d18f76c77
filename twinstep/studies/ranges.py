"""Expands the values of a varied key: an array, or a range with a step or a factor, whose ends may have a unit."""

from __future__ import annotations

import math
import re
import sys

_QUANTITY = re.compile(r"\s*([0-9][0-9_.eE+-]*)\s*(\D.*)?")
_KEYS = {"from", "to", "step", "times"}
EXPECTED = "an array of values, or a range such as {from = 1, to = 8, step = 1} or {from = 1, to = 64, times = 2}"
MOST_VALUES = 10_000


def is_range(value: object) -> bool:
    """Return whether a table is a range, and not one of the scenario's tables."""
    return isinstance(value, dict) and "from" in value


def values_of(value: object) -> tuple[object, ...]:
    """Return the values of an array or a range.

    Raises:
        ValueError: with a phrase that says what was expected.
    """
    if isinstance(value, list) and value:
        return tuple(value)
    if not isinstance(value, dict) or not value.keys() <= _KEYS or not {"from", "to"} <= value.keys():
        raise ValueError(EXPECTED)
    if ("step" in value) == ("times" in value):
        raise ValueError("either step or times in a range")
    ends = {name: number_of(value[name]) for name in ("from", "to", "step") if name in value}
    if len({unit for _, unit in ends.values()}) > 1:
        raise ValueError("the same unit in all of a range")
    (first, unit), (last, _) = ends["from"], ends["to"]
    if last < first:
        raise ValueError("a range whose end is not below its beginning")
    try:
        numbers = _steps(first, last, ends["step"][0]) if "step" in ends else _factors(first, last, value["times"])
    except OverflowError:
        raise ValueError("a range whose ends are closer together") from None
    return tuple(f"{number:.12g} {unit}" if unit else number for number in numbers)


def number_of(value: object) -> tuple[int | float, str]:
    """Return a number, or a quantity's number, and its unit.

    Raises:
        ValueError: the value is neither; with a phrase that says what was expected.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return value, ""
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or not match[2]:
        raise ValueError("numbers or quantities in a range")
    try:
        number = float(match[1])
    except ValueError:
        number = math.inf
    if number == math.inf:
        raise ValueError("numbers or quantities in a range")
    return number, match[2].strip()


def _steps(first: float, last: float, step: float) -> list[int | float]:
    if step <= 0:
        raise ValueError("a step above 0")
    # Rounding must not drop the end of a range.
    count = math.floor((last - first) / step + 1e-9) + 1
    _check(count)
    return [_plain(first + at * step, first, step) for at in range(count)]


def _factors(first: float, last: float, times: object) -> list[int | float]:
    if isinstance(times, bool) or not isinstance(times, int | float) or not times > 1 or first <= 0:
        raise ValueError("a factor above 1 as times, from a number above 0")
    # Rounding must not drop the end of a range.
    count = math.floor(math.log(last / first) / math.log(times) + 1e-9) + 1
    _check(count)
    return [_plain(first * times**at, first, times) for at in range(count)]


def _plain(number: float, *numbers: float) -> int | float:
    """Return a whole number if all given numbers are whole; else drop the last digits, which are rounding errors."""
    return round(number) if all(isinstance(one, int) for one in numbers) else float(f"{number:.12g}")


def _check(count: int) -> None:
    if count > MOST_VALUES:
        raise ValueError(f"a range of at most {MOST_VALUES:,} values")
