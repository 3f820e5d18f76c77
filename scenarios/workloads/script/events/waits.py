"""Waits of a rank's host, and its looks at what is under way; numbers of events and calls as they were made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from scenarios.workloads.script.events.event import Counts, Request, ScriptEvent
from scenarios.workloads.script.events.forms import is_integer, is_whole


@dataclass(frozen=True, slots=True)
class Synchronize(Request):
    """A wait of the host for a stream of the GPU, by its number, or with None for all that the GPU was given."""

    kind: ClassVar[str] = "synchronize"
    form = (is_whole,)
    words = "a wait for the GPU"
    is_awaited = False

    stream: int | None = None


@dataclass(frozen=True, slots=True)
class SynchronizeEvent(Request):
    """A wait for what an event's stream had been given when it was recorded; in a line the last one has number 0."""

    kind: ClassVar[str] = "synchronize_event"
    form = (is_whole,)
    since = "event"
    words = "a wait for an event"
    is_awaited = False

    number: int


@dataclass(frozen=True, slots=True)
class SynchronizeCall(Request):
    """A wait for a call whose outputs are not asked for; in a line the one issued last has number 0."""

    kind: ClassVar[str] = "synchronize_call"
    form = (is_whole,)
    since = "call"
    words = "a wait for a call on the host"
    is_awaited = False

    number: int


@dataclass(frozen=True, slots=True)
class Elapsed(Request):
    """A question for the ns between two events, for which the host waits. No recording has it: that waits for nothing
    for which the host has not waited before.
    """

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Query(Request):
    """A look of the host at an event, a stream or a call: answered by whether that is over."""

    kind: ClassVar[str] = "query"
    form = (lambda one: one in ("event", "stream", "call")), is_integer
    is_free = True

    polled: Literal["event", "stream", "call"]
    number: int

    @property
    def wait(self) -> Synchronize | SynchronizeEvent | SynchronizeCall:
        """The wait that ends a loop of such looks."""
        return _WAITS[self.polled](abs(self.number))

    def _turned(self, counts: Counts) -> ScriptEvent:
        last = {"event": counts.event, "call": counts.call}.get(self.polled, 0)
        return replace(self, number=last - self.number)


_WAITS: dict[str, Callable[[int], Synchronize | SynchronizeEvent | SynchronizeCall]] = {
    "event": SynchronizeEvent,
    "stream": Synchronize,
    "call": SynchronizeCall,
}


@dataclass(frozen=True, slots=True)
class Sleep(Request):
    """A sleep of the script on a CPU, for so many ns."""

    kind: ClassVar[str] = "sleep"
    form = (is_whole,)
    is_free = True

    ns: int


HostWait: TypeAlias = Synchronize | SynchronizeEvent | SynchronizeCall | Elapsed | Query | Sleep
