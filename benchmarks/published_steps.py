"""Whole training steps that others have measured, against what the simulator says of the ready scenarios of them.

    python -m benchmarks.published_steps

PowerSGD's speed-ups of pytorch issue 74148; docs/explanation/kernels.md has them with their reasons. None of
these measurements has set a figure of the model. MLPerf's step times:
`python -m reports published tests/data/published/steps.csv`.
"""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import pandas as pd

from scenarios.config.load import load
from scenarios.config.scenario import Compression, Scenario
from scenarios.workloads.build import build
from sim.run import simulate

LIBRARY = Path("scenarios/library")
# By hosts of two GPUs: how many times as fast as one GPU.
SPEED_UPS = {2: 3.5, 3: 5.23, 4: 5.46}


def step_ms(scenario: Scenario, first: int = 0) -> float:
    """The median over steps from `first` on, from the first rank's start to the last one's end."""
    steps: dict[int, list[tuple[int, int]]] = {}
    for span in simulate(scenario, build(scenario)).spans:
        if span.kind == "step" and span.step >= first:
            steps.setdefault(span.step, []).append((span.start_ns, span.end_ns))
    lengths = [max(end for _, end in spans) - min(start for start, _ in spans) for spans in steps.values()]
    return statistics.median(lengths) / 1e6


def on(scenario: Scenario, hosts: int, gpus_per_host: int) -> Scenario:
    """The same on so many hosts; as they have one NIC between their GPUs, that does not change."""
    host = dataclasses.replace(scenario.cluster.host, gpus=gpus_per_host)
    return dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, hosts=hosts, host=host))


def compare() -> pd.DataFrame:
    """A row a measurement: `predicted` and `published` (ms, or times as fast) and `error`, their quotient less 1."""
    rows: list[tuple[str, str, float, float]] = []
    compressed = load(str(LIBRARY / "powersgd_4x2_3g.toml"))
    alone_ms = step_ms(on(compressed, 1, 1).with_workload(compression=Compression()))
    for hosts, published in SPEED_UPS.items():
        world = on(compressed, hosts, compressed.cluster.host.gpus)
        predicted_ms = step_ms(world, compressed.workload.compression.start_powerSGD_iter)
        name = f"pytorch issue 74148, PowerSGD, {world.cluster.world_size} V100"
        rows.append((name, "times as fast as 1", world.cluster.world_size * alone_ms / predicted_ms, published))
    table = pd.DataFrame(rows, columns=["measurement", "unit", "predicted", "published"])
    return table.assign(error=table["predicted"] / table["published"] - 1)


if __name__ == "__main__":
    print(compare().to_string(index=False, float_format="{:,.3g}".format))
