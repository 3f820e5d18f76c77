"""Waits and polls of a rank's host; numbers of events and calls are absolute here, relative in lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from scenarios.workloads.recording.events.event import Counts, RankEvent, Request
from scenarios.workloads.recording.events.forms import is_integer, is_whole


@dataclass(frozen=True, slots=True)
class Synchronize(Request):
    """A wait of the host for a stream of the GPU, by number; with None, for all streams."""

    kind: ClassVar[str] = "synchronize"
    form = (is_whole,)
    words = "a wait for the GPU"
    is_awaited = False

    stream: int | None = None


@dataclass(frozen=True, slots=True)
class SynchronizeEvent(Request):
    """A wait of the host for the work that precedes a CUDA event. Lines count back from the last recorded event."""

    kind: ClassVar[str] = "synchronize_event"
    form = (is_whole,)
    since = "event"
    words = "a wait for an event"
    is_awaited = False

    number: int


@dataclass(frozen=True, slots=True)
class SynchronizeCall(Request):
    """A wait of the host for a call whose outputs are not requested. Lines count back from the last issued call."""

    kind: ClassVar[str] = "synchronize_call"
    form = (is_whole,)
    since = "call"
    words = "a wait for a call on the host"
    is_awaited = False

    number: int


@dataclass(frozen=True, slots=True)
class Elapsed(Request):
    """A request for the ns between two events, for which the host waits.

    Recordings omit it: the host has already waited for both events.
    """

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Query(Request):
    """A poll of an event, a stream or a call by the host, answered with whether the polled work is over."""

    kind: ClassVar[str] = "query"
    form = (lambda one: one in ("event", "stream", "call")), is_integer
    is_free = True

    polled: Literal["event", "stream", "call"]
    number: int

    @property
    def wait(self) -> Synchronize | SynchronizeEvent | SynchronizeCall:
        """The wait that replaces a polling loop of this query."""
        return _WAITS[self.polled](abs(self.number))

    def _convert(self, counts: Counts) -> RankEvent:
        last = {"event": counts.event, "call": counts.call}.get(self.polled, 0)
        return replace(self, number=last - self.number)


_WAITS: dict[str, Callable[[int], Synchronize | SynchronizeEvent | SynchronizeCall]] = {
    "event": SynchronizeEvent,
    "stream": Synchronize,
    "call": SynchronizeCall,
}


@dataclass(frozen=True, slots=True)
class Sleep(Request):
    """A sleep of the script on a CPU, in ns."""

    kind: ClassVar[str] = "sleep"
    form = (is_whole,)
    is_free = True

    ns: int


HostWait: TypeAlias = Synchronize | SynchronizeEvent | SynchronizeCall | Elapsed | Query | Sleep
