"""The table of all kinds of lines in a recording, and the parser of lines."""

from __future__ import annotations

from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.workloads.recording.events.calls import IssueCall, MetInStore, NewGroup, ReplicaGradients, WaitCall
from scenarios.workloads.recording.events.event import RankEvent
from scenarios.workloads.recording.events.forms import is_host_work, is_text
from scenarios.workloads.recording.events.notes import (
    FoundPlan,
    LoadedBatch,
    MemoryPeak,
    NoteCpuWork,
    NoteLeftOut,
    RecordMetric,
    ReservedPeak,
    ScriptEnd,
    StepEnd,
)
from scenarios.workloads.recording.events.tasks import (
    BeginStep,
    GroupOnStream,
    OnTask,
    OpenStream,
    RankCompute,
    SpawnTask,
    WaitWork,
)
from scenarios.workloads.recording.events.waits import Query, Sleep, Synchronize, SynchronizeCall, SynchronizeEvent
from scenarios.workloads.recording.events.work import ComputeOnCpu, GradientReady, LaunchKernel, RecordEvent, WaitEvent

# The kind of lines with the work of a GPU's host, which is no event: such a line holds the fields of `HostWork`.
HOST = "host"
_EVENTS: tuple[type[RankEvent], ...] = (
    *(ComputeOnCpu, LaunchKernel, RecordEvent, WaitEvent, GradientReady),
    *(IssueCall, WaitCall, NewGroup, ReplicaGradients, MetInStore),
    *(Synchronize, SynchronizeEvent, SynchronizeCall, Query, Sleep),
    *(StepEnd, ScriptEnd, RecordMetric, FoundPlan, MemoryPeak, ReservedPeak, NoteLeftOut, NoteCpuWork, LoadedBatch),
    *(OnTask, SpawnTask, RankCompute, WaitWork, OpenStream, GroupOnStream, BeginStep),
)
EVENTS = {event.kind: event for event in _EVENTS}


def is_line(line: Any) -> bool:
    """Return whether a value read from a file is a valid line."""
    if not (isinstance(line, list) and line and is_text(line[0])):
        return False
    kind, *values = line
    if kind == HOST:
        return len(values) == 1 and is_host_work(values[0])
    return kind in EVENTS and EVENTS[kind].fits(values)


def of_line(line: list[Any]) -> RankEvent | HostWork:
    """Return the event, or the host's work, that a line describes."""
    kind, *values = line
    return HostWork(*values[0]) if kind == HOST else EVENTS[kind].of_line(*values)
