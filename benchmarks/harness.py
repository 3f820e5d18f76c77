"""`python -m benchmarks.harness`: what the real harness adds to a step, over a hand-written script that calls alike.

    python -m benchmarks.harness                      # two ranks over loopback
    python -m benchmarks.harness --nic 200mbit        # on two emulated hosts, as root

The same steps are played by hand, on torch.distributed, and by a program over `Rank`, in blocks that take turns in the
same two processes, on the handle of the same group: so both meet the same cores, threads and TCP connections (two
connections of one run have differed by 15 % for as long as they were open), and whatever else the machine does. A step
lasts until the next one begins, so what the harness keeps after it counts.

What the harness costs by being there at all is in neither: a thread a rank that wakes up once a second, and a launcher
that looks at its ranks 20 times a second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from real.emulate.cli import hosts_of, read_rate
from real.emulate.fabric import EmulatedFabric
from real.launch.job import Job
from real.launch.launcher import Hosts, job_of, launch
from real.rank.backend import TorchBackend
from reports.store import run_folder as store
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

RANKS = 2
BLOCK = 20  # steps that follow each other
WARM_UP = 2  # rounds
BY_HAND, BY_RANK = "by hand", "by rank"
SCENARIO = Path(__file__).parent.parent / "scenarios" / "library" / "all_to_all_4x2.toml"
# A float32 product of this size takes some 2 ms of one core here.
MATRIX = 592
KERNEL = Kernel(kind="gemm", flops=2.0 * MATRIX**3)


@dataclass(frozen=True)
class Step:
    """One step, twice. Tensors are zeros: sums stay what they are."""

    name: str
    by_hand: Callable[[dist.ProcessGroup], None]
    by_rank: Callable[[Rank], Coroutine[Any, Any, None]]


def one_reduction() -> Step:
    tensor = torch.zeros(1 << 20)

    def by_hand(group: dist.ProcessGroup) -> None:
        dist.all_reduce(tensor, group=group)

    async def by_rank(rank: Rank) -> None:
        await rank.all_reduce(tensor)

    return Step("all_reduce of 4 MiB", by_hand, by_rank)


def eight_in_flight() -> Step:
    tensors = [torch.zeros(1 << 18) for _ in range(8)]
    left, right, product = (torch.zeros(MATRIX, MATRIX) for _ in range(3))
    multiply = partial(torch.mm, out=product)

    def by_hand(group: dist.ProcessGroup) -> None:
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
        multiply(left, right)
        for work in works:
            work.wait()

    async def by_rank(rank: Rank) -> None:
        works = [rank.all_reduce(tensor) for tensor in tensors]
        await rank.compute(KERNEL, multiply, left, right)
        for work in works:
            await work

    return Step("8 all_reduces of 1 MiB, a matmul of 2 ms", by_hand, by_rank)


def barrier_and_exchange() -> Step:
    output, input = torch.zeros(1 << 14), torch.zeros(1 << 14)

    def by_hand(group: dist.ProcessGroup) -> None:
        dist.barrier(group=group)
        dist.all_to_all_single(output, input, group=group)

    async def by_rank(rank: Rank) -> None:
        await rank.barrier()
        await rank.all_to_all_single(output, input)

    return Step("barrier, all_to_all of 64 KiB", by_hand, by_rank)


STEPS = (one_reduction, eight_in_flight, barrier_and_exchange)


class Turns(Program):
    """Of each step, blocks by hand and by rank in turn, now one first and now the other; a program of no plan."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._played = 0

    async def __call__(self, rank: Rank) -> None:
        backend = rank.backend
        assert isinstance(backend, TorchBackend), "a program of the real world"
        group = backend.context.checker(rank.world).joined.handle
        for make in STEPS:
            step = make()
            for turn in range(self._rounds):
                for is_by_hand in (True, False) if turn % 2 else (False, True):
                    dist.barrier()
                    taken_s = hand_written(step, group) if is_by_hand else await self._by_rank(step, rank)
                    if turn >= WARM_UP:
                        rank.record(f"{step.name}|{BY_HAND if is_by_hand else BY_RANK}|{turn}", taken_s)

    async def _by_rank(self, step: Step, rank: Rank) -> float:
        times_s = [time.perf_counter()]
        for _ in range(BLOCK):
            with rank.step(self._played):
                await step.by_rank(rank)
            self._played += 1
            times_s.append(time.perf_counter())
        return median_between(times_s)


def hand_written(step: Step, group: dist.ProcessGroup) -> float:
    """What a step of a block takes."""
    times_s = [time.perf_counter()]
    for _ in range(BLOCK):
        step.by_hand(group)
        times_s.append(time.perf_counter())
    return median_between(times_s)


def median_between(times_s: list[float]) -> float:
    return statistics.median(later - earlier for earlier, later in pairwise(times_s))


def takes_turns(scenario: Scenario) -> Turns:
    return Turns(scenario.run.steps)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness")
    parser.add_argument("--nic", help="a rate such as 200mbit: on emulated hosts, as root")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, on_hosts(options.nic) as hosts:
        job = job_on(RANKS, "benchmarks.harness:takes_turns", folder, options.rounds + WARM_UP)
        launch(job, hosts=hosts)
        metrics = store.load(job.out).metrics
    metrics[["what", "how", "turn"]] = metrics["name"].str.split("|", expand=True)
    blocks = metrics.groupby(["what", "how", "turn"])["value"].mean().unstack("how")  # of both ranks
    print("| network | step | by hand | in the harness | adds | ratio, median and quartiles |")
    print("|---|---|---|---|---|---|")
    for make in STEPS:
        rows = blocks.loc[make().name]
        ratios = (rows[BY_RANK] / rows[BY_HAND]).quantile([0.5, 0.25, 0.75])
        hand_s, rank_s = rows[BY_HAND].median(), rows[BY_RANK].median()
        print(
            f"| {options.nic or 'loopback'} | {make().name} | {1e3 * hand_s:.3f} ms | {1e3 * rank_s:.3f} ms"
            f" | {1e6 * (rows[BY_RANK] - rows[BY_HAND]).median():.0f} us"
            f" | {ratios[0.5]:.3f} ({ratios[0.25]:.3f} to {ratios[0.75]:.3f}) |"
        )


def on_hosts(nic: str | None, hosts: int = RANKS) -> AbstractContextManager[Hosts]:
    """Emulated hosts with interfaces of that rate; None: this machine."""
    return hosts_of(None if nic is None else EmulatedFabric(hosts=hosts, nic_bytes_per_s=read_rate("nic", nic)))


def job_on(hosts: int, program: str, folder: str, rounds: int) -> Job:
    """A run of so many rounds of a program on hosts of one rank, in a folder of its own."""
    settings = {"steps": rounds, "cluster.hosts": hosts, "cluster.gpus_per_host": 1, "timeout": "60 s"}
    return job_of(load(SCENARIO, settings), Path(folder, "run"), program=program, check="never")


if __name__ == "__main__":
    main()
