"""The sweep with players that need no time, in this process: what becomes a row, and what is not played again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.errors import ReportError
from reports.study.frame import study_frame
from reports.study.rows import open_rows, stored_rows
from tests.twinstep.studies.players import play_in_this_process, quick
from twinstep.studies.engine import Died, Where
from twinstep.studies.study_file import Study, StudyStage, read_study
from twinstep.studies.sweep import Sweep, choose_points
from twinstep.studies.task import Result, Task

STUDY = """
scenario = "criteo_dlrm_2x4"
[vary]
"cluster.hosts" = [2, 4, 1]
"run.batch_size" = [1024, 13, 17, 0]
"""


class Watched:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.rows = 0

    def stage(self, words: str, total: int) -> None:
        self.stages.append((words, total))

    def count_ended(self, row: object) -> None:
        self.rows += 1

    def tick(self, workers: int) -> None:
        pass


@pytest.fixture(autouse=True)
def without_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play_in_this_process(monkeypatch)
    monkeypatch.chdir(tmp_path)


def run_sweep(text: str, player: Callable[[Task], Any] = quick, *, again: bool = False) -> tuple[Study, Sweep]:
    Path("study.toml").write_text(text)
    study = read_study("study.toml")
    about = {
        "keys": study.keys,
        "goals": {"samples_per_s": "most"},
        "stages": [one.fidelity for one in study.stages],
        "version": "1",
    }
    with open_rows(Path("out"), about, b"", {key: study.values_of(key) for key in study.keys}, again=again) as rows:
        sweep = Sweep(study, rows, Where(jobs=1), Watched(), player, version="1")
        rows.finish(sweep.run())
    return study, sweep


def test_failed_points_are_rows_with_kind_and_sentence() -> None:
    _, sweep = run_sweep(STUDY)
    frame = study_frame(Path("out")).set_index("index")
    assert len(frame) == 13
    ends = frame.groupby("run.batch_size", dropna=False)["status"].unique().map(list).to_dict()
    assert ends[1024] == ["done"]
    assert ends[13] == ["scenario error"]
    assert ends[17] == ["program error"]
    assert frame.loc[2, "sentence"] == "rank 3: 90 GiB: expected at most 80 GiB"
    assert frame.loc[4, "sentence"] == "study.toml: run.batch_size = 0: expected a whole number of at least 1"
    assert frame.loc[0, "status"] == "done"
    assert sweep.played == 10  # what cannot be loaded is not played


def test_no_point_is_simulated_twice() -> None:
    run_sweep(STUDY)
    first = study_frame(Path("out"))
    _, sweep = run_sweep(STUDY)
    assert sweep.played == 0
    assert study_frame(Path("out")).equals(first)
    _, sweep = run_sweep(STUDY.replace("[2, 4, 1]", "[8, 4, 2]"))
    assert sweep.played == 3
    frame = study_frame(Path("out"))
    assert len(frame) == 13
    assert frame.loc[frame["run.batch_size"] == 1024, "cluster.hosts"].tolist() == [8, 4, 2]
    assert {row["index"] for row in stored_rows(Path("out"))} >= {-1}
    _, sweep = run_sweep(STUDY)
    assert sweep.played == 0


def test_points_of_one_digest_are_played_once() -> None:
    text = STUDY.replace("[1024, 13, 17, 0]", "[8192]").replace("[2, 4, 1]", "[2, 4]")
    _, sweep = run_sweep(text + '"cluster.nic.rate" = ["400 Gbit/s", "50 GB/s"]\n')
    frame = study_frame(Path("out"))
    assert sweep.played == 2
    assert frame["played"].tolist() == [True, False, False, True, False]
    assert frame["digest"].nunique() == 2
    assert frame.groupby("digest")["step_ns"].nunique().tolist() == [1, 1]


@pytest.mark.parametrize("ends_at", [1, 3, 6])
def test_an_interrupted_sweep_goes_on_where_it_stopped(ends_at: int) -> None:
    played: list[Task] = []

    def interrupt(task: Task) -> Result:
        if len(played) == ends_at:
            raise KeyboardInterrupt
        played.append(task)
        return quick(task)

    with pytest.raises(KeyboardInterrupt):
        run_sweep(STUDY, interrupt)
    assert (study_frame(Path("out"))["played"].sum()) == ends_at
    _, sweep = run_sweep(STUDY)
    assert sweep.played == 10 - ends_at
    assert len(study_frame(Path("out"))) == 13


def test_a_full_disk_ends_the_sweep_with_a_sentence_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, written = os.replace, 0

    def full(draft: Path, path: Path) -> None:
        nonlocal written
        if "part-" in path.name:
            written += 1
            if written > 4:
                raise OSError(errno.ENOSPC, "No space left on device")
        whole(draft, path)

    with monkeypatch.context() as filled:
        filled.setattr(os, "replace", full)
        with pytest.raises(ReportError, match=r"^out/rows/part-00000005.parquet: could not be written: No space left"):
            run_sweep(STUDY)
    assert len(list(Path("out/rows").iterdir())) == 4
    played = int(study_frame(Path("out"))["played"].sum())
    _, sweep = run_sweep(STUDY)
    assert sweep.played == 10 - played
    assert len(study_frame(Path("out"))) == 13


def test_a_worker_that_is_lost_is_a_row_that_can_be_played_again() -> None:
    def lose(task: Task) -> Any:
        return Died("3 workers died of it") if task.scenario.run.batch_size == 17 else quick(task)

    run_sweep(STUDY, lose)
    frame = study_frame(Path("out"))
    assert set(frame.loc[frame["status"] == "worker lost", "sentence"]) == {"3 workers died of it"}
    assert run_sweep(STUDY)[1].played == 0
    assert run_sweep(STUDY, again=True)[1].played == 3


def test_stages_pass_the_best_on_and_the_baseline() -> None:
    stages = '[[stages]]\nfidelity = "estimate"\nkeep = 2\n[[stages]]\nfidelity = "links"\nkeep = 0.4\n'
    stages += '[[stages]]\nfidelity = "flows"\n'
    text = STUDY.replace("[1024, 13, 17, 0]", "[1024, 13]")
    _, sweep = run_sweep(text + stages)
    assert isinstance(sweep.watch, Watched)
    assert sweep.watch.stages == [("stage 1: estimate", 7), ("stage 2: links", 3), ("stage 3: flows", 2)]
    frame = study_frame(Path("out")).set_index("index")
    # More ranks process more samples: 4 hosts, then 2; each has the baseline's step or a longer one.
    assert frame.loc[frame["fidelity"] == "flows"].index.tolist()[0] == 0
    assert len(frame) == 7
    assert len(study_frame(Path("out"), stages=True)) == 7 + 3 + 2
    assert run_sweep(text + stages)[1].played == 0


def test_stage_without_successful_points_is_the_last() -> None:
    stages = '[[stages]]\nfidelity = "links"\nkeep = 2\n[[stages]]\nfidelity = "flows"\n'
    text = "baseline = false\n" + STUDY.replace("[1024, 13, 17, 0]", "[13, 17]") + stages
    assert run_sweep(text)[1].played == 6
    frame = study_frame(Path("out"))
    assert frame["status"].tolist() == ["scenario error", "program error"] * 3
    assert (frame["fidelity"] == "links").all()


def test_several_goals_and_constraints_choose_whole_fronts_first() -> None:
    rates = {1: (100.0, 8), 2: (300.0, 16), 3: (90.0, 8), 4: (300.0, 24), 5: (400.0, 32), 6: (500.0, 64)}
    rows = [
        {"index": at, "status": "done", "values": {}, "samples_per_s": rate, "world_size": gpus}
        for at, (rate, gpus) in rates.items()
    ]
    text = STUDY.replace(
        "[vary]", 'goals = ["samples_per_s", "world_size"]\n[constraints]\nworld_size = {at_most = 32}\n[vary]', 1
    )
    Path("study.toml").write_text(text)
    study = read_study("study.toml")

    def keep(count: int) -> list[int]:
        return [point.index for point in choose_points(rows, StudyStage("links", count), study)]

    assert [keep(count) for count in (1, 3, 4, 5, 6)] == [[5], [1, 2, 5], [1, 2, 4, 5], [1, 2, 3, 4, 5], list(rates)]
