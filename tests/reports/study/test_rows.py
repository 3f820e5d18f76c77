from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from reports.errors import ReportError
from reports.json_document import document
from reports.sections.study import STUDY, StudyView, failures, headline, notes, plans
from reports.study import rows as rowing
from reports.study.frame import Goal, best_first, front_of, goals_of, pareto, short_names, study_frame
from reports.study.rows import open_rows, parts_of, stored_rows
from reports.terminal import text
from reports.terminal.render import render_report

ABOUT = {
    "keys": ["a.x", "b"],
    "as_it_is": {"a.x": 77},
    "goals": {"samples_per_s": "most"},
    "stages": [""],
    "version": "1",
}
VALUES: Mapping[str, list[object]] = {"a.x": [1, 2, 3], "b": ["nccl", ["row_wise"]]}


def render(frame: pd.DataFrame, about: Mapping[str, Any]) -> str:
    return text.as_text(render_report(STUDY, StudyView(frame, about)))


def row(index: int, **more: Any) -> dict[str, Any]:
    point = {
        **{
            "index": index,
            "digest": f"d{index}",
            "fidelity": "flows",
            "status": "done",
            "sentence": "",
            "seconds": 1.0,
        },
        **{"played": True, "version": "1", "run": "", "worker": "", "values": {"a.x": index, "b": "nccl"}},
        **{
            "step_ns": 1e6 * index,
            "samples_per_s": 1e9 / max(index, 1),
            "exposed_share": 0.25,
            "memory_spare_bytes": 2.0**30,
        },
    }
    return point | more


def keep(folder: Path, *rows: dict[str, Any], about: Mapping[str, Any] = ABOUT) -> None:
    with open_rows(folder, about, b"", VALUES) as data:
        for one in rows:
            data.add(one)


def test_the_data_set_is_one_table_for_every_reader(tmp_path: Path) -> None:
    keep(tmp_path / "s", row(1), row(2, values={"b": ["row_wise"]}), row(3))
    table = pq.read_table(tmp_path / "s" / "rows").to_pandas()
    assert table["a.x"].tolist()[0] == 1
    assert table["b"].tolist() == ["nccl", '["row_wise"]', "nccl"]
    frame = study_frame(tmp_path / "s")
    assert frame["a.x"].tolist() == [1, pd.NA, 3]
    assert frame.columns[:3].tolist() == ["index", "a.x", "b"]
    assert frame["step_ns"].tolist() == [1e6, 2e6, 3e6]


def test_points_whose_tables_lie_elsewhere_than_in_the_baseline_are_counted(tmp_path: Path) -> None:
    keep(tmp_path / "s", row(0, plan="a"), row(1, plan="a"), row(2, plan="b"), row(3, plan="c"), row(4))
    said = plans(study_frame(tmp_path / "s"))
    assert said.startswith(
        "Tables are placed differently than in the baseline in 2 of 3 points: the planner plans each"
    )
    keep(tmp_path / "alike", row(0, plan="a"), row(1, plan="a"))
    assert plans(study_frame(tmp_path / "alike")) == ""


def test_points_that_may_not_mean_what_they_seem_are_noted_once(tmp_path: Path) -> None:
    said = "a.toml: nothing is compressed in 3 steps"
    keep(tmp_path / "s", row(0), row(1, sentence=said), row(2, sentence=said), row(3, sentence="odd", status="error"))
    frame = study_frame(tmp_path / "s")
    assert notes(frame) == [f"note: 2 points, such as #1: {said}"]
    assert failures(frame)["sentence"].tolist() == ["odd"]


def test_rows_of_a_release_that_did_not_know_a_column_are_read(tmp_path: Path) -> None:
    keep(tmp_path / "s", row(1, plan="a"))
    (path,) = parts_of(tmp_path / "s")
    pq.write_table(pq.read_table(path).drop_columns(["plan", "step_ns"]), path)
    frame = study_frame(tmp_path / "s")
    assert frame[["plan", "step_ns"]].isna().all(axis=None)
    assert plans(frame) == ""


def test_small_files_are_put_together_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowing, "_LOOSE", 4)
    keep(tmp_path / "s", *(row(index) for index in range(1, 11)))
    assert len(parts_of(tmp_path / "s")) == 4
    assert study_frame(tmp_path / "s")["index"].tolist() == list(range(1, 11))
    keep(tmp_path / "s", row(11))
    assert len(stored_rows(tmp_path / "s")) == 11


