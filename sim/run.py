"""Simulates a scenario's program and records it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import torch

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from scenarios.do_nothing import do_nothing
from scenarios.no_compiler import without_compiler
from scenarios.seam.backend import Backend
from scenarios.seam.calls import never_awaited
from scenarios.seam.errors import CollectiveError, DeadlockError, ProgramError
from scenarios.seam.memory import COMMUNICATION, MemoryPart
from scenarios.seam.program import Program, begin
from scenarios.seam.rank import Rank
from scenarios.seam.trace import LinkRow, MemoryRow, Recording, RunInfo, Span
from scenarios.versions import versions
from sim.engine.machine import Machine
from sim.library import library_of
from sim.nccl.folded import Leaves
from sim.rank.backend import SimBackend
from sim.rank.balance import Balance
from sim.rank.observed import Observed, Rewrite, as_it_is
from sim.rank.operation import Operation
from sim.rank.world import World, error_of_rank

if TYPE_CHECKING:
    from scenarios.workloads.recording.recorder import ProgramRecorder


Beside = Callable[[World], Callable[[], None]]

_MOST_NS = 1 << 61  # the largest number in a run folder
_YEAR_NS = 365 * 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run's progress: steps that all ranks have ended, of `steps`; `share` is the mean share over ranks."""

    whole_steps: int
    steps: int
    share: float
    now_ns: int

    def __str__(self) -> str:
        return f"{self.whole_steps:,} of {self.steps:,} steps, simulated time {self.now_ns / 1e6:,.3f} ms"


class _StoppedError(Exception):
    """A signal that leaves the event loop: the caller asked to end the run early."""


def simulate(scenario: Scenario, program: Program, draw: int = 0) -> Recording:
    """Run the program on every rank of the scenario's cluster and return the recording with all spans.

    A scenario and a draw always give the same spans, metrics and links, to the byte. Draw 0 uses the mean of all times
    that vary from run to run; each other draw varies them in its own way.

    Raises:
        ProgramError: a rank raised, a Work was never awaited, calls did not fit together, or the run is no valid
            prediction (`Program.judge`).
        DeadlockError: no rank could go on.
    """
    spans: list[Span] = []
    recording = play(scenario, program, spans.extend, draw=draw)
    recording.spans = sorted(spans, key=lambda span: (span.rank, span.stream, span.sequence))
    return recording


def play(
    scenario: Scenario,
    program: Program,
    take: Callable[[list[Span]], None],
    *,
    draw: int = 0,
    rewrite: Rewrite = as_it_is,
    observed: Observed | None = None,
    recorder: ProgramRecorder | None = None,
    stop: Callable[[Callable[[], RunProgress]], bool] = lambda _: False,
    ended: Callable[[], None] = lambda: None,
    beside: Beside = lambda _: do_nothing,
) -> Recording:
    """Run the program as `simulate` does, but pass its spans to `take` instead of keeping them in the recording.

    Args:
        take: gets the spans of a step when every rank has ended it, in the order of rank, stream and issue; spans
            outside of steps come last.
        draw: number of the random draw; 0 uses means.
        rewrite: replaces kernels before ranks run them.
        observed: records the kernels of the first rank.
        recorder: notes what each rank issues, for a file that the recording keeps.
        stop: called again and again with a function that returns the position; True ends the run. A stopped run's
            recording is not complete and has no spans of unfinished operations.
        ended: called when the run is over, before the last spans, which may be many, are passed on.
        beside: begins traffic beside the program, and returns a function that ends it.

    Raises:
        ProgramError, DeadlockError: as `simulate` does.
    """
    started, begin_s = datetime.now(UTC), time.perf_counter()
    program.prepare()

    def take_ended(ended: list[Operation]) -> None:
        take([one.span() for one in sorted(ended, key=lambda one: (one.rank, one.stream, one.sequence))])

    balance, error = None, ""
    if scenario.run.balanced:
        balance, error = _balance(scenario, program, rewrite, stop)
        program.prepare()  # the balancing pass has used up the first preparation
    world = _world(scenario, program.host_classes, take_ended, f"{scenario.run.seed}/{draw}" if draw else None)
    world.balance, world.rewrite, world.observed = balance, rewrite, observed
    error = error or _play_to_end(world, program, stop, ended, recorder, beside)
    if not error:
        program.judge()
    recording = _recording(world, program, error, started=started, begin_s=begin_s)
    if recorder is not None and not error:
        recording.kept |= recorder.kept()
    return recording


