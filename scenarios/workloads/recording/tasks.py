"""The tasks of recorded ranks, checked: each rank's events, in the coroutine that issued them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.seam.collectives import COLLECTIVES
from scenarios.seam.host_work import HostWork
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.notes import RecordMetric, StepEnd
from scenarios.workloads.recording.events.tasks import (
    BeginStep,
    GroupOnStream,
    OnTask,
    OpenStream,
    RankCompute,
    SpawnTask,
    WaitWork,
)
from scenarios.workloads.recording.lines import parse_line, parse_lines
from scenarios.workloads.recording.recorded import Recorded

_SOUND = "a recording of a program"
_GROUPS_OF_STREAM = 3  # world, intra, cross
_KINDS = (
    *(IssueCall, RankCompute, SpawnTask, OnTask, WaitWork, OpenStream, GroupOnStream, BeginStep, StepEnd),
    *(RecordMetric, HostWork),
)


@dataclass(slots=True)
class RankTasks:
    """The events of a rank by task, each with its line and the number of the work that it issues or awaits, else 0.

    Attributes:
        uses: how often each work is waited for.
        spawned: by the work that stands for it, the number of a task.
        streams, groups: how many the rank has made.
    """

    events: list[list[tuple[Any, int, int]]] = field(default_factory=lambda: [[]])
    uses: Counter[int] = field(default_factory=Counter)
    spawned: dict[int, int] = field(default_factory=dict)
    streams: int = 1
    groups: int = _GROUPS_OF_STREAM
    _task: int = 0
    _works: int = 0
    _open: Counter[int] = field(default_factory=Counter)  # steps, by task

    def add(self, event: Any, line: int, world_size: int) -> str:
        """Append the next event, of a line; return what was expected in its place, "" if it fits those before."""
        wrong, number = self._mistake(event, world_size), 0
        if wrong:
            return wrong
        match event:
            case OnTask(task):
                self._task = task
                return ""
            case IssueCall() | RankCompute() | SpawnTask():
                self._works = number = self._works + 1
                if isinstance(event, SpawnTask):
                    self.spawned[number] = len(self.events)
                    self.events.append([])
            case WaitWork():
                number = self._works - event.back
                self.uses[number] += 1
            case OpenStream():
                self.streams, self.groups = self.streams + 1, self.groups + _GROUPS_OF_STREAM
            case GroupOnStream():
                self.groups += 1
            case BeginStep():
                self._open[self._task] += 1
            case StepEnd():
                self._open[self._task] -= 1
        self.events[self._task].append((event, line, number))
        return ""

    def never_awaited(self) -> int | None:
        """Return the line of a work for which nothing waits; None if there is none."""
        issued = (each for events in self.events for each in events)
        return next((line for _, line, number in issued if number and not self.uses[number]), None)

    def _mistake(self, event: Any, world_size: int) -> str:
        checks = [
            (isinstance(event, _KINDS), "a request of a program"),
            (getattr(event, "stream", 0) < self.streams, f"a stream below {self.streams}"),
        ]
        match event:
            case OnTask(task):
                checks.append((task < len(self.events), f"a task below {len(self.events)}"))
            case WaitWork():
                checks.append((event.back < self._works, f"one of {self._works} works"))
            case IssueCall():
                checks.append((event.group < self.groups, f"a group below {self.groups}"))
                checks.append((event.verb in COLLECTIVES, "a collective"))
            case GroupOnStream():
                checks.append((max(event.ranks) < world_size, f"ranks below {world_size}"))
            case StepEnd():
                checks.append((self._open[self._task] > 0, "a step that has begun"))
        return next((expected for is_so, expected in checks if not is_so), "")


def calls_of(recorded: Recorded, rank: int) -> dict[tuple[str, int], IssueCall]:
    """Return a rank's calls by their stream, and by how many operations it issued on the stream before."""
    streams, issued = ["main"], Counter[str]()
    found = dict[tuple[str, int], IssueCall]()
    for line in recorded.sequences[recorded.ranks[rank]]:
        event = parse_line(recorded.lines[line])
        if isinstance(event, OpenStream):
            streams.append(event.name)
        elif isinstance(event, IssueCall | RankCompute | BeginStep):
            name = streams[event.stream]
            if isinstance(event, IssueCall):
                found[name, issued[name]] = event
            issued[name] += 1
    return found


def tasks_of(recorded: Recorded) -> Sequence[RankTasks]:
    """Return the tasks of each recorded sequence.

    Raises:
        ValueError: an event does not fit those before it; the message is a phrase with its place.
    """
    try:
        events = parse_lines(recorded)
    except ValueError as error:
        raise ValueError(f"{_SOUND}, but it is damaged: {error}") from None
    found = list[RankTasks]()
    for number, sequence in enumerate(recorded.sequences):
        tasks = RankTasks()
        for place, line in enumerate(sequence):
            if wrong := tasks.add(events[line], line, len(recorded.ranks)):
                where = f"sequences[{number}][{place}], lines[{line}], '{recorded.lines[line][0]}'"
                raise ValueError(f"{_SOUND}, but it is damaged: {where}: expected {wrong}")
        if (left := tasks.never_awaited()) is not None:
            where = f"sequences[{number}], lines[{left}], '{recorded.lines[left][0]}'"
            raise ValueError(f"{_SOUND}, but it is damaged: {where}: expected a wait for it below")
        found.append(tasks)
    return found
