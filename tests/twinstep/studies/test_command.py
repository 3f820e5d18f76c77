"""The command as a user types it: it ends by signals, goes on where it stopped, and shows what came out."""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import twinstep
from reports.study.measures import measures_of
from tests.commands import command
from tests.twinstep.studies.players import play_in_this_process
from twinstep.reporting.cli import main as reports_main
from twinstep.studies.cli import sweep_command
from twinstep.studies.study_file import SearchSettings

ROOT = Path(__file__).parents[3]
STUDY = """
scenario = "all_to_all_4x2"
[vary]
"exchange.size" = ["1 MiB", "2 MiB", "2048 KiB", "wrong"]
"run.steps" = {from = 2, to = 8, step = 2}
"""
POINTS = 1 + 4 * 4


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


SEARCH = """
goals = ["step_ns", "world_size"]
scenario = "all_to_all_4x2"
[vary]
"cluster.hosts" = [2, 3, 4, 5, 6]
"exchange.size" = ["1 MiB", "2 MiB", "4 MiB", "wrong"]
"run.steps" = {from = 4, to = 18, step = 2}
[constraints]
world_size = {above = 4}
[search]
trials = 24
enumerate_below = 0
"""


def start(*words: object, command: str = "sweep") -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "sim", command, *map(str, words)]
    return subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_rows(process: subprocess.Popen[str], out: Path, count: int) -> None:
    until_s = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until_s and len(list(out.glob("rows/part-*"))) < count:
        time.sleep(0.02)
    assert process.poll() is None
    assert len(list(out.glob("rows/part-*"))) >= count


