"""Events of any program's rank, which has streams, groups of each stream, and tasks: coroutines that it spawned.

Issued work (`IssueCall`, `RankCompute`, `SpawnTask`) is numbered in the rank's order of issue; lines that refer to work
count back from the rank's latest. Streams and groups are numbered as the rank makes them, beginning with stream 0 and
its world, host and cross groups; each further stream adds three groups of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from scenarios.workloads.recording.events.event import RankEvent
from scenarios.workloads.recording.events.forms import Form, is_group, is_sharding, is_text, is_whole
from scenarios.workloads.recording.events.work import LaunchKernel


@dataclass(frozen=True, slots=True)
class OnTask(RankEvent):
    """A marker: the events behind it are of this task; 0 is the program's own coroutine, others are in spawn order."""

    kind: ClassVar[str] = "task"
    form = (is_whole,)

    task: int


@dataclass(frozen=True, slots=True)
class SpawnTask(RankEvent):
    """A coroutine that begins on a stream; its task has the next number."""

    kind: ClassVar[str] = "spawn"
    form = (is_whole,)

    stream: int


@dataclass(frozen=True, slots=True)
class RankCompute(LaunchKernel):
    """A computation on a stream, with the sharding type of the tables that it is for."""

    kind: ClassVar[str] = "compute"
    form: ClassVar[tuple[Form, ...]] = (*LaunchKernel.form, is_sharding)

    sharding: str = ""

    def line(self) -> list[Any]:
        return [*LaunchKernel.line(self), self.sharding]


@dataclass(frozen=True, slots=True)
class WaitWork(RankEvent):
    """A wait for the work `back` places before the latest: of the task, of the stream ("after"), or of the host."""

    kind: ClassVar[str] = "work"
    form = (lambda how: how in ("await", "after", "synchronize")), is_whole, is_whole

    how: Literal["await", "after", "synchronize"]
    stream: int
    back: int


@dataclass(frozen=True, slots=True)
class OpenStream(RankEvent):
    """A further stream of the rank."""

    kind: ClassVar[str] = "stream"
    form = (is_text,)

    name: str


@dataclass(frozen=True, slots=True)
class GroupOnStream(RankEvent):
    """A further group of these ranks, made on a stream."""

    kind: ClassVar[str] = "group"
    form = is_whole, is_group

    stream: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BeginStep(RankEvent):
    """The begin of a training step on a stream, which ends at the task's next `StepEnd`."""

    kind: ClassVar[str] = "begin"
    form = is_whole, is_whole

    stream: int
    index: int
