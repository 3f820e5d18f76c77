"""A backend around another one, which notes what a rank's program issues and what its tasks wait for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from torch import Tensor

from scenarios.config.scenario import Scenario
from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Backend, Work
from scenarios.seam.calls import SET_UP_MISTAKES, Call
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import PricedLater, price_now
from scenarios.seam.roles import Purpose
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.event import RankEvent
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
from scenarios.workloads.recording.file import NAME
from scenarios.workloads.recording.lines import Logs, RankLog
from scenarios.workloads.recording.packed import Packed, root_of
from scenarios.workloads.recording.recorded import SCRIPT, Recorded

T = TypeVar("T")

# The task whose code runs: 0 for the program's own coroutine, n for its n-th spawned one.
_TASK: ContextVar[int] = ContextVar("task", default=0)


class ProgramRecorder:
    """The recording in the making of a simulated program."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._logs, self._ranks = scenario, Logs(), list[_RecordedRank]()

    def around(self, backend: Backend) -> Backend:
        """Return a backend that notes what goes to a rank's main stream, and to further streams made by it."""
        made = _RecordedRank(backend, self._logs.begin(backend.rank))
        self._ranks.append(made)
        return made.main

    def make_recording(self) -> Recorded:
        """Return the recording of a run that has ended.

        Raises:
            ProgramError: a call was refused, so that a replay would fail.
        """
        scenario, cluster = self._scenario, self._scenario.cluster
        for each in self._ranks:
            if each.refused:
                raise ProgramError(f"{each.refused}: expected a program whose calls all succeed, to record it")
        return self._logs.make_recording(
            range(cluster.world_size),
            program=scenario.program,
            script=scenario.name,
            sha256=scenario.digest(),
            args=[],
            env=[],
            profile=cluster.profile,
            keys=dict(scenario.own_keys),
            kind=cluster.host.gpu.kind,
            hosts=cluster.hosts,
            gpus_per_host=cluster.host.gpus,
            steps=scenario.steps,
            flops_per_s=cpu_flops_per_s(scenario),
            uses_host_path=scenario.uses_host_path,
            cuda_graphs=scenario.workload.launching.cuda_graphs,
        )

    def kept(self) -> dict[str, bytes]:
        """Return the recording's file, as `Program.kept`; raise ProgramError as `make_recording` does."""
        return {NAME: self.make_recording().to_bytes()}


class _RecordedWork:
    """A work of the backend behind, whose awaits are noted."""

    __slots__ = ("_rank", "number", "work")

    def __init__(self, rank: _RecordedRank, work: Work[Any], number: int) -> None:
        self._rank, self.work, self.number = rank, work, number

    def __await__(self) -> Generator[Any, Any, Any]:
        self._rank.wait("await", 0, self)
        return self.work.__await__()


class _RecordedRank:
    """State that a rank's streams share: its log, the numbers of its works, streams and groups, and its current task.

    `refused` is the sentence of the first call that was refused; "" for none.
    """

    def __init__(self, backend: Backend, log: RankLog) -> None:
        self._log, self._works, self._task, self.tasks, self.streams = log, 0, 0, 0, 0
        self.groups, self.refused = dict[str, int](), ""
        self.main = RecordingBackend(backend, self)

    def note(self, event: RankEvent | HostWork) -> None:
        """Append an event of the current task."""
        if (task := _TASK.get()) != self._task:
            self._task = task
            self._log.add(OnTask(task))
        self._log.add(event)

    @contextmanager
    def succeeding(self) -> Iterator[None]:
        """Keep the sentence of a group or stream that is refused inside."""
        try:
            yield
        except SET_UP_MISTAKES as mistake:
            self.refused = self.refused or str(mistake)
            raise

    def begin(self, event: RankEvent, work: Work[Any]) -> Work[Any]:
        """Append an event that issued a work; return the work, numbered."""
        self.note(event)
        self._works += 1
        return _RecordedWork(self, work, self._works)

    def wait(self, how: Any, stream: int, work: Work[Any]) -> Work[Any]:
        """Append a wait for a work; return the work of the backend behind."""
        if not isinstance(work, _RecordedWork):  # done without a backend, as a call of a rank that is no member
            return work
        self.note(WaitWork(how, stream, self._works - work.number))
        return work.work


