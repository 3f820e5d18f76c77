"""`python -m real regret`, whole: with launches that the simulator plays, and once on emulated hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import twinstep
import twinstep.regret.cli
from real.emulate import netns
from real.launch.job import Job
from real.launch.launcher import RunEnded
from reports.store import run_folder
from scenarios.config.scenario import CollectiveCalls
from scenarios.workloads.build import build
from sim.run import simulate
from tests.real.emulate.test_emulate import able  # noqa: F401  (a fixture)
from tests.scenarios.workloads.own import NO_STEP
from tests.twinstep.studies.players import play_in_this_process
from twinstep.regret.cli import regret

SCENARIO = """
program = "all_to_all"
[run]
steps = 4
timeout = "60 s"
[cluster]
profile = "emulated_200mbit"
hosts = 2
[exchange]
size = "64 KiB"
"""
STUDY = """
scenario = "small.toml"
goals = ["step_ns"]
baseline = false
draws = 1
[vary]
"exchange.size" = ["64 KiB", "1 MiB", "65536 bytes"]
"cluster.nic.rate" = ["100 Mbit/s", "200 Mbit/s"]
"""


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    play_in_this_process(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SCENARIO)
    path = Path("study.toml")
    path.write_text(STUDY)
    return path


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Return the jobs that were launched; a play of the simulator takes the ranks' place."""
    jobs: list[Job] = []

    def launch(job: Job, **_: Any) -> None:
        jobs.append(job)
        run_folder.write(simulate(job.scenario, build(job.scenario)), job.out)

    monkeypatch.setattr(twinstep.regret.cli, "launch", launch)
    return jobs


