"""The program `recording`: each rank issues and waits for what its recording has, task by task."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import CollectiveError, ProgramError, ScenarioError
from scenarios.seam.host_work import HostWork
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.sharding_kind import ShardingKind
from scenarios.workloads.effort import Effort
from scenarios.workloads.recording.config import RecordedRun
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.notes import RecordMetric, StepEnd
from scenarios.workloads.recording.events.tasks import (
    BeginStep,
    GroupOnStream,
    OpenStream,
    RankCompute,
    SpawnTask,
    WaitWork,
)
from scenarios.workloads.recording.packed import issue, nothing
from scenarios.workloads.recording.tasks import RankTasks, tasks_of

_MOST_LISTED = 4


class RecordingProgram(Program):
    """A program that issues what the ranks of another one issued; it computes no values."""

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.options, RecordedRun)
        self.options = scenario.options
        try:
            recorded = self.options.read()
            self._tasks, self._ranks = tasks_of(recorded), recorded.ranks
        except ValueError as error:
            raise ScenarioError(f"{scenario.path}: recording.file = '{self.options.file}': expected {error}") from None
        self.effort = Effort(operations=recorded.operations / recorded.steps)
        self._playing: dict[int, _PlayedRank] = {}

    async def __call__(self, rank: Rank) -> None:
        if rank.device.type != "meta":
            raise ProgramError(f"{self.options.file}: expected `python -m sim`: a recording has nothing to compute")
        played = _PlayedRank(rank, self._tasks[self._ranks[rank.rank]], self.options.file)
        self._playing[rank.rank] = played
        await played.task(0)

    def standing(self) -> str:
        """Return where ranks wait in the file, as `Program.standing` requires: only a damaged one has a deadlock."""
        lines = [f"lines[{line}] of rank {rank}" for rank, one in self._playing.items() for line in one.waits.values()]
        return f"; {self.options.file}: {', '.join(lines[:_MOST_LISTED])}: expected waits that end, as it was written"


class _PlayedRank:
    """A rank in play."""

    def __init__(self, rank: Rank, tasks: RankTasks, file: Path) -> None:
        self._tasks, self._file, self._streams = tasks, file, [rank]
        self._groups = [rank.world, rank.intra, rank.cross]
        self._works = dict[int, Work[Any]]()  # by number, until the last wait for them
        self._left = dict(tasks.uses)
        self.waits = dict[int, int]()  # the lines at which tasks wait

    async def task(self, number: int) -> None:
        """Run a task: 0 is the program's own coroutine."""
        steps = list[AbstractContextManager[None]]()
        for event, line, work in self._tasks.events[number]:
            try:
                if isinstance(event, WaitWork):
                    self.waits[number] = line
                    await self._wait(event, self._work(work))
                    del self.waits[number]
                else:
                    self._begin(event, work, steps)
            except Exception as error:
                is_other = isinstance(error, ProgramError) and not isinstance(error, CollectiveError)
                if isinstance(event, WaitWork) and is_other:  # of another task, which named its line
                    raise
                raise ProgramError(
                    f"{self._file}: rank {self._streams[0].rank}: lines[{line}]: expected an event that fits those"
                    f" before, as it was written: {error}"
                ) from error

    def _begin(self, event: Any, work: int, steps: list[AbstractContextManager[None]]) -> None:
        match event:
            case IssueCall() | RankCompute() | SpawnTask():
                self._works[work] = self._issue(event, work)
            case BeginStep(stream, index):
                steps.append(self._streams[stream].step(index))
                steps[-1].__enter__()
            case StepEnd():
                steps.pop().__exit__(None, None, None)
            case OpenStream(name):
                made = self._streams[0].stream(name)
                self._streams.append(made)
                self._groups += [made.world, made.intra, made.cross]
            case GroupOnStream(stream, ranks):
                self._groups.append(self._streams[stream].new_group(ranks))
            case RecordMetric(name, value):
                self._streams[0].record(name, value)
            case HostWork():
                self._streams[0].host_work(event)

    def _issue(self, event: IssueCall | RankCompute | SpawnTask, number: int) -> Work[Any]:
        stream = self._streams[event.stream]
        match event:
            case IssueCall():
                inputs, targets = (
                    [each.tensor(stream.device) for each in one] for one in (event.inputs, event.outputs)
                )
                group, options = self._groups[event.group], dict(event.options)
                stream = _for_tables(stream, options.pop("sharding", ""))
                return issue(stream, event.verb, inputs, targets, group=group, label=event.label, options=options)
            case RankCompute():
                stream = _for_tables(stream, event.sharding)
                return stream.compute(event.kernel, nothing, label=event.label, role=event.role)
            case SpawnTask():
                return stream.spawn(self.task(self._tasks.spawned[number]))

    def _work(self, number: int) -> Work[Any]:
        """Return a work, and forget it after the last wait for it.

        Raises:
            ProgramError: another task issues it, and has not yet: the program depends on how long things take.
        """
        self._left[number] -= 1
        found = self._works.get(number) if self._left[number] else self._works.pop(number, None)
        if found is None:
            raise ProgramError(
                f"rank {self._streams[0].rank}: a task waits for what another one issues later here; expected a"
                " program whose tasks await each other"
            )
        return found

    async def _wait(self, event: WaitWork, work: Work[Any]) -> None:
        match event.how:
            case "await":
                await work
            case "after":
                self._streams[event.stream].after(work)
            case "synchronize":
                await self._streams[event.stream].synchronize(work)


def _for_tables(rank: Rank, sharding: str) -> Rank:
    return rank.for_tables(ShardingKind(sharding)) if sharding else rank