class _Task:
    """A spawned coroutine, which runs as a task of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int) -> None:
        self._coroutine, self._number = coroutine, number
        self.__name__, self.close = getattr(coroutine, "__name__", "spawn"), coroutine.close

    def __await__(self) -> Generator[Any, Any, Any]:
        _TASK.set(self._number)
        return self._coroutine.__await__()


class RecordingBackend:
    """A stream of a rank whose program is recorded; `behind` does the work."""

    def __init__(self, behind: Backend, rank: _RecordedRank) -> None:
        """Wrap a stream, and give it and its groups the rank's next numbers."""
        self.behind, self._of = behind, rank
        self.rank, self.world_size, self.local_world_size = behind.rank, behind.world_size, behind.local_world_size
        self.device, self.control_device, self.stream = behind.device, behind.control_device, behind.stream
        self.world, self.intra, self.cross = behind.world, behind.intra, behind.cross
        self.knows = behind.knows
        self._number, rank.streams = rank.streams, rank.streams + 1
        for group in (self.world, self.intra, self.cross):
            self._add(group)

    @property
    def now_ns(self) -> int:
        """Time of the backend behind, in ns."""
        return self.behind.now_ns

    def _add(self, group: Group) -> Group:
        self._of.groups[group.name] = len(self._of.groups)
        return group

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        return self._of.begin(self._describe_call(call, issue), self.behind.issue(call, group, issue))

    def _describe_call(self, call: Call, issue: Issue) -> IssueCall:
        """Return a call as a request: shapes in place of tensors, and the verb's further arguments."""
        options: dict[str, Any] = {key: value for key, value in call.purpose._asdict().items() if value}
        if call.reduce:
            options["op"] = call.reduce.upper()
        if call.root >= 0:
            options[root_of(call.op)] = int(cast(int, issue.root))
        for name, splits in zip(("output_split_sizes", "input_split_sizes"), issue.splits, strict=True):
            if splits is not None:
                options[name] = list(map(_plain, splits))
        return IssueCall(
            verb=call.op,
            group=self._of.groups[call.group.name],
            label=call.label,
            stream=self._number,
            inputs=self._pack(issue.input),
            outputs=[] if issue.output is issue.input else self._pack(issue.output),
            options=options,
            number=0,
        )

    def _pack(self, value: Any) -> list[Packed]:
        """Return the shapes of an argument's tensors, in order; those with values are on the other device."""
        if value is None:
            return []
        if not isinstance(value, Tensor):
            return [packed for each in value for packed in self._pack(each)]
        known = b"" if value.device.type != self.device.type else None
        return [Packed(tuple(value.shape), value.dtype, known)]

    def refuse(self, call: Call, group: Group) -> None:
        self._of.refused = self._of.refused or call.mistake
        self.behind.refuse(call, group)

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: Sequence[object], purpose: Purpose
    ) -> Work[T]:
        priced = price_now(kernel)
        event = RankCompute(self._number, priced, label, *purpose)
        return self._of.begin(event, self.behind.compute(priced, label, function, arguments, purpose))

    def host_work(self, work: HostWork) -> int:
        self._of.note(work)
        return self.behind.host_work(work)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        self._of.tasks += 1
        task = cast(Coroutine[Any, Any, T], _Task(coroutine, self._of.tasks))
        return self._of.begin(SpawnTask(self._number), self.behind.spawn(task))

    def after(self, work: Work[Any]) -> None:
        self.behind.after(self._of.wait("after", self._number, work))

    def synchronize(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        return self.behind.synchronize(self._of.wait("synchronize", self._number, work))

    def step(self, index: int) -> AbstractContextManager[None]:
        return self._step(index)

    @contextmanager
    def _step(self, index: int) -> Iterator[None]:
        self._of.note(BeginStep(self._number, index))
        try:
            with self.behind.step(index):
                yield
        finally:  # also where the program catches an error outside
            self._of.note(StepEnd())

    def record(self, name: str, value: Tensor | float) -> None:
        self._of.note(RecordMetric(name, float(value)))
        self.behind.record(name, value)

    def new_group(self, name: str, ranks: object) -> Group:
        with self._of.succeeding():
            made = self._add(self.behind.new_group(name, ranks))
        self._of.note(GroupOnStream(self._number, made.ranks))
        return made

    def open_stream(self, name: str) -> RecordingBackend:
        with self._of.succeeding():
            made = RecordingBackend(self.behind.open_stream(name), self._of)
        self._of.note(OpenStream(name))
        return made


def _plain(split: float) -> float:
    """Return a split that may be a number of numpy or torch as a Python number."""
    return int(split) if split == int(split) else float(split)


def cpu_flops_per_s(scenario: Scenario) -> float:
    """Return the float32 rate of a script's computation on the scenario's hardware, in FLOP/s."""
    gpu = scenario.cluster.host.gpu
    return gpu.flops_per_s["float32"] * gpu.efficiency.get(SCRIPT, gpu.efficiency.get("default", 1.0))
