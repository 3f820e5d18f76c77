"""Requests of torch.distributed: collectives, waits for calls, groups, DistributedDataParallel modules and stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scenarios.config.interconnect import LIBRARIES
from scenarios.workloads.recording.events.event import Counts, OwnGroups, RankEvent, Request
from scenarios.workloads.recording.events.forms import (
    is_flag,
    is_group,
    is_replica,
    is_table,
    is_tensors,
    is_text,
    is_verb,
    is_whole,
)

if TYPE_CHECKING:
    from scenarios.workloads.recording.packed import Packed


def _is_library(value: Any) -> bool:
    return is_text(value) and (not value or value in LIBRARIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCall(Request):
    """A call of a `Rank` verb: group number, input and output tensors, and the verb's options.

    The answer is a `Refused` if the arguments are wrong. Verbs that work in place have `inputs` only. A recording's
    line omits `number` and keeps each tensor's shape, dtype and whether its values were known.

    Attributes:
        of_reducer: whether DistributedDataParallel issued the call, to reduce gradients.
        library: "gloo" where torch would use gloo for the call; "": the scenario's library.
    """

    kind: ClassVar[str] = "issue"
    form = (is_verb, is_whole, is_text, is_whole, is_tensors, is_tensors, is_table, is_flag, _is_library)

    verb: str
    group: int
    label: str
    stream: int = 0
    inputs: Sequence[Packed] = ()
    outputs: Sequence[Packed] = ()
    options: dict[str, Any] = field(default_factory=dict)
    of_reducer: bool = False
    library: str = ""
    number: int

    def line(self) -> list[Any]:
        return RankEvent.line(self)[:-1]

    @classmethod
    def of_line(cls, *values: Any) -> IssueCall:
        names = (each.name for each in fields(cls))
        return cls(number=0, **dict(zip(names, values, strict=False)))

    def as_line(self, counts: Counts) -> RankEvent:
        counts.call = self.number
        return self

    def replay(self, counts: Counts, own: OwnGroups) -> RankEvent:
        counts.call += 1
        options = own.options(self.group, self.verb, self.options)
        return replace(self, number=counts.call, group=own.group(self.group), options=options)

    def in_words(self) -> str:
        sizes = ", ".join(str(list(each.shape)) for each in self.inputs)
        return f"{self.label} of {sizes or 'nothing'}"


@dataclass(frozen=True, slots=True)
class WaitCall(Request):
    """A wait of a stream for a call, answered with the call's outputs.

    A recording's line has the number of calls issued after that call, in place of `number`.
    """

    kind: ClassVar[str] = "wait"
    form = is_whole, is_whole
    since = "call"
    words = "a wait for a call"

    number: int
    stream: int


@dataclass(frozen=True, slots=True)
class NewGroup(Request):
    """A request for a process group of these ranks, answered with the group's number."""

    kind: ClassVar[str] = "new_group"
    form = (is_group,)
    words = "a new group"

    ranks: Sequence[int]

    def replay(self, counts: Counts, own: OwnGroups) -> RankEvent:
        own.add(self.ranks)
        return self


@dataclass(frozen=True, slots=True)
class ReplicaGradients(Request):
    """A module under DistributedDataParallel, by number.

    Attributes:
        group: the number of the process group that reduces the gradients.
        has_hook: whether a communication hook is registered.
        shapes: [shape, dtype] of each gradient, in the order in which gradients become ready.
    """

    kind: ClassVar[str] = "replica"
    form = (is_replica,)
    is_listed = True
    words = "DistributedDataParallel's gradients"

    number: int
    group: int
    has_hook: bool
    shapes: Sequence[Any]

    def replay(self, counts: Counts, own: OwnGroups) -> RankEvent:
        return replace(self, group=own.group(self.group))


@dataclass(frozen=True, slots=True)
class MetInStore(Request):
    """A placeholder for a store request in a recording; a replay sends no request."""

    kind: ClassVar[str] = "met"
    is_free = True
