"""`python -m real validate`, whole: on real ranks, and with launches that end in each way there is."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import twinstep.validation.cli
from real.launch.job import Job
from real.launch.launcher import RunEnded
from reports.compare.comparison import compare
from reports.store import run_folder as store
from scenarios.workloads.build import build
from sim.run import simulate
from tests.commands import command
from tests.scenarios.workloads.own import NO_STEP, stepless, write_scenario
from tests.twinstep.validation.small import scenario_file
from twinstep.validation.cli import validate

ROOT = Path(__file__).parents[3]
START_S = 60.0

HEAD = {
    *("schema_version", "command", "started", "is_complete", "emulated", "options", "machine", "versions"),
    *("errors", "scenarios"),
}
SIDE = {
    *("median_ns", "median_low_ns", "median_high_ns", "low_ns", "high_ns", "spread", "uncertainty", "disagreement"),
    "steps",
}
SCENARIO = {
    *("name", "file", "digest", "library", "world_size", "steps", "predicted", "measured", "error", "error_low"),
    *("error_high", "inside", "is_too_noisy", "ended", "operations"),
}


def without_notes(said: str) -> str:
    """Return what is beside notes on the machine that the tests run on."""
    return re.sub(r"^note: .*\n(?: {6}.*\n)*", "", said, flags=re.MULTILINE)


def test_a_scenario_is_predicted_measured_and_compared(tmp_path: Path) -> None:
    """A precision that any machine reaches takes two rounds; an error of nothing is more than any prediction holds."""
    file, out = scenario_file(tmp_path, "tiny"), tmp_path / "out"
    words = ("--out", out, "--precision", "0.99", "--rounds", "2", "--max-error", "0", "--json")
    done = command("real", "validate", file, *words)
    found = json.loads(done.stdout)
    assert set(found) == HEAD
    assert found == json.loads((out / "validation.json").read_text())
    assert found["is_complete"]
    assert found["command"].endswith("--max-error 0 --json")
    (one,) = found["scenarios"]
    assert set(one) == SCENARIO
    assert set(one["predicted"]) == SIDE | {"draws", "draw_medians_ns", "draw_steps_ns"}
    assert set(one["measured"]) == SIDE | {"rounds", "round_medians_ns", "round_steps_ns"}
    assert (one["name"], one["steps"], one["world_size"], one["ended"]) == ("tiny", 30, 2, "")
    measured = one["measured"]
    counted = sum(map(len, measured["round_steps_ns"]))  # without the warm-up, if there is any
    assert (measured["rounds"], measured["steps"]) == (2, counted)
    assert 30 < counted <= 60
    assert {row["label"] for row in one["operations"]} == {"exchange", "checksum", "step skew"}
    assert done.returncode == 1
    assert done.stderr == f"tiny: error {one['error']:+.1%}: expected at most --max-error = 0\n"
    assert sorted(path.name for path in (out / "tiny").iterdir()) == ["measured", "predicted"]
    both = compare(store.load(out / "tiny" / "predicted"), store.load(out / "tiny" / "measured"))
    assert both.measured.info.digest == one["digest"]
    assert [check.name for check in both.checks[:2] if not check.agrees] == []


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """Interrupt the second scenario while its ranks start: the first is kept, and there is nothing of the second."""
    files = [scenario_file(tmp_path, name) for name in ("first", "second")]
    out = tmp_path / "out"
    line = [sys.executable, "-m", "real", "validate", *map(str, files), "--out", str(out), "--rounds", "1"]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_s = time.monotonic() + START_S
    while not list((out / "second").glob(".round-1.*.spool/job")) and time.monotonic() < until_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=START_S)
    assert process.returncode == 130
    assert without_notes(said) == ("second: the run was interrupted by SIGINT in step 0; nothing is kept of it\n")
    assert "second: ENDED EARLY: the run was interrupted by SIGINT" in shown
    found = json.loads((out / "validation.json").read_text())
    assert not found["is_complete"]
    assert [(one["name"], one["error"] is None) for one in found["scenarios"]] == [("first", False), ("second", True)]
    assert store.load(out / "first" / "measured").info.complete
    assert not (out / "second" / "round-1").exists()


@pytest.mark.slow
def test_torchrun_starts_the_only_round(tmp_path: Path) -> None:
    out = tmp_path / "out"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    line = [*torchrun, "-m", "real", "validate", str(scenario_file(tmp_path, "tiny")), "--out", str(out), "--quiet"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}\n"
    (one,) = json.loads((out / "validation.json").read_text())["scenarios"]
    assert one["measured"]["rounds"] == 1
    assert sorted(path.name for path in (out / "tiny").iterdir()) == ["measured", "predicted"]


Launch = Callable[[Job], None]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launch]]:
    """Return what each launch does, in turn; the last one's is repeated. A play of the simulator takes the ranks'
    place.
    """
    plays: list[Launch] = []

    def launch(job: Job, **_: Any) -> None:
        (plays.pop(0) if len(plays) > 1 else plays[0])(job)

    monkeypatch.setattr(twinstep.validation.cli, "launch", launch)
    yield plays
    assert plays


def plays(job: Job) -> None:
    store.write(simulate(job.scenario, build(job.scenario)), job.out)


def plays_slowly(job: Job) -> None:
    """Half as fast as predicted."""
    recording = simulate(job.scenario, build(job.scenario))
    for one in recording.spans:
        for name in ("issued_ns", "start_ns", "end_ns", "wait_from_ns", "wait_until_ns"):
            object.__setattr__(one, name, 2 * getattr(one, name))
    store.write(recording, job.out)


def loses_a_rank(job: Job) -> None:
    raise RunEnded("rank 1 was lost in step 2")


def is_interrupted(job: Job) -> None:
    raise RunEnded("the run was interrupted by SIGTERM", 143)


def found_in(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "validation.json").read_text())
    return found


def test_right_prediction_passes_after_two_rounds(tmp_path: Path, launched: list[Launch]) -> None:
    launched.append(plays)
    out = tmp_path / "out"
    assert validate([str(scenario_file(tmp_path, "a")), "--out", str(out), "--max-error", "0.01"]) == 0
    (one,) = found_in(out)["scenarios"]
    assert (one["error"], one["inside"], one["is_too_noisy"], one["measured"]["rounds"]) == (0, True, False, 2)


def test_an_error_past_the_limit_is_exit_code_1(
    tmp_path: Path, launched: list[Launch], capsys: pytest.CaptureFixture[str]
) -> None:
    launched.append(plays_slowly)
    words = [str(scenario_file(tmp_path, "a")), "--quiet", "--out", str(tmp_path / "out"), "--max-error"]
    assert validate([*words, "0.49"]) == 1
    assert capsys.readouterr() == (f"{tmp_path / 'out'}\n", "a: error -50.0%: expected at most --max-error = 0.49\n")
    words[3] = str(tmp_path / "again")
    assert validate([*words, "0.51"]) == 0
    (one,) = found_in(tmp_path / "again")["scenarios"]
    assert (one["error"], one["inside"]) == (-0.5, False)


def test_rounds_that_differ_are_repeated_and_said_to_be_noisy(
    tmp_path: Path, launched: list[Launch], capsys: pytest.CaptureFixture[str]
) -> None:
    launched.extend([plays, plays_slowly, plays_slowly, plays])
    out = tmp_path / "out"
    assert validate([str(scenario_file(tmp_path, "a")), "--out", str(out)]) == 0
    (one,) = found_in(out)["scenarios"]
    assert (one["is_too_noisy"], one["measured"]["rounds"]) == (True, 3)
    assert "a: TOO NOISY: median known to ±" in capsys.readouterr().out


def test_a_scenario_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, launched: list[Launch], capsys: pytest.CaptureFixture[str]
) -> None:
    launched.extend([loses_a_rank, plays, loses_a_rank])
    files = [str(scenario_file(tmp_path, name)) for name in ("a", "b")]
    out = tmp_path / "out"
    assert validate([*files, "--out", str(out)]) == 1
    assert without_notes(capsys.readouterr().err) == "a: rank 1 was lost in step 2\nb: rank 1 was lost in step 2\n"
    found = found_in(out)
    first, second = found["scenarios"]
    assert (first["measured"], first["error"], first["ended"]) == (None, None, "rank 1 was lost in step 2")
    assert (second["measured"]["rounds"], second["error"]) == (1, 0)  # the round before is kept
    assert found["is_complete"]


def plays_no_step(job: Job) -> None:
    recording = simulate(job.scenario, build(job.scenario))
    spans = [dataclasses.replace(span, step=-1) for span in recording.spans if span.kind != "step"]
    store.write(dataclasses.replace(recording, spans=spans), job.out)


def test_a_measurement_without_a_step_is_not_compared(
    tmp_path: Path, launched: list[Launch], capsys: pytest.CaptureFixture[str]
) -> None:
    launched.append(plays_no_step)
    assert validate([str(scenario_file(tmp_path, "a")), "--out", str(tmp_path / "out")]) == 1
    assert without_notes(capsys.readouterr().err) == f"a: {NO_STEP}\n"
    (one,) = found_in(tmp_path / "out")["scenarios"]
    assert (one["measured"], one["error"], one["ended"]) == (None, None, NO_STEP)


def test_a_prediction_without_a_step_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of a program nor of a script, which says what it lacks as `python -m sim` does."""
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    of_script = tmp_path / "of_script.toml"
    of_script.write_text(
        'program = "script"\nscript = {path = "train.py"}\ncluster = {profile = "cpu_local", hosts = 1,'
        " gpus_per_host = 2}\n"
    )
    files = [str(write_scenario(tmp_path, stepless())), str(of_script)]
    assert validate([*files, "--out", str(tmp_path / "out")]) == 1
    (first, second) = without_notes(capsys.readouterr().err).splitlines()
    assert first == f"my: {NO_STEP}"
    assert second.startswith(f"of_script: {script}: no step was seen: the script ended at its last line")
    assert [one["measured"] for one in found_in(tmp_path / "out")["scenarios"]] == [None, None]


def test_a_signal_ends_all_and_is_the_exit_code(tmp_path: Path, launched: list[Launch]) -> None:
    launched.append(is_interrupted)
    files = [str(scenario_file(tmp_path, name)) for name in ("a", "b")]
    assert validate([*files, "--out", str(tmp_path / "out")]) == 143
    found = found_in(tmp_path / "out")
    assert [one["name"] for one in found["scenarios"]] == ["a"]
    assert not found["is_complete"]


def test_steps_option_applies_to_prediction_and_measurement(tmp_path: Path, launched: list[Launch]) -> None:
    launched.append(plays)
    out = tmp_path / "out"
    assert validate([str(scenario_file(tmp_path, "a")), "--out", str(out), "--steps", "12", "--rounds", "1"]) == 0
    for side in ("predicted", "measured"):
        assert len(store.load(out / "a" / side).steps) == 12
    (one,) = found_in(out)["scenarios"]
    assert (one["predicted"]["steps"], one["measured"]["steps"]) == (12, 12)
