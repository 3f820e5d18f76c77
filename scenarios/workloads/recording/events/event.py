"""The base types of events: what a program's rank requests from, or hands to, its simulated rank; a recording's lines.

A line is [kind, value, ...]. Lines omit the numbers of calls and events, or count backwards from the latest number, so
that identical steps, and ranks that do the same work, have identical lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self

from scenarios.workloads.recording.events.forms import Form


class OwnGroups(Protocol):
    """The process groups of the rank for which a recording is replayed; another rank may have recorded the lines."""

    def add(self, ranks: Sequence[int]) -> None:
        """Register a new group of these ranks."""
        ...

    def group(self, number: int) -> int:
        """Return the number of this rank's group that corresponds to the recorded group."""
        ...

    def options(self, number: int, verb: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the verb's options for this rank, given the recorded options of a call on the group `number`."""
        ...


@dataclass(slots=True)
class Counts:
    """The numbers of a rank's last recorded event and of its last issued call."""

    event: int = 0
    call: int = 0


@dataclass(frozen=True, slots=True)
class RankEvent:
    """An event of a rank; its fields, in order, are the values after the kind in a line.

    Attributes:
        kind: the first value of its line; "": the event has no line.
        form: one check per value of its line.
        is_listed: whether the line holds all values as one list.
        since: the counter to which the field `number` is relative in a line; "": `number` is not relative.
    """

    kind: ClassVar[str] = ""
    form: ClassVar[tuple[Form, ...]] = ()
    is_listed: ClassVar[bool] = False
    since: ClassVar[Literal["event", "call", ""]] = ""

    @classmethod
    def fits(cls, values: Sequence[Any]) -> bool:
        """Return whether a line's values after its kind fit this event; values that default to None may be omitted."""
        if not values:
            return all(field.default is not MISSING for field in fields(cls))
        return len(values) == len(cls.form) and all(form(one) for form, one in zip(cls.form, values, strict=True))

    @classmethod
    def of_line(cls, *values: Any) -> Self:
        """Return the event that a line's values describe."""
        return cls(*(values[0] if cls.is_listed else values))

    def line(self) -> list[Any]:
        """Return the values after the kind in this event's line."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [values] if self.is_listed else [] if values == [None] else values

    def as_line(self, counts: Counts) -> RankEvent:
        """Update `counts`, and return the event with relative numbers, as a line stores it."""
        return self._convert(counts)

    def replay(self, counts: Counts, own: OwnGroups) -> RankEvent:
        """Update `counts`, and return a line's event with absolute numbers and with the replaying rank's own groups."""
        return self._convert(counts)

    def _convert(self, counts: Counts) -> RankEvent:
        """Convert `number` between absolute and relative; the subtraction is its own inverse."""
        if not self.since:
            return self
        number: int = getattr(counts, self.since) - self.number  # type: ignore[attr-defined]
        return replace(self, number=number)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class Request(RankEvent):
    """An event that must be answered before the rank continues.

    Attributes:
        words: the request's name in sentences for users; "": its kind.
        is_awaited: whether a process with a GPU blocks until the answer. If not, the answer carries only the time, and
            the process runs ahead of its simulated host until its next awaited request or read of the clock.
        is_free: whether ranks of one host class may differ in where, how often and with which values they issue it.
        is_own: whether ranks of one host class may differ in its values.
    """

    words: ClassVar[str] = ""
    is_awaited: ClassVar[bool] = True
    is_free: ClassVar[bool] = False
    is_own: ClassVar[bool] = False

    def in_words(self) -> str:
        """Return the request in words, for error messages."""
        return self.words or self.kind