def test_a_command_that_was_killed_leaves_drafts_that_the_next_one_removes(tmp_path: Path) -> None:
    keep(tmp_path / "s", row(1))
    (tmp_path / "s" / "rows" / ".part-00000002.parquet.ab.partial").write_bytes(b"PAR1")
    keep(tmp_path / "s", row(2))
    assert sorted(path.name for path in (tmp_path / "s" / "rows").iterdir()) == [
        "part-00000001.parquet",
        "part-00000002.parquet",
    ]


def test_rows_of_another_release_are_played_again(tmp_path: Path) -> None:
    keep(tmp_path / "s", row(1))
    with open_rows(tmp_path / "s", {**ABOUT, "version": "2"}, b"", VALUES) as data:
        assert data.find_row("d1", "flows") is None
    with open_rows(tmp_path / "s", ABOUT, b"", VALUES) as data:
        assert data.find_row("d1", "flows") == {
            **(data.find_row("d1", "flows") or {}),
            "values": {"a.x": 1, "b": "nccl"},
        }
        assert data.find_row("d1", "links") is None


def test_a_run_folder_is_unpacked_whole_and_in_place_of_an_earlier_one(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo("run.json")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    with open_rows(tmp_path / "s", ABOUT, b"", VALUES) as data:
        for _ in range(2):
            assert data.add_folder("d" * 64, "flows", content.getvalue()) == f"runs/{'d' * 16}-flows"
    assert [path.name for path in (tmp_path / "s" / "runs").iterdir()] == [f"{'d' * 16}-flows"]
    assert (tmp_path / "s" / "runs" / f"{'d' * 16}-flows" / "run.json").read_text() == "{}"


def test_folders_that_are_none_and_files_that_are_damaged_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ReportError, match=r"other: expected a study's folder, or a new one$"):
        keep(tmp_path / "other")
    with pytest.raises(ReportError, match=r"none: no such study; expected a folder of 'twinstep sweep'$"):
        study_frame(tmp_path / "none")
    keep(tmp_path / "s", row(1))
    parts_of(tmp_path / "s")[0].write_bytes(b"PAR1")
    with pytest.raises(ReportError, match=r"part-00000001.parquet: not a readable Parquet file"):
        study_frame(tmp_path / "s")


def test_two_commands_do_not_add_to_one_study(tmp_path: Path) -> None:
    with open_rows(tmp_path / "s", ABOUT, b"", VALUES), pytest.raises(ReportError, match="another command is adding"):
        keep(tmp_path / "s")


def test_the_best_stand_first_and_failures_are_grouped_by_their_sentence(tmp_path: Path) -> None:
    sentence = "rank {}: {} GiB: expected at most 80 GiB"
    bad = [
        row(
            index,
            status="scenario error",
            sentence=sentence.format(index, 90 + index),
            step_ns=None,
            samples_per_s=None,
        )
        for index in (2, 5, 6)
    ]
    baseline = row(0, values={}, step_ns=4e6, samples_per_s=1e9 / 4)
    keep(tmp_path / "s", baseline, row(1), row(3), *bad, row(4, status="timed out", sentence="expected to end"))
    frame = study_frame(tmp_path / "s")
    assert best_first(frame, Goal("samples_per_s", most=True))["index"].tolist() == [1, 3, 0]
    assert best_first(frame, Goal("step_ns", most=False))["index"].tolist() == [1, 3, 0]
    grouped = failures(frame)
    assert grouped["points"].tolist() == [3, 1]
    assert grouped["sentence"].tolist() == ["rank 2: 92 GiB: expected at most 80 GiB", "expected to end"]
    shown = render(frame, ABOUT)
    assert "6 points; 4 failed" in shown
    assert "+300.0 %" in shown
    assert "baseline  77" in shown
    assert "3 x scenario error, such as #2: rank 2: 92 GiB" in shown
    content = document(STUDY, StudyView(frame, ABOUT, "s"))
    assert content["best"] == [1, 3, 0]
    assert content["points"][0]["a.x"] is None
    assert len(content["points"]) == 7


