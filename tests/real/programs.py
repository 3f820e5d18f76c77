"""Programs for launched ranks, each made by a function of a scenario: `--program tests.real.programs:<name>`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import torch

from real.supervise.recovery import writer_of
from reports.store import run_folder
from reports.writer import write
from scenarios.config.scenario import Scenario
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from tests.contract.scripts import Script

LATE = 1  # the rank that misbehaves
STEPS = 3
MANY_STEPS = 1000
KERNEL = Kernel(kind="elementwise")


async def _trains(rank: Rank, at_last: Callable[[Rank], Awaitable[None]]) -> None:
    """Three steps; in the last one, a rank does something else."""
    for index in range(STEPS):
        with rank.step(index):
            if index == STEPS - 1 and rank.rank == LATE:
                await at_last(rank)
            await rank.all_reduce(torch.ones(16), label="gradients")
            rank.record("index", index)


async def _goes_on(rank: Rank) -> None:
    await rank.compute(KERNEL, time.sleep, 0.0)


async def _kills_itself(rank: Rank) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _loses_the_forker(rank: Rank) -> None:
    """Three steps; in the last one a rank kills the process that forked all, once every rank is in that step."""
    for index in range(STEPS):
        with rank.step(index):
            await rank.all_reduce(torch.ones(16), label="gradients")
            if index == STEPS - 1 and rank.rank == LATE:
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(60.0)
            await rank.all_reduce(torch.ones(16), label="gradients")


async def _raises(rank: Rank) -> None:
    raise ValueError("no such luck")


async def _kills_itself_later(rank: Rank) -> None:
    await rank.compute(KERNEL, time.sleep, 1.0)
    os.kill(os.getpid(), signal.SIGKILL)


async def _hurries(rank: Rank) -> None:
    """Steps of microseconds; in the last one a rank is killed."""
    for index in range(MANY_STEPS):
        with rank.step(index):
            rank.record("index", index)
    with rank.step(MANY_STEPS):
        if rank.rank == LATE:
            os.kill(os.getpid(), signal.SIGKILL)
        await rank.all_reduce(torch.ones(16), label="gradients")


async def _stalls(rank: Rank) -> None:
    await rank.compute(KERNEL, time.sleep, 1000.0, label="sleep")


async def _stops_itself(rank: Rank) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


async def _gives_a_tuple(rank: Rank) -> None:
    tensors = [torch.ones(1)] * rank.world_size
    await rank.all_to_all(tensors, tuple(tensors), label="ids")  # type: ignore[arg-type]


async def _makes_a_group(rank: Rank) -> None:
    """All ranks but one."""
    if rank.rank == LATE:
        await rank.compute(KERNEL, time.sleep, 1000.0, label="sleep")
    rank.new_group([1, 0])


async def _exits(rank: Rank) -> None:
    os._exit(3)


def _make(*body: Callable[..., Awaitable[None]]) -> Callable[[Scenario], Program]:
    """Return a function that creates a scenario's program: `body` is its coroutine function, then arguments."""
    return lambda scenario: Script(body[0], body[1:])


trains = _make(_trains, _goes_on)
is_killed = _make(_trains, _kills_itself)
loses_the_forker = _make(_loses_the_forker)
is_killed_later = _make(_trains, _kills_itself_later)
is_killed_in_a_hurry = _make(_hurries)
raises = _make(_trains, _raises)
stalls = _make(_trains, _stalls)
is_stopped = _make(_trains, _stops_itself)
gives_a_tuple = _make(_trains, _gives_a_tuple)
makes_a_group = _make(_makes_a_group)
exits = _make(_trains, _exits)


def starts_late(scenario: Scenario) -> Program:
    """One rank is long about its plan, as on a machine that does much else."""
    if os.environ["RANK"] == str(LATE):
        time.sleep(4.0)
    return Script(_trains, (_goes_on,))


def write_late(recording: Recording, out: Path, spool: Path) -> None:
    """For `Job.writer`: what a run of very many steps takes to be written."""
    time.sleep(4.0)
    write(recording, out, spool)


def write_and_be_told_to_stop(recording: Recording, out: Path, spool: Path) -> None:
    """For `Job.writer`: SIGTERM comes to the launcher when half of the run is written."""

    launcher = writer_of(spool)
    assert launcher is not None, "it is alive"

    def derive(partial: Path, recording: Recording) -> None:
        if recording.info.complete:
            os.kill(launcher, signal.SIGTERM)
            time.sleep(60.0)

    run_folder.write(recording, out, derive, spool)