def _recording(world: World, program: Program, error: str, *, started: datetime, begin_s: float) -> Recording:
    """Return the recording of a run that has ended, without spans; `error` says why the run is incomplete, or is ""."""
    machine, scenario, classes = world.machine, world.scenario, world.classes
    counts = {} if classes is None else dict(zip(classes.representatives, classes.counts, strict=True))
    links = _links(machine, classes, counts)
    with _rare_collections():
        loads = machine.fabric.loads({link.link: link.link_count for link in links}, machine.clock.now_ns)
    return Recording(
        info=_info(scenario, program, error, counts, started=started, begin_s=begin_s),
        metrics=sorted(world.metrics, key=lambda metric: (metric.rank, metric.step, metric.name)),
        plan=list(program.plan),
        own_plan=list(program.own_plan),
        memory=[*program.memory, *_buffers(world, program)],
        links=links,
        loads=loads,
        kernels=[] if world.kernels is None else world.kernels.rows(is_whole=not error),
        operators=[] if world.operators is None else world.operators.rows(),
        layers=world.layers.rows(),
        sources={source.name: source.text for source in scenario.sources},
        kept=program.kept(),
        traffic=[replace(row, host_count=counts.get(row.from_host, 1)) for row in machine.traffic.rows()],
    )


def _balance(
    scenario: Scenario, program: Program, rewrite: Rewrite, stop: Callable[[Callable[[], RunProgress]], bool]
) -> tuple[Balance, str]:
    """Simulate a first pass that sums the ranks' work, and return its mean over ranks.

    The second result says where the pass was stopped; "" if it ran to its end.
    """
    world = _world(scenario, program.host_classes, lambda _: None)
    world.rewrite = rewrite
    world.balance = balance = Balance(scenario.cluster.host.gpu, world.machine.fabric.network.domain, world.rank_counts)
    error = _play_to_end(world, program, stop, lambda: None)
    balance.settle()
    return balance, error


def _world(
    scenario: Scenario,
    classes: HostClasses | None,
    take: Callable[[list[Operation]], None],
    draw: str | None = None,
) -> World:
    hosts = None if classes is None else classes.representatives
    machine = Machine(scenario.cluster, draw, hosts, has_host_lanes=scenario.uses_host_path)
    return World(scenario, machine, library_of(scenario.run.library), take, classes=classes)


def _play_to_end(
    world: World,
    program: Program,
    stop: Callable[[Callable[[], RunProgress]], bool],
    ended: Callable[[], None],
    recorder: ProgramRecorder | None = None,
    beside: Beside = lambda _: do_nothing,
) -> str:
    """Run the program and pass on its last spans; return the position if the run was stopped, else ""."""
    error = ""
    try:
        with one_thread(), _rare_collections(), without_compiler():
            _play(world, program, stop, recorder, beside)
        ended()
        world.ledger.close()
    except _StoppedError:
        error = f"interrupted after {_position(world)}"
        ended()
        world.ledger.close()
    finally:
        world.ledger.forget()
        world.machine.clock.close()  # after `forget`: works that suspended programs end now are not recorded
    return error


def _info(
    scenario: Scenario, program: Program, error: str, counts: Mapping[int, int], *, started: datetime, begin_s: float
) -> RunInfo:
    return RunInfo(
        name=scenario.name,
        world="sim",
        digest=scenario.digest(),
        scenario=scenario.as_dict(),
        seed=scenario.run.seed,
        world_size=scenario.cluster.world_size,
        started=started.isoformat(timespec="seconds"),
        versions=versions(),
        hosts=tuple(f"host{host}" for host in range(scenario.cluster.hosts)),
        complete=not error,
        error=error,
        elapsed_s=time.perf_counter() - begin_s,
        host_counts=tuple(counts.items()),
        plan_notes=program.plan_notes,
        step_samples=program.step_samples,
        left_out=program.left_out,
        on_cpu=program.on_cpu,
        rank_classes=program.rank_classes,
    )