def test_points_within_the_uncertainty_of_the_best_are_told(tmp_path: Path) -> None:
    times = {1: 1.0e6, 2: 1.04e6, 3: 1.06e6}
    points = [row(index, step_ns=ns, samples_per_s=1e9 / ns, uncertainty_share=0.05) for index, ns in times.items()]
    keep(tmp_path / "s", *points)
    frame = study_frame(tmp_path / "s")
    assert document(STUDY, StudyView(frame, ABOUT, "s"))["within_bar"] == [1, 2]
    assert "Points within the uncertainty of the best (±5.0 %): 2 (#1, #2)" in render(frame, ABOUT)
    by_memory = {**ABOUT, "goals": {"memory_spare_bytes": "most"}}
    assert document(STUDY, StudyView(frame, by_memory, "s"))["within_bar"] == []
    keep(tmp_path / "unknown", row(1))
    unknown = study_frame(tmp_path / "unknown")
    assert document(STUDY, StudyView(unknown, ABOUT, "s"))["within_bar"] == []
    assert "The uncertainty is unknown" in render(unknown, ABOUT)


def test_points_without_samples_are_called_better_by_their_steps(tmp_path: Path) -> None:
    keep(tmp_path / "s", row(1, samples_per_s=None), row(2, samples_per_s=None))
    frame = study_frame(tmp_path / "s")
    assert goals_of(frame, ABOUT) == [Goal("step_ns", most=False)]
    assert "#1" in render(frame, ABOUT)


def test_of_stages_the_last_counts(tmp_path: Path) -> None:
    keep(
        tmp_path / "s", row(1, fidelity="estimate"), row(2, fidelity="estimate"), row(2, step_ns=9e9, samples_per_s=1.0)
    )
    frame = study_frame(tmp_path / "s")
    assert frame["fidelity"].tolist() == ["estimate", "flows"]
    assert best_first(frame, Goal("samples_per_s", most=True), ["estimate", "flows"])["index"].tolist() == [2]
    assert len(study_frame(tmp_path / "s", stages=True)) == 3


def test_the_pareto_front_is_what_nothing_is_better_than_in_every_goal(tmp_path: Path) -> None:
    points = {1: (100.0, 8), 2: (300.0, 16), 3: (90.0, 8), 4: (300.0, 24), 5: (100.0, 8), 6: (400.0, 32), 7: (None, 1)}
    keep(tmp_path / "s", *(row(at, samples_per_s=rate, world_size=gpus) for at, (rate, gpus) in points.items()))
    goals = [Goal("samples_per_s", most=True), Goal("world_size", most=False)]
    assert pareto(study_frame(tmp_path / "s"), goals)["index"].tolist() == [6, 2, 1]
    assert pareto(study_frame(tmp_path / "s"), goals[:1])["index"].tolist() == [6]


def test_names_are_as_short_as_they_can_be_told_apart() -> None:
    assert short_names(["cluster.nic.rate", "cluster.inside.rate", "cluster.hosts"]) == {
        "cluster.nic.rate": "nic.rate",
        "cluster.inside.rate": "inside.rate",
        "cluster.hosts": "hosts",
    }


def test_points_that_break_a_constraint_are_marked_and_are_none_of_the_best(tmp_path: Path) -> None:
    about = {**ABOUT, "goals": {"samples_per_s": "most", "world_size": "least"}}
    about["constraints"] = {"memory_spare_bytes": {"at_least": 2.0**30}, "step_ns": {"above": 1e6, "at_most": 5e6}}
    rows = [row(index, world_size=8.0 - index) for index in range(1, 7)]
    rows[2]["memory_spare_bytes"] = 2.0**30 - 1
    rows[3]["memory_spare_bytes"] = float("nan")
    rows[4] = {**rows[4], "status": "error", "sentence": "x"}
    keep(tmp_path / "s", *rows, about=about)
    frame = study_frame(tmp_path / "s")
    assert frame["feasible"].tolist() == [False, True, False, False, False, False]
    assert front_of(frame, about)["index"].tolist() == [2]
    assert document(STUDY, StudyView(frame, about, ""))["front"] == [2]
    assert headline(frame) == "6 points; 1 failed; 1 of 5 satisfy the constraints"
    free = {**about, "constraints": {}}
    assert front_of(frame, free)["index"].tolist() == [1, 2, 3, 4, 6]
    words = render(frame, free)
    assert "Pareto front of samples/s and GPUs (fidelity flows)" in words
