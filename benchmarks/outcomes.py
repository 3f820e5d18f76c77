"""`python -m benchmarks.outcomes`: which of its two times an all_gather of two emulated hosts takes, and why. As root.

    python -m benchmarks.outcomes [--nic 100mbit] [--turns 15] [--profile FILE.toml]

One connection carries data and notices. Where a rank posts after its peer's "ready to receive" has come, its data goes
at once, its own notice queues behind it, and the call takes half as much again. So a barrier and an all_gather are
played by hand on torch.distributed (also with a pause between the two) and over `Rank`, in blocks that take turns in
the same two processes: how often each way takes the longer time, and how far apart its ranks start. With a
profile, also what draws of the simulator say. A start is read before the call: a rank posts 0.1 to 0.4 ms later.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from benchmarks.accuracy import Case, scenario_of
from benchmarks.harness import RANKS, job_on, on_hosts
from real.emulate.cli import read_rate
from real.launch.launcher import launch
from real.rank.backend import TorchBackend
from reports.store import run_folder as store
from scenarios.config.scenario import CollectiveCalls, Scenario
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.collective.program import CollectiveProgram
from sim.run import simulate

SIZE_BYTES = 1 << 20  # of the output
BLOCK = 6  # calls that follow each other
DRAWS, STEPS = 30, 12
BY_HAND, PAUSED, BY_RANK = "by hand", "by hand, 1 ms after the barrier", "in the harness"
PAYLOAD_SHARE = 1448 / 1514
# The shorter time is the wire's, the longer one half as much again.
BETWEEN = 1.25

Calls = npt.NDArray[np.float64]  # [calls, ranks, (start, end) in ns]


class Blocks(Program):
    """Blocks of calls in turn; a program of no plan."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._output, self._input = torch.zeros(SIZE_BYTES // 4), torch.zeros(SIZE_BYTES // 8)

    async def __call__(self, rank: Rank) -> None:
        backend = rank.backend
        assert isinstance(backend, TorchBackend), "a program of the real world"
        group = backend.context.checker(rank.world).joined.handle
        for turn in range(self._turns):
            for way in (BY_HAND, PAUSED, BY_RANK):
                for call in range(BLOCK):
                    if way == BY_RANK:
                        times_ns = await self._by_rank(rank, turn * BLOCK + call)
                    else:
                        times_ns = self._by_hand(group, 1e-3 * (way == PAUSED))
                    for end, at_ns in zip(("start", "end"), times_ns, strict=True):
                        rank.record(f"{way}|{turn * BLOCK + call}|{end}", at_ns)

    def _by_hand(self, group: dist.ProcessGroup, pause_s: float) -> tuple[int, int]:
        dist.barrier(group=group)
        if pause_s:
            time.sleep(pause_s)
        start_ns = time.monotonic_ns()  # one clock: the hosts are this machine
        dist.all_gather_into_tensor(self._output, self._input, group=group)
        return start_ns, time.monotonic_ns()

    async def _by_rank(self, rank: Rank, step: int) -> tuple[int, int]:
        await rank.barrier()
        with rank.step(step):
            start_ns = time.monotonic_ns()
            await rank.all_gather_into_tensor(self._output, self._input)
            return start_ns, time.monotonic_ns()


def blocks(scenario: Scenario) -> Blocks:
    """For `Job.program`."""
    return Blocks(scenario.run.steps)


def measure(nic: str, turns: int) -> Iterator[tuple[str, Calls]]:
    """The calls of each way."""
    with tempfile.TemporaryDirectory() as folder, on_hosts(nic) as hosts:
        job = job_on(RANKS, "benchmarks.outcomes:blocks", folder, turns)
        launch(job, hosts=hosts)
        metrics = store.load(job.out).metrics
    metrics[["way", "call", "end"]] = metrics["name"].str.split("|", expand=True)
    for way, rows in metrics.groupby("way", sort=False):
        table = rows.pivot(index=["call", "rank"], columns="end", values="value")[["start", "end"]]
        yield str(way), table.to_numpy().reshape(-1, 2, 2)


def predict(nic: str, profile: Path, cores: int | None = None) -> Calls:
    """The calls of some draws, after a barrier each; `cores` replaces the profile's."""
    scenario = scenario_of(profile, nic, "2x1")
    host = scenario.cluster.host
    cluster = dataclasses.replace(scenario.cluster, host=dataclasses.replace(host, cores=cores or host.cores))
    collective = Case("all_gather", SIZE_BYTES, STEPS).collective()
    scenario = dataclasses.replace(
        scenario.with_run(steps=STEPS, payload="sizes"),
        cluster=cluster,
        workload=CollectiveCalls(collective=collective),
    )
    found = []
    for draw in range(1, DRAWS + 1):
        spans = [span for span in simulate(scenario, CollectiveProgram(scenario), draw).spans if is_gather(span.kind)]
        found += [(span.start_ns, span.end_ns) for span in sorted(spans, key=lambda span: (span.step, span.rank))]
    return np.array(found, dtype=np.float64).reshape(-1, 2, 2)


def is_gather(kind: str) -> bool:
    return kind.startswith("all_gather")


def row(way: str, calls: Calls, wire_s: float) -> str:
    """One line of the table."""
    taken_s = (calls[:, :, 1].max(axis=1) - calls[:, :, 0].min(axis=1)) / 1e9
    apart_us = np.abs(calls[:, 1, 0] - calls[:, 0, 0]) / 1e3
    longer = float(np.mean(taken_s > BETWEEN * wire_s))
    low, middle, high = np.quantile(apart_us, (0.1, 0.5, 0.9))
    median_ms = 1e3 * float(np.median(taken_s))
    return f"| {way} | {len(calls)} | {longer:.0%} | {median_ms:.1f} ms | {middle:.0f} ({low:.0f} to {high:.0f}) us |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outcomes")
    parser.add_argument("--nic", default="100mbit")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--profile", type=Path, help="one calibrated at that rate: what draws of it predict")
    options = parser.parse_args()
    wire_s = SIZE_BYTES / 2 / PAYLOAD_SHARE / read_rate("nic", options.nic)
    print(f"the wire alone: {1e3 * wire_s:.1f} ms")
    print("| | calls | take longer | median | starts apart, median and p10 to p90 |")
    print("|---|---|---|---|---|")
    for way, calls in measure(options.nic, options.turns):
        print(row(way, calls, wire_s))
    if options.profile is not None:
        print(row("predicted", predict(options.nic, options.profile), wire_s))
        print(row("predicted, one core for both", predict(options.nic, options.profile, 1), wire_s))


if __name__ == "__main__":
    main()
