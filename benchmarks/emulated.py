"""`python -m benchmarks.emulated`: what gloo makes of emulated links, and how much its times scatter. As root.

    python -m benchmarks.emulated [--nic 200mbit] [--hosts 2] [--steps 30]

An all_reduce in a ring sends 2 (n - 1) / n of its bytes from each of n ranks; what arrives in the time of the slowest
rank is shown as a share of the interfaces' rate. Headers leave 1448 of 1514 bytes, a share of 0.956.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

import torch

from real.emulate.cli import read_rate
from real.emulate.cluster import emulate_hosts, traffic
from real.emulate.fabric import EmulatedFabric
from real.launch.job import Job
from real.launch.launcher import launch
from reports.store import run_folder as store
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

SIZES = (64 << 10, 2 << 20, 8 << 20)
WARM_UP = 3
SCENARIO = Path(__file__).parent.parent / "scenarios" / "library" / "all_to_all_4x2.toml"


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
    fabric = EmulatedFabric(hosts=options.hosts, nic_bytes_per_s=read_rate("nic", options.nic))
    scenario = load(SCENARIO, {"steps": options.steps + WARM_UP})
    cluster = dataclasses.replace(
        scenario.cluster, hosts=options.hosts, host=dataclasses.replace(scenario.cluster.host, gpus=1)
    )
    with tempfile.TemporaryDirectory() as folder, emulate_hosts(fabric) as hosts:
        job = Job(
            scenario=dataclasses.replace(scenario.with_run(timeout_s=60.0), cluster=cluster),
            program="benchmarks.emulated:reduces",
            writer="reports.writer:write",
            out=Path(folder, "run"),
            spool=Path(folder, "spool"),
            started="",
            check="never",
        )
        launch(job, hosts=hosts)
        spans = store.load(job.out).spans
        dropped = sum(row.dropped_packets for row in traffic(hosts))
    spans = spans[spans["step"] >= WARM_UP]
    for size in SIZES:
        calls = spans[spans["label"] == str(size)]
        taken_s = ((calls["end_ns"] - calls["start_ns"]) / 1e9).groupby(calls["step"]).max()
        share = 2 * (options.hosts - 1) / options.hosts * size / taken_s.median() / fabric.nic_bytes_per_s
        scatter = taken_s.std() / taken_s.mean()
        print(f"{size:9d} B: {1e3 * taken_s.median():7.2f} ms, {share:.3f} of the rate, scatter {100 * scatter:.1f} %")
    print(f"{dropped} packets dropped")


if __name__ == "__main__":
    main()
