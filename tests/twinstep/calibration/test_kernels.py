"""`python -m real calibrate --kernels`: what it refuses; a profile of the device at hand that is else as another."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from real.calibration.kernels.workloads import HOST
from real.machine import cores, cpu_name
from scenarios.config.kernel_kinds import KERNEL_KINDS
from scenarios.config.load import load_measured, load_profile
from sim.run import simulate
from tests.twinstep.calibration.test_cli import refuse
from twinstep.calibration import kernels as calibrate_kernels
from twinstep.calibration.cli import calibrate

KINDS = set(KERNEL_KINDS)


def test_more_ranks_than_cores_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    most = cores()
    out = ["--out", str(tmp_path / "a.toml"), "--like", "cpu_local"]
    sentence = refuse(["--kernels", *out, "--ranks-per-host", str(most + 1)], capsys)
    assert sentence == f"--ranks-per-host = {most + 1}: expected 1 to {most}, one for each core"


def test_missing_profile_has_the_scenarios_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'dgx_x'" in refuse(["--kernels", "--out", str(tmp_path / "a.toml"), "--like", "dgx_x"], capsys)


@pytest.mark.slow
def test_a_core_is_measured_on_a_real_rank_and_all_else_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate_kernels, "_LAUNCHES", 1)
    monkeypatch.setattr(calibrate_kernels, "ROUNDS", 1)
    out = tmp_path / "mine.toml"
    assert calibrate(["--kernels", "--like", "cpu_local", "--out", str(out), "--json"], simulate) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["what"] for one in said["reached"]} == {"memory", "float32", *HOST.other_dtypes}
    like, found, measured = load_profile("cpu_local"), load_profile(str(out)), load_measured(str(out))
    gpu = found.host.gpu
    assert dataclasses.replace(found, profile="cpu_local", host=like.host) == like
    assert dataclasses.replace(found.host, gpu=like.host.gpu) == like.host
    assert (gpu.name, gpu.kind, gpu.memory_bytes) == (f"a core of {cpu_name()}", "cpu", like.host.gpu.memory_bytes)
    assert set(gpu.launches_ns) == KINDS
    assert set(gpu.efficiency) == KINDS | {"default"}
    assert (gpu.ramp_ns, gpu.ramps_ns) == (0, {})
    assert measured is not None
    assert {group.name for group in measured.groups} == {f"{kind} kernels" for kind in KINDS}
    assert measured.command == f"python -m real calibrate --kernels --like cpu_local --out {out} --json"
    assert "# Not measured: as in cpu_local.\n[cluster.inside]" in out.read_text()
