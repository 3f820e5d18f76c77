"""Run folders that earlier revisions wrote, by day: `tests/data/old_runs`, three steps of criteo_small_2x2 each."""

from __future__ import annotations

from pathlib import Path

import pytest

import twinstep
from tests.commands import command

OLD = Path(__file__).parents[2] / "data" / "old_runs"
STEPS_NS = {
    "2026_11_22": [10622369, 10634042, 10916640],  # b49ee04f: no roles, no uncertainty, fewer parts of memory
    "2026_11_25": [10941103, 10954887, 11571443],  # 2bb2e0cb
    "2026_11_27": [10088727, 10079840, 10676265],  # 98198fad: the last before spans had roles
}


@pytest.mark.parametrize("day", STEPS_NS)
def test_an_old_run_has_the_frames_of_a_new_one(day: str) -> None:
    run = twinstep.load(OLD / day)
    assert run.steps["step_ns"].tolist() == STEPS_NS[day]
    roles = set(run.spans["role"])
    assert {"lookup", "update", "ids", "rows", "gradients", "reduction", "compression", "optimizer"} < roles


@pytest.mark.parametrize("day", STEPS_NS)
def test_an_old_run_is_reported(day: str, tmp_path: Path) -> None:
    done = command("reports", OLD / day, "--out", tmp_path / "page")
    assert (done.returncode, done.stderr) == (0, "")
    shown = command("reports", "show", OLD / day)
    assert shown.returncode == 0
    assert f"step time   {STEPS_NS[day][-1] / 1e6:.1f} ms" in shown.stdout
