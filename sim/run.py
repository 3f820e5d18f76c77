"""A scenario and its program become a recording of simulated time; choosing and storing it is left to the hallway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import torch

from scenarios.calls import never_awaited
from scenarios.errors import CollectiveError, DeadlockError, ProgramError
from scenarios.rank import Program
from scenarios.scenario import Scenario
from scenarios.trace import Recording, RunInfo
from scenarios.versions import versions
from sim.machine import Machine
from sim.rank import SimRank
from sim.transport import lane_width, transport
from sim.world import World, raised


def simulate(scenario: Scenario, program: Program, draw: int = 0) -> Recording:
    """Play the program on every rank of the scenario's cluster.

    The same scenario and draw give the same spans, metrics and links, to the byte. In draw 0 times that vary from
    run to run take their mean; each other draw varies them in its own way.

    Raises:
        ProgramError: a rank raised, a Work was never awaited, or calls did not fit together.
        DeadlockError: no rank could go on.
    """
    started, begin = datetime.now(UTC), time.perf_counter()
    machine = Machine(scenario.cluster, f"{scenario.seed}/{draw}" if draw else None)
    world = World(scenario, machine, transport(scenario, machine), lane_width(scenario))
    with one_thread():
        _play(world, program)
    spans = [draft.span() for draft in sorted(world.drafts, key=lambda d: (d.rank, d.stream, d.sequence))]
    return Recording(
        info=RunInfo(
            name=scenario.name,
            world="sim",
            digest=scenario.digest(),
            scenario=scenario.as_dict(),
            seed=scenario.seed,
            world_size=scenario.cluster.world_size,
            started=started.isoformat(timespec="seconds"),
            versions=versions(),
            hosts=tuple(f"host{host}" for host in range(scenario.cluster.hosts)),
            elapsed_s=time.perf_counter() - begin,
        ),
        spans=spans,
        metrics=sorted(world.metrics, key=lambda metric: (metric.rank, metric.step, metric.name)),
        plan=list(program.plan),
        memory=list(program.memory),
        links=machine.fabric.rows(),
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Kernels computed as a real CPU rank computes them, one thread each: the same sums in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _play(world: World, program: Program) -> None:
    ended: list[int] = []

    async def play(rank: SimRank) -> None:
        await program(rank)
        left = [draft for draft in world.outstanding if draft.rank == rank.rank]
        if left:
            raise ProgramError(never_awaited(rank.rank, left[0].describe()))
        ended.append(rank.rank)

    for rank in range(world.scenario.cluster.world_size):
        world.start(rank, play(SimRank(world, rank)))
    try:
        world.machine.clock.run()
    finally:
        for coroutine in world.pending:
            coroutine.close()
    has_ended = len(ended) == world.scenario.cluster.world_size
    if not has_ended:
        _raise_unseen(world)
    world.check_foundings(has_ended=has_ended)
    if not has_ended:
        _raise_disagreement(world)
        raise DeadlockError(_deadlock(world))


def _raise_unseen(world: World) -> None:
    """What went wrong beside a program that never came to await it explains a deadlock better than the waits do."""
    for draft, work in world.outstanding.items():
        if isinstance(work.error, ProgramError):
            raise work.error
        if work.error is not None:
            raise raised(draft.rank, work.error) from work.error


def _raise_disagreement(world: World) -> None:
    """Members are told that their calls do not fit when the last one has come: here it never does."""
    for work in world.waiting.values():
        if work.meeting is not None and work.meeting.is_wrong:
            raise CollectiveError(work.meeting.sentence())


def _deadlock(world: World) -> str:
    waits = [f"rank {draft.rank} waits for {work.describe()}" for draft, work in world.waiting.items()]
    shown, more = waits[:16], len(waits) - 16
    rest = f"; and {more} more" if more > 0 else ""
    return f"deadlock at {world.machine.clock.now_ns} ns: {'; '.join(shown)}{rest}"
