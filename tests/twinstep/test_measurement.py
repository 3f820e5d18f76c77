"""`python -m real` says what is wrong around a run, or left out of its scenario, before it begins."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import twinstep
from real.launch.rank_process import leave
from real.machine import allow_open_files
from scenarios.seam.errors import ScenarioError
from tests.commands import unfold
from tests.small import cluster
from twinstep.measurement import main

SLOW = """program = "all_to_all"
cluster = {profile = "cpu_local", hosts = 2, faults = [{host = 1, nic = 0, speed = 0.5}]}
exchange = {size = "1 MiB"}
"""


@pytest.mark.parametrize("emulate", [(), ("--emulate",)])
def test_a_fault_that_real_devices_do_not_have_is_said_once(
    emulate: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("twinstep.measurement._run", lambda job, options: 0)  # where emulated hosts refuse it
    file = tmp_path / "slow.toml"
    file.write_text(SLOW)
    assert main([str(file), "--quiet", "--out", str(tmp_path / "out"), *emulate]) == 0
    note = f"note: {file}: cluster.faults: 1 of the cluster's parts is slow in predictions only;"
    assert unfold(capsys.readouterr().err) == ("" if emulate else f"{note} a real run takes its devices as they are\n")


@pytest.mark.parametrize("words", [["FILE"], ["validate", "FILE"], ["check"]])
def test_a_place_that_is_given_by_half_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variables of torchrun that a shell or a job has set by itself."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    file = tmp_path / "fast.toml"
    file.write_text(SLOW.replace(", faults = [{host = 1, nic = 0, speed = 0.5}]", ""))
    out = [] if words == ["check"] else ["--out", str(tmp_path / "out")]
    assert main([str(file) if word == "FILE" else word for word in words] + out) == 2
    assert capsys.readouterr().err == "environment: LOCAL_RANK: missing; expected as set by torchrun or srun\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fast.toml"]
    with pytest.raises(SystemExit, match="2"):
        leave(2)


def test_too_few_open_files_are_said_before_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("real.machine.resource.getrlimit", lambda kind: (16, 16))
    file = tmp_path / "fast.toml"
    file.write_text(SLOW.replace(", faults = [{host = 1, nic = 0, speed = 0.5}]", ""))
    assert main([str(file), "--quiet", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said == ("a process may have 16 open files (ulimit -n), too few for 4 ranks: expected a limit of 356\n")
    assert [path.name for path in tmp_path.iterdir()] == ["fast.toml"]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (0, "CUDA devices, this machine has none; 'gloo' needs none"),
        (4, "at most 4 ranks on this machine, one for each CUDA device"),
    ],
)
def test_missing_gpus_are_said_before_the_program_is_built(
    devices: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr("real.launch.job.Job.build", lambda job: pytest.fail("it is built"))
    monkeypatch.setattr("scenarios.workloads.build.build", lambda scenario: pytest.fail("it is built"))
    sentence = f"library = 'nccl': expected {expected}"
    assert main(["criteo_dlrm_2x4", "--quiet", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"{sentence}\n"
    with pytest.raises(ScenarioError, match=f"^{re.escape(sentence)}$"):
        twinstep.measure("criteo_dlrm_2x4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.real
def test_too_few_open_files_for_a_group_are_said_at_once(tmp_path: Path) -> None:
    """Not after gloo has tried for minutes to connect."""
    line = f"ulimit -n 64; exec {sys.executable} -m real twrw_2x2 --quiet --out {tmp_path / 'run'}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert re.fullmatch(
        r"rank \d: a process may have 64 open files \(ulimit -n\), too few for group '\S+': expected a limit of 356\n",
        done.stderr,
    )


def test_a_low_limit_of_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr("real.machine.resource.getrlimit", lambda kind: (64, 4096))
    monkeypatch.setattr("real.machine.resource.setrlimit", lambda kind, limits: given.append(limits))
    allow_open_files(cluster(2, 2))
    assert given == [(356, 4096)]
