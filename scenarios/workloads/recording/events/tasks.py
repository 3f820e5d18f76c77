"""Events of any program's rank, which has streams, groups of each stream, and tasks: coroutines that it spawned.

Issued work (`IssueCall`, `RankCompute`, `SpawnTask`) is numbered in the rank's order of issue; lines that refer to work
count back from the rank's latest. Streams and groups are numbered as the rank makes them, beginning with stream 0 and
its world, host and cross groups; each further stream adds three groups of its own.
"""

from __future__ import annotations

from typing import Any, Literal

from scenarios.workloads.recording.events.event import RankEvent, event
from scenarios.workloads.recording.events.forms import is_group, is_sharding, is_text, is_whole
from scenarios.workloads.recording.events.work import LaunchKernel


@event("task", is_whole)
class OnTask(RankEvent):
    """A marker: the events behind it are of this task; 0 is the program's own coroutine, others are in spawn order."""

    task: int


@event("spawn", is_whole)
class SpawnTask(RankEvent):
    """A coroutine that begins on a stream; its task has the next number."""

    stream: int


@event("compute", *LaunchKernel.form, is_sharding)
class RankCompute(LaunchKernel):
    """A computation on a stream, with the sharding type of the tables that it is for."""

    sharding: str = ""

    def line(self) -> list[Any]:
        return [*LaunchKernel.line(self), self.sharding]


@event("work", (lambda how: how in ("await", "after", "synchronize")), is_whole, is_whole)
class WaitWork(RankEvent):
    """A wait for the work `back` places before the latest: of the task, of the stream ("after"), or of the host."""

    how: Literal["await", "after", "synchronize"]
    stream: int
    back: int


@event("stream", is_text)
class OpenStream(RankEvent):
    """A further stream of the rank."""

    name: str


@event("group", is_whole, is_group)
class GroupOnStream(RankEvent):
    """A further group of these ranks, made on a stream."""

    stream: int
    ranks: tuple[int, ...]


@event("begin", is_whole, is_whole)
class BeginStep(RankEvent):
    """The begin of a training step on a stream, which ends at the task's next `StepEnd`."""

    stream: int
    index: int
