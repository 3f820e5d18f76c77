"""An event of a script's rank: something that it asks of the simulated rank, or gives to it, and a line of a recording.

A line is [kind, value, ...]. Numbers of calls and events are left out of lines, or are how many came since, so that
what steps and ranks do alike is alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self

from scenarios.workloads.script.events.forms import Form


class OwnGroups(Protocol):
    """The groups of a rank for which a recording is played that another rank may have made."""

    def add(self, ranks: Sequence[int]) -> None:
        """Note a further group."""
        ...

    def group(self, number: int) -> int:
        """Return this rank's group in place of that of the recorded one."""
        ...

    def options(self, number: int, verb: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return this rank's options of a call on the group of that number."""
        ...


@dataclass(slots=True)
class Counts:
    """The numbers of the event that a rank recorded last, and of the call that it issued last."""

    event: int = 0
    call: int = 0


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """An event. Its fields, in order, are what stands behind its kind in a line.

    Attributes:
        kind: how its line begins; "": it has none.
        form: what its line's values have to be.
        is_listed: whether they stand there as one list.
        since: of what its field `number` is one; "": it has none.
    """

    kind: ClassVar[str] = ""
    form: ClassVar[tuple[Form, ...]] = ()
    is_listed: ClassVar[bool] = False
    since: ClassVar[Literal["event", "call", ""]] = ""

    @classmethod
    def fits(cls, values: Sequence[Any]) -> bool:
        """Return whether values can stand behind the kind in a line; one that may be None can be left out."""
        if not values:
            return all(field.default is not MISSING for field in fields(cls))
        return len(values) == len(cls.form) and all(form(one) for form, one in zip(cls.form, values, strict=True))

    @classmethod
    def of_line(cls, *values: Any) -> Self:
        """Return the event of the values of a line."""
        return cls(*(values[0] if cls.is_listed else values))

    def line(self) -> list[Any]:
        """Return the values that stand behind the kind in its line."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [values] if self.is_listed else [] if values == [None] else values

    def noted(self, counts: Counts) -> ScriptEvent:
        """Count the event, and return it as its line has it."""
        return self._turned(counts)

    def replayed(self, counts: Counts, own: OwnGroups) -> ScriptEvent:
        """Count the event of a line, and return it as the rank for which it is played has it."""
        return self._turned(counts)

    def _turned(self, counts: Counts) -> ScriptEvent:
        """Return the event with how many came since its number in place of that, or the other way round."""
        if not self.since:
            return self
        number: int = getattr(counts, self.since) - self.number  # type: ignore[attr-defined]
        return replace(self, number=number)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class Request(ScriptEvent):
    """An event that is answered before the rank goes on.

    Attributes:
        words: what a sentence for a user calls it; "": its kind.
        is_awaited: whether a process with a GPU awaits the answer. Else that says nothing but the time, and the process
            computes ahead of its simulated host until it asks for something else, or reads the clock.
        is_free: whether ranks that do the same may differ in where, how often and with what they ask it.
        is_own: whether they may differ in its values.
    """

    words: ClassVar[str] = ""
    is_awaited: ClassVar[bool] = True
    is_free: ClassVar[bool] = False
    is_own: ClassVar[bool] = False

    def in_words(self) -> str:
        """Return the request in a few words."""
        return self.words or self.kind
