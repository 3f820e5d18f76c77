"""The program that runs a user's script, one process per rank, with collectives in simulated time. On CPUs one
process runs at a time, as its time counts.

Values travel as the script has them, so that control flow, losses and plans are those of a real run. What a process
computes between two calls is charged as it took here, in CPU time of one thread. Nothing is charged before the first
step of an optimizer is over: setting up and the first step belong to no step, and after the last the script is ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from copy import copy
from itertools import chain, groupby
from typing import Any, cast

from scenarios.config.host_classes import simulated_ranks
from scenarios.config.scenario import Scenario
from scenarios.seam.backend import StepGivenUp
from scenarios.seam.errors import CollectiveError, ProgramError, ScenarioError, ScriptError, tell_error
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.effort import Effort
from scenarios.workloads.recording.events.calls import IssueCall, NewGroup, ReplicaGradients, WaitCall
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import FoundPlan, MemoryPeak, RecordMetric, ScriptEnd, StepEnd
from scenarios.workloads.recording.events.waits import Elapsed, HostWait, Sleep
from scenarios.workloads.recording.events.work import ComputeOnCpu, GradientReady, Label, Spent, Turn, part_of
from scenarios.workloads.recording.file import NAME, read
from scenarios.workloads.recording.lines import Logs, RankLog
from scenarios.workloads.recording.packed import Packed, nothing
from scenarios.workloads.recording.recorded import Recorded
from scenarios.workloads.recording.recorder import cpu_flops_per_s
from scenarios.workloads.script.beside_gpu import BesideGpu, OfHost
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import Seat
from scenarios.workloads.script.further_groups import recorded_host_classes
from scenarios.workloads.script.meeting.rank_warnings import print_counts
from scenarios.workloads.script.meeting.stores import AskStore, Meeting, Stores
from scenarios.workloads.script.outcome import Outcome, Outcomes, memory_of
from scenarios.workloads.script.plan_from_script import ScriptPlan, rate_plans
from scenarios.workloads.script.recording.classes import Classes, Hint, note_classes, rank_classes
from scenarios.workloads.script.recording.few import MOST_PROCESSES, Few
from scenarios.workloads.script.recording.replay import Replay, Replays
from scenarios.workloads.script.replica_exchange import ScriptExchange
from scenarios.workloads.script.runner import Doing, LivePlayer, ProcessStart
from scenarios.workloads.script.script_calls import Mail, ScriptCalls
from scenarios.workloads.script.script_streams import KIND, ScriptStreams


class ScriptProgram(Program):
    """A program of `scenario.steps` steps of the script, or fewer if the script ends; records each pass's `loss`.

    What ranks ask is kept: a recording, which is played in their place where the scenario names one, and when the
    program is played again.

    Raises:
        ProgramError: a rank raises, says nothing for `run.timeout`, or makes calls that do not fit the others'.
    """

    needs_values = finds_classes = True
    tables: ScriptPlan | None = None  # None: TorchRec has placed none yet

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.options, Script)
        self.scenario, self.script = scenario, scenario.options
        self.mail, self.stores = Mail(), Stores()
        self._logs, self._start = Logs(), ProcessStart(scenario, self.script)
        is_large = scenario.cluster.world_size > MOST_PROCESSES and scenario.run.payload == "sizes"
        self._is_extended = is_large or scenario.run.ranks == "alike"
        self._hint = Hint(scenario)
        self._peaks: dict[int, dict[str, int]] = {}
        self._playing: dict[int, _Played] = {}
        self.doing = Doing(self, scenario)
        self._replays: Replays | None = None
        with self._from_file():
            self._take(None if self.script.recording is None else read(self.script.recording))

    def prepare(self) -> None:
        """Find the classes of ranks, running one of each, and of hosts, as `Program.prepare` requires.

        Raises:
            ProgramError: there are too many, or what is played goes wrong.
        """
        world_size = self.scenario.cluster.world_size
        if self._replays is None and self._is_extended:
            self._take(self._make_recording(self._record_some()))
        elif self._replays is None and self._logs.are_whole(world_size):
            self._replays = Replays(self._make_recording(range(world_size)))

    def _take(self, recorded: Recorded | None) -> None:
        """Store what is known before the first simulation: the recording, and which hosts are simulated."""
        scenario = self.scenario
        if recorded is not None:
            self.rank_classes = rank_classes(recorded.recorded_by)
            self._replays, self.effort = Replays(recorded), Effort(operations=recorded.operations / recorded.steps)
            if scenario.run.ranks == "alike":
                self.host_classes = recorded_host_classes(scenario, recorded)
        self._counts = dict(simulated_ranks(scenario, self.host_classes))
        self.outcomes = Outcomes(scenario, len(self._counts))

    async def __call__(self, rank: Rank) -> None:
        if self._replays is None and rank.rank == 0:
            self._hint.begin()
        log: RankLog | None = None
        player: LivePlayer | Replay
        if self._replays is None:
            self.doing.say("starting ranks", "starting ranks")
            log = self._logs.begin(rank.rank)
            player = LivePlayer(self._start, self.script, rank, self.scenario, self.doing)
        else:
            player = self._replays.of(rank.rank)
        self.outcomes.begin()
        played = self._playing[rank.rank] = _Played(self, rank, player, log)
        if self._replays is None and len(self._playing) == self.scenario.cluster.world_size:
            self.doing.say("setting up", "setting up the script")
        try:
            with self._from_file():
                self.outcomes.add(rank.rank, await played.run())
            self.left_out, self.on_cpu = self.outcomes.left_out, self.outcomes.on_cpu
        finally:
            player.close()

    def judge(self) -> None:
        """Check the outcomes as `Program.judge` requires, and hint at options that are faster."""
        self.outcomes.judge()
        if self._replays is None:
            self._hint.end(self._logs)
            print_counts(self._start.folder)

    def standing(self) -> str:
        """Return the scripts' positions in a deadlock, as `Program.standing` requires; of a recording, its file."""
        if self.script.recording is not None:
            return f"; {self.script.recording}: expected calls of all members, as it was written"
        return self.outcomes.standing({rank: played.steps for rank, played in self._playing.items()})

    @contextmanager
    def _from_file(self) -> Iterator[None]:
        """Raise ProgramError for unexpected errors in the replay of a recording's file, which may be damaged."""
        try:
            yield
        except Exception as error:
            is_told = isinstance(error, ProgramError | ScenarioError) and not isinstance(error, CollectiveError)
            if self.script.recording is None or is_told:
                raise
            raise ProgramError(
                f"{self.script.recording}: the requests of a rank do not fit each other; expected a recording as it was"
                f" written: {tell_error(error)}"
            ) from error

    def note_memory(self, rank: int, kind: str, peak_bytes: int) -> None:
        """Record the peak bytes of a rank's tensors and workspaces or, with kind "reserved", of the allocator."""
        self._peaks.setdefault(rank, {})[kind] = peak_bytes
        capacity_bytes = round(self.scenario.cluster.host.gpu.memory_bytes)
        rows = (memory_of(each, peaks, capacity_bytes, self._counts[each]) for each, peaks in self._peaks.items())
        self.memory = tuple(sorted(chain.from_iterable(rows), key=lambda row: row.rank))

    def place(self, found: Mapping[str, Any]) -> None:
        """Store the sharding plan that the script made on a rank, the first time."""
        if not self.plan:
            made = self.tables = rate_plans(found, self.scenario)
            self.plan, self.own_plan, self.plan_notes = made.rows, made.own, made.notes
            self.step_samples = found.get("step_samples", 0)  # recordings of earlier releases have none

    def kept(self) -> dict[str, bytes]:
        """Return the recording for what-ifs, by file name; empty if a rank did not reach its end."""
        recorded = self._recording
        return {} if recorded is None else {NAME: recorded.to_bytes()}

    def compiled(self) -> ScriptProgram | None:
        """Return the program with compiled modules, as `Program.compiled` requires; None without a recording of it."""
        recorded = None if self._recording is None else self._recording.as_compiled()
        if recorded is None:
            return None
        made = copy(self)
        made._replays, made._playing, made._peaks = Replays(recorded), {}, {}
        made.outcomes = self.outcomes.anew()
        return made

    @property
    def _recording(self) -> Recorded | None:
        """The recording; None if a rank did not reach its end."""
        world_size = self.scenario.cluster.world_size
        if self._replays is not None:
            return self._replays.recorded
        return self._make_recording(range(world_size)) if self._logs.are_whole(world_size) else None

    @property
    def cpu_flops_per_s(self) -> float:
        """The FLOP/s that convert CPU time to work: those of the hardware on which the time was measured."""
        return cpu_flops_per_s(self.scenario) if self._replays is None else self._replays.recorded.flops_per_s

    def _record_some(self) -> list[int]:
        """Run one rank of each class, and return each rank's representative."""
        cluster, steps = self.scenario.cluster, self.scenario.run.steps
        world_size, gpus = cluster.world_size, cluster.host.gpus

        def begin(rank: int) -> LivePlayer:
            return LivePlayer(self._start, self.script, Seat(rank, world_size, gpus), self.scenario, self.doing)

        self.doing.say("recording ranks", f"finding classes of {world_size} ranks")
        with closing(Few(begin, self._logs, world_size, steps)) as few:
            found = Classes(few, gpus).find()
        note_classes(found)
        self.doing.say("simulating", "")
        return found

    def _make_recording(self, recorded_by: Sequence[int]) -> Recorded:
        cluster = self.scenario.cluster
        return self._logs.make_recording(
            recorded_by,
            script=str(self.script.path),
            sha256=self.script.sha256,
            args=list(self.script.args),
            env=[list(each) for each in self.script.env],
            profile=cluster.profile,
            keys=dict(self.scenario.own_keys),
            kind=cluster.host.gpu.kind,
            hosts=cluster.hosts,
            gpus_per_host=cluster.host.gpus,
            steps=self.scenario.run.steps,
            flops_per_s=cpu_flops_per_s(self.scenario),
        )