def find(study: Path, *words: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert regret([str(study), "--json", *map(str, words)]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_points_are_predicted_and_measured_and_nothing_twice(
    study: Path, launched: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of six points are the scenarios of two others; what the simulator measures agrees with itself at once."""
    first = find(study, "--rounds", 2, capsys=capsys)
    assert len(launched) == 4 * 2
    assert all(job.check == "never" and job.scenario.run.payload == "values" for job in launched)
    assert [point["index"] for point in first["points"]] == [1, 2, 3, 4]
    assert (first["regret"], first["predicted_best"], first["kendall"]) == (0, 2, 1)
    assert [point["rounds"] for point in first["points"]] == [2] * 4
    assert json.loads(Path("runs/study-regret/regret.json").read_text()) == first
    assert find(study, "--rounds", 3, "--draws", 0, capsys=capsys)["pairs"] == first["pairs"]
    assert len(launched) == 4 * 2
    study.write_text(STUDY.replace('"64 KiB"', '"2 MiB", "64 KiB"'))
    assert [point["index"] for point in find(study, capsys=capsys)["points"]] == [1, 2, 3, 4, 5, 6]
    assert len(launched) == 6 * 2
    measured = twinstep.study("runs/study-regret/measured")
    assert measured["index"].tolist() == [1, 2, 3, 4, 5, 6]
    assert twinstep.load(Path("runs/study-regret/measured", measured["run"].iloc[0])).info.complete


def test_a_command_that_is_interrupted_goes_on_where_it_stopped(
    study: Path, launched: list[Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plays = twinstep.regret.cli.launch  # type: ignore[attr-defined]

    def launch(job: Job, **more: Any) -> None:
        if len(launched) == 3:
            raise RunEnded("the run was interrupted by SIGTERM", 143)
        plays(job, **more)

    monkeypatch.setattr(twinstep.regret.cli, "launch", launch)
    assert regret([str(study), "--quiet"]) == 143
    said = capsys.readouterr().err
    assert said == "runs/study-regret: interrupted; python -m real regret study.toml --quiet goes on\n"
    monkeypatch.setattr(twinstep.regret.cli, "launch", plays)
    find(study, capsys=capsys)
    assert len(launched) == 4 * 2
    assert len({(job.scenario.digest(), job.out.name) for job in launched}) == 4 * 2


def test_failed_point_is_reported_and_measured_again_with_again(
    study: Path, launched: list[Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plays, lost = twinstep.regret.cli.launch, []  # type: ignore[attr-defined]

    def launch(job: Job, **more: Any) -> None:
        if (
            CollectiveCalls.of(job.scenario.workload) is not None
            and CollectiveCalls.of(job.scenario.workload).size_bytes == 1 << 20
            and len(lost) < 2
        ):
            lost.append(job)
            raise RunEnded("rank 1 was lost in step 2")
        plays(job, **more)

    monkeypatch.setattr(twinstep.regret.cli, "launch", launch)
    words = [str(study), "--json"]
    assert regret(words) == 0
    shown = capsys.readouterr()
    assert [point["index"] for point in json.loads(shown.out)["points"]] == [1, 2]
    assert shown.err == "2 points ended early, such as: rank 1 was lost in step 2\n"
    assert regret(words) == 0
    assert len(lost) == 2
    assert len(launched) == 2 * 2
    capsys.readouterr()
    assert len(find(study, "--again", capsys=capsys)["points"]) == 4
    assert capsys.readouterr().err == ""


def test_a_measurement_without_a_step_chooses_nothing(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(job: Job, **_: Any) -> None:
        recording = simulate(job.scenario, build(job.scenario))
        spans = [replace(span, step=-1) for span in recording.spans if span.kind != "step"]
        run_folder.write(replace(recording, spans=spans), job.out)

    monkeypatch.setattr(twinstep.regret.cli, "launch", launch)
    assert regret([str(study), "--quiet"]) == 1
    assert capsys.readouterr().err.endswith(f"\n4 points ended early, such as: {NO_STEP}\n")


@pytest.mark.parametrize(
    ("edit", "words", "sentence"),
    [
        (
            lambda text: text.replace("step_ns", "memory_spare_bytes"),
            [],
            "study.toml: goals = ['memory_spare_bytes']: expected samples_per_s or step_ns among them, as that is what"
            " real ranks are measured by\n",
        ),
        (str, ["--rounds", "0"], "--rounds = 0: expected at least 1\n"),
        (str, ["--draws", "-1"], "--draws = -1: expected at least 0\n"),
        (str, ["--precision", "2"], "--precision = 2: expected a share between 0 and 1, such as 0.02\n"),
        (
            str,
            ["--emulate", "study.toml"],
            "--emulate = 'study.toml': expected emulated hosts' name; name the study before --emulate\n",
        ),
        (
            str,
            ["--set", "run.library=nccl", "--emulate"],
            "study.toml: run.library = 'nccl': expected 'gloo', because cluster.gpu.kind = 'cpu'\n",
        ),
        (
            lambda text: text.replace('"cluster.nic.rate" = ["100 Mbit/s", "200 Mbit/s"]', ""),
            ["--profile", "v100_tcp_10g"],
            "small.toml: cluster.profile = 'v100_tcp_10g': expected a CPU's, as points are measured on CPUs\n",
        ),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_played(
    study: Path,
    launched: list[Job],
    edit: Callable[[str], str],
    words: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(netns, "check_able", lambda: None)
    study.write_text(edit(STUDY))
    assert regret([str(study), *words]) == 2
    assert capsys.readouterr() == ("", sentence)
    assert not launched
    assert not Path("runs").exists()


def test_missing_root_is_one_sentence(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert regret([str(study), "--emulate"]) == 2
    assert capsys.readouterr().err == (
        "emulated hosts are network namespaces, which only root may make: run this with sudo\n"
    )


@pytest.mark.real
@pytest.mark.emulated
@pytest.mark.usefixtures("able")
def test_on_emulated_hosts_the_quicker_link_is_the_best(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 MiB each way: at 50 Mbit/s a step takes 168 ms of wire, at 200 Mbit/s 42 ms."""
    study.write_text(STUDY.replace('"64 KiB", "1 MiB", "65536 bytes"', '"2 MiB"').replace("100 Mbit/s", "50 Mbit/s"))
    shown = find(study, "--emulate", "--rounds", 1, capsys=capsys)
    assert (shown["measured_best"], shown["predicted_best"], shown["regret"]) == (2, 2, 0)
    assert shown["pairs"][1] == {"difference": 0.1, "count": 1, "right": 1, "share": 1}
    run = run_folder.load(Path("runs/study-regret/measured") / twinstep.study("runs/study-regret/measured")["run"][0])
    assert run.info.played_on == "emulated hosts"
