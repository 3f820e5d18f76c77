"""`python -m benchmarks.emulated`: what gloo makes of emulated links, and how much its times scatter. As root.

    python -m benchmarks.emulated [--nic 200mbit] [--hosts 2] [--steps 30]

An all_reduce in a ring sends 2 (n - 1) / n of its bytes from each of n ranks; what arrives in the time of the slowest
rank is shown as a share of the interfaces' rate. Headers leave 1448 of 1514 bytes, a share of 0.956.
"""

from __future__ import annotations

import argparse
import tempfile

import torch

from benchmarks.harness import job_on, on_hosts
from real.emulate.cli import read_rate
from real.emulate.cluster import EmulatedHosts, traffic
from real.launch.launcher import launch
from reports.store import run_folder as store
from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

SIZES = (64 << 10, 2 << 20, 8 << 20)
WARM_UP = 3


class Reductions(Program):
    """All sizes in each step; a program of no plan."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def __call__(self, rank: Rank) -> None:
        for index in range(self._steps):
            with rank.step(index):
                for size in SIZES:
                    await rank.barrier(label="together")
                    await rank.all_reduce(torch.ones(size // 4), label=str(size))


def reduces(scenario: Scenario) -> Reductions:
    return Reductions(scenario.run.steps)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulated")
    parser.add_argument("--nic", default="200mbit")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, on_hosts(options.nic, options.hosts) as hosts:
        job = job_on(options.hosts, "benchmarks.emulated:reduces", folder, options.steps + WARM_UP)
        launch(job, hosts=hosts)
        spans = store.load(job.out).spans
        assert isinstance(hosts, EmulatedHosts), "their interfaces have a rate"
        dropped = sum(row.dropped_packets for row in traffic(hosts))
    spans = spans[spans["step"] >= WARM_UP]
    for size in SIZES:
        calls = spans[spans["label"] == str(size)]
        taken_s = ((calls["end_ns"] - calls["start_ns"]) / 1e9).groupby(calls["step"]).max()
        share = 2 * (options.hosts - 1) / options.hosts * size / taken_s.median() / read_rate("nic", options.nic)
        scatter = taken_s.std() / taken_s.mean()
        print(f"{size:9d} B: {1e3 * taken_s.median():7.2f} ms, {share:.3f} of the rate, scatter {100 * scatter:.1f} %")
    print(f"{dropped} packets dropped")


if __name__ == "__main__":
    main()
