"""Searches with a player that needs no time, in this process: what Optuna asks for, and what is not played again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.errors import ReportError
from reports.study.frame import front_of, study_frame
from reports.study.rows import about_of, open_rows
from scenarios.seam.errors import ScenarioError
from tests.twinstep.studies.players import play_in_this_process
from tests.twinstep.studies.test_sweep import Watched
from twinstep.studies.engine import Where
from twinstep.studies.goals import GOALS
from twinstep.studies.search.journal import JOURNAL, OptunaSource
from twinstep.studies.study_file import read_study
from twinstep.studies.sweep import Sweep
from twinstep.studies.task import Result, Task

# 3,000 points, of which the best are those of most steps and hosts, whatever the seed and the payload. The law of
# `player` takes steps for samples, as a scenario without tables is quick to load.
STUDY = """
scenario = "all_to_all_4x2"
goals = ["samples_per_s"]
[vary]
"cluster.hosts" = {from = 2, to = 11, step = 1}
"run.steps" = [13, 17, 1024, 2048, 4096, 16384]
"run.seed" = {from = 1, to = 25, step = 1}
"run.payload" = ["values", "sizes"]
"exchange.skew" = {values = [0.1, 0.2], only_if = {"run.payload" = "sizes"}}
[[skip]]
"cluster.hosts" = 4
[search]
trials = 40
enumerate_below = 0
"""
SHORT = STUDY.replace("trials = 40", "trials = 16")


@pytest.fixture(autouse=True)
def without_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play_in_this_process(monkeypatch)
    monkeypatch.chdir(tmp_path)


def player(task: Task) -> Result:
    """More hosts and samples make a step longer, but by less than they add; 13 or 17 samples come to nothing."""
    hosts, samples = task.scenario.cluster.hosts, task.scenario.run.steps
    if samples in (13, 17):
        return Result(status="scenario error", sentence=f"{samples}: expected to fit")
    step_ns = 4e6 + 4e5 * hosts + 100.0 * samples
    measures = {"step_ns": step_ns, "samples_per_s": 4e9 * hosts * samples / step_ns, "world_size": 4.0 * hosts}
    return Result(status="done", measures=measures)


class Counting:
    """A player that knows what it has played, and may be interrupted at one of its calls."""

    def __init__(self, ends_at: int = -1) -> None:
        self.played: list[dict[str, Any]] = []
        self._ends_at = ends_at

    def __call__(self, task: Task) -> Result:
        if len(self.played) == self._ends_at:
            raise KeyboardInterrupt
        self.played.append(task.scenario.as_dict())
        return player(task)


def search(
    text: str = STUDY,
    play: Callable[[Task], Any] = player,
    out: str = "out",
    proposals: tuple[Mapping[str, object], ...] = (),
) -> pd.DataFrame:
    Path("study.toml").write_text(text)
    study = read_study("study.toml")
    about = {
        "keys": study.keys,
        "goals": {goal: "most" if GOALS[goal] else "least" for goal in study.goals},
        "constraints": study.constraints,
        "stages": [""],
        "version": "1",
    }
    with open_rows(Path(out), about, b"", {key: study.values_of(key) for key in study.keys}) as rows:
        source = OptunaSource(study, Path(out), "1", proposals)
        rows.finish(Sweep(study, rows, Where(jobs=1), Watched(), play, source, version="1").run())
    return study_frame(Path(out))


def test_a_search_of_few_points_finds_the_best_ones_and_plays_none_twice() -> None:
    counting = Counting()
    frame = search(play=counting)
    assert frame["index"].tolist() == list(range(41))
    assert frame["digest"].is_unique
    assert len(counting.played) == 41
    best = frame.iloc[frame["samples_per_s"].argmax()]
    assert best[["run.steps", "cluster.hosts"]].tolist() == [16384, 11]
    assert 4 not in frame["cluster.hosts"].dropna().tolist()  # skipped


def test_several_goals_with_a_constraint_and_ends_that_are_none() -> None:
    text = STUDY.replace('["samples_per_s"]', '["samples_per_s", "world_size"]').replace("trials = 40", "trials = 60")
    frame = search(text + "[constraints]\nstep_ns = {at_most = 7.7e6}\n")
    front = front_of(frame, about_of(Path("out")))
    assert front["feasible"].all()
    assert front["run.steps"].tolist() == [16384] * 3
    assert front["cluster.hosts"].tolist() == [5, 3, 2]
    # Of points at random three of five would come out and keep the constraint.
    assert frame.loc[frame["index"] > 30, "feasible"].mean() > 0.7


def test_search_repeats_with_one_worker_and_seed() -> None:
    search(SHORT, out="a")
    search(SHORT, out="b")
    assert study_frame(Path("a")).drop(columns="seconds").equals(study_frame(Path("b")).drop(columns="seconds"))
    other = search(f"{SHORT}seed = 1\n", out="c")
    assert not other["digest"].equals(study_frame(Path("a"))["digest"])


@pytest.mark.parametrize("ends_at", [0, 7])
def test_an_interrupted_search_goes_on_where_it_stopped(ends_at: int) -> None:
    first, second, third = Counting(ends_at), Counting(5), Counting()
    with pytest.raises(KeyboardInterrupt):
        search(SHORT, first)
    before = study_frame(Path("out"))
    with Path("out", JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code":5,"wor')  # the command was killed while it wrote
    with pytest.raises(KeyboardInterrupt):
        search(SHORT, second)
    frame = search(SHORT, third)
    assert [len(one.played) for one in (first, second, third)] == [ends_at, 5, 17 - ends_at - 5]
    assert frame["index"].tolist() == list(range(17))
    assert frame["digest"].is_unique
    assert frame["digest"].tolist()[:ends_at] == before["digest"].tolist()
    again = Counting()
    assert search(SHORT, again).equals(frame)
    assert again.played == []


def test_more_trials_go_on_and_a_changed_study_takes_what_it_knows() -> None:
    frame = search(SHORT)
    more = Counting()
    longer = search(SHORT.replace("trials = 16", "trials = 24"), more)
    assert len(more.played) == 8
    assert longer.head(17).equals(frame)
    changed = Counting()
    frame = search(SHORT.replace("16384]", "16384, 32768]"), changed)
    assert len(changed.played) == len(set(frame["digest"]) - set(longer["digest"])) < len(frame) - 1


def test_unloadable_points_do_not_end_a_search() -> None:
    frame = search(SHORT.replace("[13, 17,", "[0, -3,"))
    assert len(frame) == 17
    assert frame.loc[frame["status"] == "scenario error", "sentence"].str.contains("run.steps = ").all()


def test_exhausted_space_ends_the_search() -> None:
    text = STUDY.replace("{from = 1, to = 25, step = 1}", "[1]").replace("[13, 17, 1024, 2048, 4096, 16384]", "[16384]")
    frame = search(text)  # 9 numbers of hosts, each with values, and with sizes skewed by 0.1 or 0.2
    assert len(frame) == 28
    assert frame["digest"].is_unique


def test_proposals_are_the_first_points_and_the_sampler_chooses_what_they_leave_open() -> None:
    frame = search(SHORT, proposals=({"cluster.hosts": 7, "run.steps": 2048, "run.seed": 999}, {"cluster.hosts": 10}))
    assert frame[["cluster.hosts", "run.steps"]].iloc[1].tolist() == [7, 2048]
    assert frame.loc[2, "cluster.hosts"] == 10


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("optuna.storages.journal._file.os.fsync", full)
    with pytest.raises((ScenarioError, ReportError), match="could not be written: No space left on device"):
        search()