def _buffers(world: World, program: Program) -> Iterator[MemoryRow]:
    """Yield rows of the library's buffers, whose sizes only the run shows; none if the program has no memory rows."""
    gpu = world.scenario.cluster.host.gpu
    sizes = world.transport.buffer_bytes() if program.memory and gpu.device.has_own_memory else {}
    for rank, size_bytes in sorted(sizes.items()):
        count = world.rank_counts[rank]
        part = MemoryPart("communication buffers", size_bytes, kind=COMMUNICATION)
        yield part.row(rank, gpu.memory_bytes, count)


def _links(machine: Machine, classes: HostClasses | None, counts: Mapping[int, int]) -> list[LinkRow]:
    """Return all links with their multiplicity; `counts` maps simulated hosts to the number of hosts they represent."""
    rows = machine.fabric.rows(machine.clock.now_ns)
    if classes is None:
        return rows
    uplinks = Leaves.of(machine.fabric.network, classes).link_counts()
    simulated = (row for row in rows if row.link_class != "uplink" or row.link in uplinks)
    return [replace(row, link_count=uplinks.get(row.link) or counts[row.host]) for row in simulated]


def _position(world: World) -> RunProgress:
    ledger, steps = world.ledger, world.scenario.run.steps
    share = ledger.ended_steps / max(steps * ledger.world_size, 1)
    return RunProgress(ledger.whole_steps, steps, min(share, 1.0), world.machine.clock.now_ns)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute kernels on one thread, as a real CPU rank does, so that sums have the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Raise the thresholds of garbage collection: a run has many long-lived objects, few cycles, and collecting takes a
    third.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _play(
    world: World,
    program: Program,
    stop: Callable[[Callable[[], RunProgress]], bool],
    recorder: ProgramRecorder | None,
    beside: Beside,
) -> None:
    ended: list[int] = []
    end_beside = beside(world)

    async def play(rank: Rank) -> None:
        await begin(program, rank)
        left = [one for one in world.outstanding if one.rank == rank.rank]
        if left:
            raise ProgramError(never_awaited(rank.rank, left[0].describe()))
        ended.append(rank.rank)
        if len(ended) == len(world.ranks):
            end_beside()

    def look() -> None:
        _check_time(world)
        world.ledger.hand_on()
        if stop(partial(_position, world)):
            raise _StoppedError

    for rank in world.ranks:
        backend: Backend = SimBackend(world, rank)
        world.start(rank, partial(play, Rank(backend if recorder is None else recorder.around(backend))))
    try:
        world.machine.clock.run(look)
    finally:
        for coroutine in world.pending:
            coroutine.close()
    _check_time(world)
    has_ended = len(ended) == len(world.ranks)
    if not has_ended:
        _raise_unseen(world)
    world.check_groups(has_ended=has_ended)
    if not has_ended:
        _raise_disagreement(world)
        raise DeadlockError(_deadlock(world) + program.standing())


def _check_time(world: World) -> None:
    """Raise ProgramError if a run takes longer than run folders can hold, as after a misread duration or rate."""
    if (now_ns := world.machine.clock.now_ns) > _MOST_NS:
        raise ProgramError(f"simulated time {now_ns / _YEAR_NS:,.0f} years: expected {_MOST_NS / _YEAR_NS:.0f} at most")


def _raise_unseen(world: World) -> None:
    """Raise the error of a failed Work that no program awaited: it explains a deadlock better than the waits do."""
    for work in world.outstanding:
        if isinstance(work.error, ProgramError):
            raise work.error
        if work.error is not None:
            raise error_of_rank(work.rank, work.error) from work.error


def _raise_disagreement(world: World) -> None:
    """Raise an error if members' calls of a rendezvous do not fit; the usual check runs only when the last member
    arrives.
    """
    for work in world.waiting:
        if work.rendezvous is not None and work.rendezvous.is_wrong:
            raise CollectiveError(work.rendezvous.sentence())


def _deadlock(world: World) -> str:
    waits = [f"rank {work.rank} waits for {work.describe_wait()}" for work in world.waiting]
    shown, more = waits[:16], len(waits) - 16
    rest = f"; and {more} more" if more > 0 else ""
    return f"deadlock at {world.machine.clock.now_ns} ns: {'; '.join(shown)}{rest}"
