"""The scenarios that a calibrated device is tried on are sound, on a GPU and on a CPU, and fill it more or less."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.one_gpu import SCALES, main, scenarios
from scenarios.config.catalogue import profile_file
from scenarios.config.load import load
from scenarios.workloads.build import build


@pytest.mark.parametrize(("kind", "profile"), [("cuda", "dgx_h100"), ("cpu", "cpu_local")])
def test_each_scenario_is_one_rank_on_the_measured_profile(kind: str, profile: str, tmp_path: Path) -> None:
    ready = profile_file(profile)
    assert ready is not None
    shutil.copy(ready, tmp_path / "measured.toml")
    for name, text in scenarios(SCALES[kind]).items():
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        scenario = load(file)
        assert (scenario.cluster.world_size, scenario.cluster.host.gpu.kind) == (1, kind)
        if scenario.program == "script":  # whose memory shows as it runs
            continue
        rows = build(scenario).memory
        held = sum(row.size_bytes for row in rows)
        assert 0 < held < rows[0].capacity_bytes


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "File exists" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