class _Played:
    """A rank's run of the script, request by request."""

    def __init__(self, program: ScriptProgram, rank: Rank, player: LivePlayer | Replay, log: RankLog | None) -> None:
        self._program, self._scenario, self._rank = program, program.scenario, rank
        self._player, self._log = player, log
        self._streams = ScriptStreams(rank, self._scenario)
        self._calls = ScriptCalls(
            rank, self._scenario, self._streams, program.mail, program.outcomes, is_live=log is not None
        )
        self._beside = BesideGpu(rank, self._scenario, program.outcomes)
        self._is_on_gpu = self._scenario.cluster.host.gpu.device.is_launched
        self._exchange = ScriptExchange(rank, program.scenario) if program.script.is_exchanged else None
        self._exchanged: set[int] = set()  # numbers of calls in whose place others are made
        self._step: AbstractContextManager[None] | None = None
        self.steps = 0  # that have begun
        self._has_called = False  # any other rank

    async def run(self) -> Outcome:
        """Run until the script ends or has made the requested steps; work after the last mark is no step."""
        seen: Mapping[str, Any] | None = None
        is_beside_others = self._is_on_gpu and isinstance(self._player, LivePlayer)
        while True:
            if is_beside_others:  # they compute meanwhile, each in its process; on a CPU its time is measured
                await cast(Meeting, self._rank.backend).let_others()
            turn = self._next_turn()
            request = turn.request
            if self._log is not None and not isinstance(request, Elapsed):
                self._log.note(turn)
            if not isinstance(request, AskStore | Sleep):
                self._program.stores.goes_on(self._rank.rank)
            await self._charge(turn.spent)
            if isinstance(request, ScriptEnd):
                seen = request.seen or {}
                break
            if isinstance(request, StepEnd) and not await self._next_step():
                break
            self._player.answer(await self._respond(request))
        await self._calls.settle()
        await self._streams.settle()
        if self._step is not None:
            given_up = StepGivenUp()
            # The script has begun a step that it does not end: given up, so that no half step is in the report.
            self._step.__exit__(StepGivenUp, given_up, None)
            self.steps -= 1
        if self._log is not None:
            self._log.is_whole = True
        return Outcome(steps=self.steps, seen=seen, has_called=self._has_called)

    def _next_turn(self) -> Turn:
        """Return the process's next turn.

        Raises:
            ScriptError: the script failed; the message says how many steps can be predicted nevertheless.
        """
        try:
            return self._player.next()
        except ScriptError as error:
            whole = self.steps - 1
            if whole < 1:
                raise
            raise ScriptError(f"{error}\n  (--steps {whole} predicts the steps before)") from None

    async def _respond(self, request: Request) -> Any:
        match request:
            case IssueCall():
                # Setting up is as it was recorded.
                if request.of_reducer and self._exchange is not None and self._step is not None:
                    self._exchanged.add(self._exchange.in_place_of(request))
                else:
                    self._has_called = True
                    self._note_priced()
                    return self._calls.issue(request, is_in_step=self._step is not None)
            case WaitCall(number, stream):
                return await self._wait(number, stream)
            case NewGroup(ranks):
                return self._calls.make_group(ranks, self._program.host_classes)
            case _ if isinstance(request, HostWait):
                return await self._streams.wait(request, self._calls.works, self._calls.on_host)
            case FoundPlan(found):
                self._program.place(found)
            case ReplicaGradients() if self._exchange is not None:
                self._exchange.begin(request)
            case _ if isinstance(request, OfHost):
                self._beside.hear(request, is_in_step=self._step is not None)
            case AskStore():
                return await self._program.stores.meet(self._rank, request)
            case MemoryPeak(peak_bytes):
                self._program.note_memory(self._rank.rank, request.kind, peak_bytes)
            case RecordMetric(name, value) if self._step is not None:
                self._rank.record(name, value)
        return None

    async def _wait(self, number: int, stream: int) -> list[Packed]:
        """Wait for a call and return its outputs."""
        if number in self._exchanged:
            assert self._exchange is not None, "calls are exchanged"
            self._exchanged.remove(number)
            for work in self._exchange.take():
                if self._is_on_gpu:
                    self._streams.after(stream, work)
                else:
                    await work
            return []
        return await self._calls.wait(number, stream)

    async def _next_step(self) -> bool:
        """End the current step and begin the next one; return False if there are to be no more."""
        await self._streams.settle()
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if self.steps == self._scenario.run.steps:
            return False
        self._step = self._rank.step(self.steps)
        self._step.__enter__()
        self.steps += 1
        if self._log is not None:
            self._program.doing.begins(self.steps)
        return True

    async def _charge(self, spent: Spent) -> None:
        """Charge the process's work: CPU time as measured here, or the items that it launched."""
        is_told = self._exchange is not None and self._step is not None
        seen = [each for each in spent if is_told or not isinstance(each, GradientReady)]
        for part, group in groupby(seen, part_of):
            if isinstance(part, Label):
                await self._compute(sum(each.cpu_ns for each in group if isinstance(each, ComputeOnCpu)), part)
            elif part is None:
                given = [each for each in group if not isinstance(each, ComputeOnCpu | GradientReady)]
                if not all(isinstance(each, HostWork) for each in given):
                    self._note_priced()
                self._streams.launch(given)
            elif self._exchange is not None:
                self._exchange.add(*part.gradient, self._streams.tail(part.stream))

    async def _compute(self, cpu_ns: int, label: Label) -> None:
        if cpu_ns and self._step is not None:
            self._program.outcomes.note_computed(self.steps - 1, cpu_ns, is_of_module=label.text != KIND)
            kernel = Kernel(kind=KIND, flops=cpu_ns * 1e-9 * self._program.cpu_flops_per_s, launches=0)
            await self._rank.compute(kernel, nothing, label=label.text, role=label.role)

    def _note_priced(self) -> None:
        if self._step is not None:
            self._program.outcomes.priced.add(self.steps - 1)
