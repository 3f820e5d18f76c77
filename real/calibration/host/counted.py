"""Counts what a host does in each snippet, as predictions count it: on a simulated GPU, in a script's process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from real.calibration.play import scenario_on
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster
from scenarios.seam.host_work import NO_WORK, HostWork, total
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.notes import StepEnd
from scenarios.workloads.recording.events.work import LaunchKernel, Turn
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import Seat
from scenarios.workloads.script.recording.single_rank import Alone, SentByRanks
from scenarios.workloads.script.runner import LivePlayer, ProcessStart


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A snippet's counts: the host's work, collectives, ns of launches, and the bytes that its kernels move."""

    work: HostWork
    collectives: int
    launches_ns: int
    moved_bytes: tuple[float, ...]


def count(script: Path, names: Sequence[str], cluster: Cluster) -> dict[str, Counted]:
    """Return the counts of the named snippets that run here.

    The script marks one step, and two more for each snippet, with the snippet once and twice.

    Raises:
        ProgramError: the script failed.
    """
    one = dataclasses.replace(cluster, hosts=1, host=dataclasses.replace(cluster.host, gpus=1))
    scenario = scenario_on(one, "host").with_run(payload="sizes")
    counting = Script(path=script, sha256="", args=("count", "cuda"))
    start = ProcessStart(scenario, counting)  # keeps the script's scratch folder alive
    player = LivePlayer(start, counting, Seat(0, 1, 1), scenario)
    try:
        # The first step is left out: it holds the script's set-up.
        steps = _steps(player, 2 * len(names) + 1)
    finally:
        player.close()
    gpu, counts = cluster.host.gpu, dict[str, Counted]()
    for name, once, twice in zip(names, steps[1::2], steps[2::2], strict=True):
        counted = _subtract(once, twice, gpu)
        if counted.work != NO_WORK:
            counts[name] = counted
    return counts


def _steps(player: LivePlayer, count: int) -> list[list[Turn]]:
    """Run a script's process as the only rank, and return its turns (work and request) in each of `count` steps."""
    steps, alone = [list[Turn]()], Alone(0, 1, SentByRanks(lambda *_: False))
    while len(steps) <= count:
        turn = player.next()
        steps[-1].append(turn)
        if isinstance(turn.request, StepEnd):
            steps.append([])
        player.answer(alone.answer(turn.request))
    return steps[:count]


def _subtract(once: Sequence[Turn], twice: Sequence[Turn], gpu: Gpu) -> Counted:
    """Return the counts that the second run adds: warm-up and the end of the step are in both."""
    single, double = _sum(once, gpu), _sum(twice, gpu)
    more = zip(single.work, double.work, strict=True)
    return Counted(
        work=HostWork(*(both - one for one, both in more)),
        collectives=double.collectives - single.collectives,
        launches_ns=double.launches_ns - single.launches_ns,
        moved_bytes=double.moved_bytes,
    )


def _sum(step: Sequence[Turn], gpu: Gpu) -> Counted:
    items = [each for turn in step for each in turn.spent]
    kernels = [each.kernel for each in items if isinstance(each, LaunchKernel)]
    return Counted(
        work=total(each for each in items if isinstance(each, HostWork)),
        collectives=sum(isinstance(turn.request, IssueCall) for turn in step),
        launches_ns=sum(gpu.launches_ns.get(each.kind, gpu.launch_ns) * each.launches for each in kernels),
        moved_bytes=tuple(each.bytes_read + each.bytes_written for each in kernels),
    )
