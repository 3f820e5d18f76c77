"""A fault that ends: a GPU is slow until a time, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.workloads.build import build
from sim.run import simulate

ROOT = Path(__file__).parents[3]


def test_a_gpu_is_slow_until_its_time(tmp_path: Path) -> None:
    file, scenario = tmp_path / "slow.toml", ROOT / "scenarios/library/criteo_small_2x2.toml"
    file.write_text(f"include = '{scenario}'\n[[cluster.slow]]\nhost = 0\ngpu = 0\nspeed = 0.1\nuntil = '2 ms'\n")
    ends = []
    for path in (scenario, file):
        made = load(path)
        spans = simulate(made, build(made)).spans
        ends.append(sorted(span.end_ns - span.start_ns for span in spans if span.kind == "compute" and span.rank == 0))
    assert sum(ends[1]) > sum(ends[0])
    assert sum(ends[1]) - sum(ends[0]) < 10 * 2_000_000
    assert ends[1] != pytest.approx([10 * each for each in ends[0]], rel=0.5)
