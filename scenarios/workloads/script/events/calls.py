"""Calls of torch.distributed: collectives, waits for them, groups, replicas whose gradients they reduce, and stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scenarios.config.interconnect import LIBRARIES
from scenarios.workloads.script.events.event import Counts, OwnGroups, Request, ScriptEvent
from scenarios.workloads.script.events.forms import (
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
    from scenarios.workloads.script.meeting.stores import StoreRequest
    from scenarios.workloads.script.requests import Packed


def _is_library(value: Any) -> bool:
    return value == "" or value in LIBRARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCall(Request):
    """A verb of `Rank`, the number of its group, tensors that it reads and writes, and what else the verb takes.

    It is answered by a `Refused` if its arguments are wrong. Verbs that write over what they read have `inputs` alone.
    `of_reducer`: it is DistributedDataParallel's, of gradients. `library`: what torch would take for it, where that is
    gloo; "": the scenario's. Its line has no number, and of tensors the shape, the dtype and whether values were known.
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
        return ScriptEvent.line(self)[:-1]

    @classmethod
    def of_line(cls, *values: Any) -> IssueCall:
        names = (each.name for each in fields(cls))
        return cls(number=0, **dict(zip(names, values, strict=False)))

    def noted(self, counts: Counts) -> ScriptEvent:
        counts.call = self.number
        return self

    def replayed(self, counts: Counts, own: OwnGroups) -> ScriptEvent:
        counts.call += 1
        options = own.options(self.group, self.verb, self.options)
        return replace(self, number=counts.call, group=own.group(self.group), options=options)

    def in_words(self) -> str:
        sizes = ", ".join(str(list(each.shape)) for each in self.inputs)
        return f"{self.label} of {sizes or 'nothing'}"


@dataclass(frozen=True, slots=True)
class WaitCall(Request):
    """A stream's wait for a call: answered by its outputs. In a line the one issued last has number 0."""

    kind: ClassVar[str] = "wait"
    form = is_whole, is_whole
    since = "call"
    words = "a wait for a call"

    number: int
    stream: int


@dataclass(frozen=True, slots=True)
class NewGroup(Request):
    """A further group of these ranks: answered by its number."""

    kind: ClassVar[str] = "new_group"
    form = (is_group,)
    words = "a new group"

    ranks: Sequence[int]

    def replayed(self, counts: Counts, own: OwnGroups) -> ScriptEvent:
        own.add(self.ranks)
        return self


@dataclass(frozen=True, slots=True)
class ReplicaGradients(Request):
    """A module under DistributedDataParallel: its number, its group's, whether it has a hook, and [shape, type] of its
    gradients in the order of their arrival.
    """

    kind: ClassVar[str] = "replica"
    form = (is_replica,)
    is_listed = True
    words = "DistributedDataParallel's gradients"

    number: int
    group: int
    has_hook: bool
    shapes: Sequence[Any]

    def replayed(self, counts: Counts, own: OwnGroups) -> ScriptEvent:
        return replace(self, group=own.group(self.group))


@dataclass(frozen=True, slots=True)
class AskStore(Request):
    """A request to a store: answered once other ranks allow it."""

    stored: StoreRequest

    def noted(self, counts: Counts) -> ScriptEvent:
        return MetInStore()


@dataclass(frozen=True, slots=True)
class MetInStore(Request):
    """A request to a store as a recording has it, of which a replay asks nothing."""

    kind: ClassVar[str] = "met"
    is_free = True
