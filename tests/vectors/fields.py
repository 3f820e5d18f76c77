"""What a field of a recorded file may hold: each check is one sentence when it fails, with the place and the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class VectorError(AssertionError):
    """A recorded file that cannot be replayed: one sentence."""


class Kind(Protocol):
    """What a value must be."""

    def check(self, value: Any, where: str) -> None:
        """Nothing, if `value` fits; a VectorError that names `where` otherwise."""


@dataclass(frozen=True)
class Is:
    """A value that `fits`."""

    expected: str
    fits: Callable[[Any], bool]

    def check(self, value: Any, where: str) -> None:
        if not self.fits(value):
            shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:80]}..."
            raise VectorError(f"{where} = {shown}: expected {self.expected}")


@dataclass(frozen=True)
class Each:
    """A list, every item of one kind."""

    kind: Kind

    def check(self, value: Any, where: str) -> None:
        Is("a list", lambda given: isinstance(given, list)).check(value, where)
        for index, item in enumerate(value):
            self.kind.check(item, f"{where}[{index}]")


@dataclass(frozen=True)
class Maybe:
    """Null, or a value of a kind."""

    kind: Kind

    def check(self, value: Any, where: str) -> None:
        if value is not None:
            self.kind.check(value, where)


@dataclass(frozen=True)
class Fields:
    """A record of named fields: no other, and none of `required` missing."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind] = field(default_factory=dict)

    def check(self, value: Any, where: str) -> None:
        Is("a record", lambda given: isinstance(given, dict)).check(value, where)
        for name in value:
            if name not in self.required and name not in self.optional:
                raise VectorError(f"{where}.{name}: unknown field; expected one of {', '.join(sorted(self.names))}")
        for name in self.required:
            if name not in value:
                raise VectorError(f"{where}.{name}: the field is missing")
        for name, item in value.items():
            (self.required.get(name) or self.optional[name]).check(item, f"{where}.{name}")

    @property
    def names(self) -> set[str]:
        return {*self.required, *self.optional}


def one_of(*values: Any) -> Is:
    # Types too: 1 is not True, and 2.0 not 2.
    return Is(
        f"one of {', '.join(map(repr, values))}" if len(values) > 1 else repr(values[0]),
        lambda given: any(given == value and type(given) is type(value) for value in values),
    )


def whole_from(least: int) -> Is:
    return Is(f"a whole number from {least} on", lambda given: type(given) is int and given >= least)


TEXT = Is("a text", lambda given: isinstance(given, str))
FLAG = Is("true or false", lambda given: isinstance(given, bool))
WHOLE = Is("a whole number", lambda given: type(given) is int)
COUNT = whole_from(0)
SIZE = whole_from(1)
NUMBER = Is("a number", lambda given: type(given) in (int, float))
PROSE = Is("a text, or texts", lambda given: isinstance(given, (str, list, dict)))
