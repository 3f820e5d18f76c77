"""Conditions on the varied keys of a point (a value, one of several, or bounds), and bounds on its measures.

All keys of a condition must hold. Constraints are bounds on the measures of a simulated point.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeGuard

from scenarios.config.units import quantity_of

Values = Mapping[str, object]
Bounds = Mapping[str, float]

_BOUNDS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}
_TINY = 1e-9
EXPECTED_BOUNDS = f"a table with some of {', '.join(_BOUNDS)}, each a number"
EXPECTED = "a value, an array of values, or a table with some of not, above, at_least, below, at_most"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on some keys' values; a key that a point does not vary does not fulfil it."""

    keys: Values

    def holds(self, values: Values) -> bool:
        """Return whether a point with these values fulfils every key."""
        return all(key in values and _fulfils(values[key], expected) for key, expected in self.keys.items())


def is_bounds(expected: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a table bounds a value, and has no further keys."""
    return isinstance(expected, dict) and bool(expected) and expected.keys() <= {"not", *_BOUNDS}


def is_constraint(expected: object) -> bool:
    """Return whether a table bounds a measure, by numbers."""
    return is_bounds(expected) and all(
        name in _BOUNDS and _is_number(bound) and abs(bound) <= sys.float_info.max for name, bound in expected.items()
    )


def mistakes_of(condition: Values, values_of: Callable[[str], Sequence[object]]) -> Iterator[tuple[str, str]]:
    """Yield a condition's keys with impossible values, each with what was expected; `values_of`: a varied key's
    values.
    """
    for key, expected in condition.items():
        if not isinstance(expected, dict):
            continue
        if not is_bounds(expected):
            yield key, EXPECTED
            continue
        bounds = [_amount(bound) for name, bound in expected.items() if name != "not"]
        values = values_of(key)
        units = {amount[1] for amount in map(_amount, values) if amount is not None}
        if None in bounds:
            yield key, "numbers or quantities as bounds"
        elif values and any(bound is not None and bound[1] not in units for bound in bounds):
            yield key, "bounds of the kind that its values are"


def violations(row: Values, constraints: Mapping[str, Bounds]) -> dict[str, float]:
    """Return for each constrained measure its distance beyond its worst bound, relative to the bound; 0: it keeps them.

    An unknown measure violates its constraint by 1.
    """
    return {
        column: max(_beyond(row.get(column), name, bound) for name, bound in bounds.items())
        for column, bounds in constraints.items()
    }


def _beyond(value: object, name: str, bound: float) -> float:
    if not _is_number(value) or math.isnan(value):
        return 1.0
    if _BOUNDS[name](value, bound):
        return 0.0
    # At least _TINY: a value equal to an exclusive bound violates it, too.
    return max(abs(value - bound) / max(abs(bound), _TINY), _TINY)


def _fulfils(value: object, expected: object) -> bool:
    if isinstance(expected, dict):
        return all(_keeps(value, name, bound) for name, bound in expected.items())
    return same(value, expected) or (isinstance(expected, list) and any(same(value, one) for one in expected))


def _keeps(value: object, name: str, bound: object) -> bool:
    if name == "not":
        return not _fulfils(value, bound)
    amount, least = _amount(value), _amount(bound)
    return amount is not None and least is not None and amount[1] == least[1] and _BOUNDS[name](amount[0], least[0])


def same(one: object, other: object) -> bool:
    """Return whether two TOML values are equal; true is not 1, and 1 MiB is 1024 KiB."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other or (_amount(one) is not None and _amount(one) == _amount(other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _amount(value: object) -> tuple[float | Fraction, str] | None:
    """Return a number, or a quantity in the unit of its kind, and that unit; None for other values."""
    if isinstance(value, str):
        return quantity_of(value)
    return (value, "") if _is_number(value) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