@pytest.mark.whole
@pytest.mark.slow
def test_after_ctrl_c_and_kill_the_same_command_goes_on_and_plays_nothing_twice(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [study, "--out", out, "--jobs", "1", "--json"]
    process = start(*words)
    wait_for_rows(process, out, 2)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said[0] == ""
    assert said[1].startswith(f"{out}: interrupted with ")
    assert f" of {POINTS} points; python -m sim sweep {study} --out {out} --jobs 1 --json goes on" in said[1]
    before = twinstep.study(out)
    process = start(*words)
    wait_for_rows(process, out, len(before) + 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    killed = twinstep.study(out)
    assert len(before) < len(killed) < POINTS
    process = start(*words)
    printed, said_then = process.communicate(timeout=120)
    assert (process.returncode, said_then) == (0, "")
    content = json.loads(printed)
    assert len(content["points"]) == POINTS
    assert content["baseline"] == 0
    assert content["failures"] == [
        {
            "status": "scenario error",
            "points": 4,
            "index": 13,
            "sentence": f"{study}: exchange.size = 'wrong': expected a size such as '80 GiB'",
        }
    ]
    frame = twinstep.study(out)
    done = frame[frame["status"] == "done"]
    assert done["played"].sum() == done["digest"].nunique() == 9
    again = frame.set_index("index").loc[killed["index"]].reset_index()
    assert again[["digest", "seconds"]].equals(killed[["digest", "seconds"]])
    assert twinstep.load(out / done["run"].iloc[3]).info.thinned is not None


@pytest.mark.whole
@pytest.mark.slow
def test_a_search_goes_on_and_its_front_are_scenarios_that_run_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, out = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(SEARCH)
    words = [study, "--out", out, "--jobs", "1", "--json"]
    process = start(*words, command="search")
    wait_for_rows(process, out, 3)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert (process.returncode, said[0]) == (130, "")
    assert f" of 25 points; python -m sim search {study} --out {out} --jobs 1 --json goes on" in said[1]
    before = twinstep.study(out)
    process = start(*words, command="search")
    wait_for_rows(process, out, len(before) + 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    killed = twinstep.study(out)
    process = start(*words, command="search")
    printed, said_then = process.communicate(timeout=120)
    assert (process.returncode, said_then) == (0, "")
    frame, front = twinstep.study(out), twinstep.front(out)
    assert frame["index"].tolist() == list(range(25))
    done = frame[frame["status"] == "done"]
    assert done["played"].sum() == done["digest"].nunique()
    again = frame.set_index("index").loc[killed["index"]].reset_index()
    assert again[["digest", "seconds"]].equals(killed[["digest", "seconds"]])
    assert json.loads(printed)["front"] == front["index"].tolist()
    assert front["feasible"].all()
    assert 6 in front["world_size"].tolist()  # the fewest that are allowed
    file = out / "front" / f"{front['index'].iloc[0]:03}.toml"
    monkeypatch.chdir("/")
    assert measures_of(twinstep.predict(file))["step_ns"] == front["step_ns"].iloc[0]


def test_a_search_looks_at_no_more_points_than_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play_in_this_process(monkeypatch)
    study, out = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(STUDY)
    assert sweep_command([str(study), "--out", str(out), "--trials", "3", "--quiet"], "search", search=True) == 0
    assert len(twinstep.study(out)) == 1 + 3


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (STUDY.replace('["1 MiB", "2 MiB", "2048 KiB", "wrong"]', '["wrong"]'), "all 4 failed"),
        (STUDY + '[[skip]]\n"run.steps" = [2, 4, 6, 8]\n', "skip leaves out all of them"),
    ],
)
def test_a_study_without_a_result_is_said_with_an_exit_code(
    text: str, why: str, search: bool, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play_in_this_process(monkeypatch)
    study.write_text(text)
    words = [str(study), "--out", str(study.parent / "out"), "--quiet"]
    assert sweep_command(words, "sweep", search=search) == 1
    assert capsys.readouterr().err == f"{study}: no point has a result: {why}\n"


@pytest.mark.parametrize(
    ("settings", "size", "all_of_them"),
    [
        (SearchSettings(trials=24), 1_081, False),
        (SearchSettings(trials=24), 24, True),
        (SearchSettings(trials=24, enumerate_below=5_000), 25, False),
        (SearchSettings(), 1_081, True),
        (SearchSettings(), 5_000, False),
        (SearchSettings(enumerate_below=0), 201, False),
        (SearchSettings(enumerate_below=0), 200, True),
    ],
)
def test_trials_are_the_bound_of_a_search(settings: SearchSettings, size: int, all_of_them: bool) -> None:
    assert settings.plays_all(size) == all_of_them


def test_the_command_and_reports_write_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play_in_this_process(monkeypatch)
    (tmp_path / "sizes.toml").write_text(
        'scenario = "all_to_all_4x2"\n[set]\nrun.steps = 3\n[vary]\n"exchange.size" = ["2 MiB", "4 MiB"]\n'
    )
    out = tmp_path / "out"
    words = [str(tmp_path / "sizes.toml"), "--out", str(out), "--jobs", "1"]
    assert sweep_command([*words, "--json"], "sweep") == 0
    assert not (out / "report.html").exists()
    assert sweep_command(words, "sweep") == 0
    assert f"page: {out}/report.html" in capsys.readouterr().out.replace("\n", " ")
    runs = [f'href="{run}/"' for run in twinstep.study(out)["run"]]
    assert len(set(runs)) == 3
    assert f"--set run.steps=3 --set {chr(39)}exchange.size=" in html.unescape((out / "report.html").read_text())
    assert sum(run in (out / "report.html").read_text() for run in runs) == 3
    assert reports_main([str(out), "--out", str(tmp_path / "pages")]) == 0
    page = (tmp_path / "pages" / "out.html").read_text()
    assert all(run.replace('"runs', '"../out/runs') in page for run in runs)
    assert reports_main([str(out), str(out)]) == 2
    assert reports_main([str(out), "--step", "1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{out}: a study; expected no run and no other study beside it",
        "--step 1: expected with a run; a study has no steps",
    ]


@pytest.mark.whole
def test_a_script_is_varied_as_a_scenario_is(tmp_path: Path) -> None:
    """Its ranks are processes that workers start."""
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(3):\n"
        "    dist.all_reduce(torch.ones(1 << 20))\n"
    )
    (tmp_path / "script.toml").write_text(
        'program = "script"\nscript = {path = "train.py", step_every = "all_reduce"}\n'
        'cluster = {profile = "emulated_200mbit", hosts = 2, gpus_per_host = 1}\n'
    )
    (tmp_path / "study.toml").write_text(
        'scenario = "script.toml"\ngoals = ["step_ns"]\nbaseline = false\nvary."cluster.hosts" = [2, 3]\n'
    )
    done = command("sim", "sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--jobs", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["status"] for row in json.loads(done.stdout)["points"]] == ["done", "done"]


def test_mistakes_are_said_before_anything_starts(study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("exchange.size", "exchange.sice"))
    done = command("sim", "sweep", study, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{study}: exchange.sice = '1 MiB': unknown key; expected one of size, splits")
    assert not (tmp_path / "out").exists()
    study.write_text(STUDY + "[constraints]\nstep = {at_most = 3}\n")
    done = command("sim", "search", study, "--out", tmp_path / "out")
    assert done.stderr.startswith(f"{study}: constraints.step: expected a measure: one of world_size, steps, step_ns,")
    study.write_text(STUDY)
    done = command("sim", "search", study, "--trials", "0")
    assert (done.returncode, done.stderr) == (2, "--trials = 0: expected at least 1\n")
    for words, sentence in (
        (["--jobs", "0"], "--jobs = 0: expected at least 1\n"),
        (["--slurm", "x"], "--slurm 'x': expected KEY=VALUE, such as queue=gpu\n"),
        (["--slurm", "queue=a", "--scheduler", "tcp://a:1"], "--scheduler: expected without --slurm, which starts"),
    ):
        done = command("sim", "sweep", study, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(sentence)


def test_a_folder_that_is_no_study_is_left_alone(study: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("mine")
    done = command("sim", "sweep", study, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{tmp_path / 'out'}: expected a study's folder, or a new one\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]
