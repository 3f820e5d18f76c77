from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.generated.pairs import KINDS, is_wrong, pairs, steps_ns


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_better_part_makes_no_step_slower(kind: str, tmp_path: Path) -> None:
    for pair in islice(pairs(0, kind), 3):
        assert not is_wrong(pair, tmp_path / "scenario.toml"), f"{pair.part} x {pair.factor}: {pair.worse}"


@pytest.mark.parametrize("size", ["32 KiB", "1 MiB", "4 MiB", "64 MiB"])
def test_a_nic_is_used_no_further_than_the_lanes_that_lead_to_it(size: str, tmp_path: Path) -> None:
    """A V100's lanes carry 12.5 GB/s, so that NICs above 100 Gbit/s change nothing; 150 once made a ring slower."""
    steps = [
        sum(steps_ns(_ALL_REDUCE.format(size=size, rate=rate), tmp_path / "scenario.toml")) for rate in (100, 150, 400)
    ]
    assert steps[1:] == pytest.approx(steps[:1] * 2, rel=0.02)
    assert steps == sorted(steps, reverse=True)


_ALL_REDUCE = """
include = "profile:dgx1_v100"
program = "collective"
cluster.hosts = 2
cluster.nic.rate = "{rate} Gbit/s"
run.steps = 2
run.library = "nccl"
collective = {{op = "all_reduce", size = "{size}"}}
"""
