"""A job of days from its file to its folder, its screen, its page and its JSON."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import twinstep
from reports.errors import ReportError
from reports.job import folder as job_folder
from reports.job.load import load
from sim.job.sample import sample
from tests.commands import command
from tests.twinstep.jobs.small import JOB, write
from tests.twinstep.studies.players import play_in_this_process
from twinstep.__main__ import main
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.job_steps import given_steps


@pytest.fixture(scope="module", autouse=True)
def _few_looks() -> Iterator[None]:
    """Compare intervals, sizes and changes with few simulated jobs each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.job.sample._LOOK", 2)
        patch.setattr("sim.job.sample._LOOKED", 500)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a predicted job, whose file lies beside it."""
    base = tmp_path_factory.mktemp("jobs")
    done = command("sim", write(base), "--out", base / "out")
    assert done.returncode == 0, done.stderr
    return base / "out"


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / job_folder.JOB_FILE).read_text())
    return content


def test_goodput_and_losses_are_all_of_the_time(found: dict[str, Any]) -> None:
    assert found["goodput"] + sum(found["lost"].values()) == pytest.approx(1, abs=1e-9)
    lost = {cause for cause, share in found["lost"].items() if share}
    assert lost == {"evaluation", "checkpoint", "rework", "detection", "replacement", "restart", "restore"}
    assert found["goodput"] < found["goodput_closed_form"] + 0.02


def test_money_is_paid_for_all_hosts_of_all_time(found: dict[str, Any]) -> None:
    assert found["gpu_hours"] == pytest.approx(5 * 8 * 7 * 24)
    assert found["usd"] == pytest.approx(2 * found["gpu_hours"])
    assert found["samples"] == pytest.approx(found["steps"] * 32 * 1000)
    assert found["usd_per_1e9"] == pytest.approx(1e9 * found["usd"] / found["samples"])


def test_a_folder_is_read_as_it_was_written(folder: Path, found: dict[str, Any]) -> None:
    job = load(folder)
    assert isinstance(job, job_folder.JobRun)
    assert job_folder.content(job) == found
    assert len(job.draws) == 20
    assert job.phases["end_s"].iloc[-1] == pytest.approx(7 * 86_400)
    assert (job.phases["begin_s"].iloc[1:].to_numpy() == job.phases["end_s"].iloc[:-1].to_numpy()).all()


def test_a_folder_that_lacks_something_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / job_folder.JOB_FILE).write_text('{"schema_version": 1, "goal": {}}')
    done = command("reports", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"{tmp_path / 'job.json'}: name: missing\n")


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (["goodput_closed_form"], None, "goodput_closed_form = null: expected a number"),
        (["goodput"], math.nan, "goodput = NaN: expected a number"),
        (["hosts"], True, "hosts = true: expected a number"),
        (["checkpoint", "interval_s"], [None], "checkpoint.interval_s = [null]: expected a number"),
        (["kwh"], "x", 'kwh = "x": expected a number or null'),
        (["lost", "rework"], {}, "lost.rework = {}: expected a number"),
        (["failures"], "x", 'failures = "x": expected an object'),
        (["failures", "meteors"], 1.0, "failure_rates.per_day: expected a rate of meteors"),
    ],
)
def test_a_damaged_value_is_a_sentence(
    keys: list[str], value: object, said: str, folder: Path, found: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    content = copy.deepcopy(found)
    inside = content
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    (tmp_path / "job.json").write_text(json.dumps(content))
    with pytest.raises(ReportError) as refusal:
        load(tmp_path)
    assert str(refusal.value) == f"{tmp_path / 'job.json'}: {said}"


@pytest.mark.parametrize(
    ("name", "instead", "said"),
    [
        ("draws", None, "{folder}: damaged: it has no draws.parquet"),
        ("sizes", "intervals", "{folder}/sizes.parquet: column hosts is missing or not a number"),
        ("phases", "draws", "{folder}/phases.parquet: column begin_s is missing or not a number"),
        ("changes", "phases", "{folder}/changes.parquet: column group is missing or not text"),
    ],
)
def test_a_damaged_frame_is_a_sentence(name: str, instead: str | None, said: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    frame = tmp_path / f"{name}.parquet"
    frame.unlink()
    if instead is None:
        frame.mkdir()
    else:
        shutil.copy(folder / f"{instead}.parquet", frame)
    with pytest.raises(ReportError) as refusal:
        load(tmp_path)
    assert str(refusal.value) == said.format(folder=tmp_path)


def test_the_first_screen_is_short_and_the_page_has_every_section(folder: Path) -> None:
    done = command("reports", folder)
    lines = done.stdout.splitlines()
    assert len(lines) <= 32
    assert max(map(len, lines)) <= max(80, len(str(folder)) + 20)
    assert lines[0].startswith("small_job: predicted job of 7 days")
    page = (folder / "report.html").read_text()
    for name in ("verdict", "week", "lost", "help", "intervals", "sizes", "draws"):
        assert f'<section id="{name}"' in page, name


def test_options_replace_the_goal_of_the_file(folder: Path, tmp_path: Path) -> None:
    file = folder.parent / "small_job.toml"
    done = command("sim", file, "--samples", "1e10", "--draws", "5", "--json", "--out", tmp_path / "out")
    found = json.loads(done.stdout)
    assert found["goal"] == {"kind": "samples", "value": 1e10}
    assert found["steps"] == pytest.approx(312_500, abs=1)
    assert found["simulated_jobs"] == 5
    spent = command("sim", file, "--budget", "10_000", "--draws", "5", "--json", "--out", tmp_path / "spent")
    assert json.loads(spent.stdout)["usd"] == pytest.approx(10_000)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--days", "0"), "--days = 0: expected a number above 0\n"),
        (("--days", "1", "--what-if"), "--what-if: expected without a job of days; --step-only leaves the job out\n"),
        (("--step-only", "--days", "1"), "--step-only: expected without --days\n"),
    ],
)
def test_options_without_effect_are_sentences(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = command("sim", write(tmp_path), *words)
    assert (done.returncode, done.stderr) == (2, sentence)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('step = "1 s"', "", "program: missing; expected"),
        ("days = 7", "days = 7\nsamples = 1", "job.days = 7: expected no days beside samples"),
        (
            'name = "software"',
            'name = "hardware"',
            "job.failures.kinds[1].name = 'hardware': expected a name of its own",
        ),
        ('repair = "2 h"', "slow_speed = 0.5", "slow_speed = 0.5: expected no slow_speed without slow_part"),
        ("batch_size = 1000", "", ""),
        ('size = "1 TB", store_rate = "20 GB/s", ', "", "job.checkpoint.size: missing; expected the bytes"),
        (
            'interval = "30 min"',
            'interval = "1 ns"',
            "small_job.toml: job.checkpoint.interval = '1 ns': expected at least a step, which takes 1 s\n",
        ),
        ('interval = "30 min"', 'interval = "1 s"', ""),
        ("days = 7", "days = 7\nfailures.profile = 'lama3_h100'", "expected a profile such as llama3_h100"),
    ],
)
def test_a_job_that_does_not_fit_together_is_a_sentence(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    assert old in JOB
    file = write(tmp_path, JOB.replace(old, new, 1))
    done = command("sim", file, "--draws", "2", "--out", tmp_path / "out")
    assert sentence in done.stderr
    assert done.returncode == (2 if sentence else 0)


def test_workers_change_nothing(tmp_path: Path) -> None:
    scenario = twinstep.scenario(write(tmp_path))
    assert scenario.job is not None
    model = JobModels(scenario, scenario.job, given_steps(scenario, scenario.job)).model()
    long = model.until(horizon_s=400 * 86_400)
    assert sample(long, 100, 3, workers=2) == sample(long, 100, 3)


def test_python_predicts_the_same_job(folder: Path) -> None:
    file = folder.parent / "small_job.toml"
    job = twinstep.job(file)
    assert job.goodput == json.loads((folder / job_folder.JOB_FILE).read_text())["goodput"]
    assert "goodput" in repr(job)
    with pytest.raises(twinstep.ScenarioError, match="samples and days: expected one of them"):
        twinstep.job(file, samples=1, days=2)


def test_a_scenario_without_a_job_has_the_failures_of_a_known_cluster(tmp_path: Path) -> None:
    small = 'program = "powersgd"\ncluster = {profile = "dgx_h100", hosts = 2}\ngradients.shapes = [[64, 64], [64]]\n'
    job = twinstep.job(write(tmp_path, small), days=30)
    assert job.head["failure_rates"]["profile"] == "llama3_h100"
    assert job.head["step_source"] == "predicted"


def test_a_job_without_failures_has_those_of_a_known_cluster(tmp_path: Path) -> None:
    kinds = JOB.index("[[job.failures")
    file = write(tmp_path, JOB[:kinds])
    known, none = (twinstep.job(file, **{"job.draws": 2, **keys}) for keys in ({}, {"job.failures.scale": 0}))
    assert (known.head["failure_rates"]["profile"], none.head["failures"]) == ("llama3_h100", {})
    assert known.head["failures"]


def test_a_checkpoint_of_unknown_bytes_is_said_before_the_step_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = ("--profile", "dgx_h100", "--set", "cluster.gpus_per_host=8", "--set", "run.library='nccl'")
    with pytest.raises(SystemExit, match="2"):
        main(["predict", "all_to_all_4x2", "--days", "1", *profile])
    assert "job.checkpoint.size: missing; expected the bytes of a checkpoint" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/step/*"))


def fail_to_replace(error: BaseException) -> Callable[..., NoReturn]:
    """Return an os.replace that fails."""

    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            OSError(28, "No space left on device"),
            2,
            "{out}/draws.parquet: could not be written: No space left on device",
        ),
        (KeyboardInterrupt(), 130, "interrupted; nothing was written"),
    ],
)
def test_a_job_that_cannot_be_written_leaves_nothing(
    error: BaseException, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = 'program = "powersgd"\ncluster = {profile = "dgx_h100", hosts = 2}\ngradients.shapes = [[64, 64], [64]]\n'
    file, out = write(tmp_path, small), tmp_path / "out"
    monkeypatch.setattr("reports.store.replace.os.replace", fail_to_replace(error))
    done = command("sim", file, "--days", "30", "--draws", "2", "--out", out)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, words.format(out=out))
    assert list(tmp_path.iterdir()) == [file]


def test_changes_of_incremental_checkpoints_have_their_own_best_intervals(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "job.days": 7,
        "job.step": "1 s",
        "job.checkpoint.full_every": 3,
        "job.checkpoint.write": "2 s",
    }
    failures = {"job.failures.profile": "rsc1_a100", "job.failures.scale": 1e5}
    scenario = twinstep.scenario("criteo_small_2x2", **keys, **failures)
    assert scenario.job is not None
    jobs = JobModels(scenario, scenario.job, given_steps(scenario, scenario.job))
    model, quick = jobs.on(), jobs.with_speed(2).best(jobs.model())
    assert quick.interval_steps < model.interval_steps
    assert quick.writing == jobs.timed(quick).writing.quicker(2)
    assert quick.writing.blocks_s[1] < model.writing.blocks_s[1] / 2


def test_a_study_ranks_jobs_by_price_with_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play_in_this_process(monkeypatch)
    write(tmp_path)
    study = tmp_path / "spares.toml"
    study.write_text(
        'scenario = "small_job.toml"\ngoals = ["usd_per_1e9_samples", "days"]\n[vary]\n"job.spare_hosts" = [0, 4]\n'
    )
    done = command("sim", "sweep", study, "--jobs", "1", "--out", tmp_path / "out", "--json")
    points = {point.get("job.spare_hosts"): point for point in json.loads(done.stdout)["points"]}
    assert points[0]["goodput"] < points[4]["goodput"]
    assert points[0]["days"] == points[4]["days"] == pytest.approx(7)
    assert points[4]["usd_per_1e9_samples"] > 0
