from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.analysis.step_breakdown import PARTS, parts_of_step, steady_kept
from reports.run import Run
from reports.side_by_side.frames import (
    CHANGES,
    SideBySide,
    names_of,
    operations,
    plans,
    results,
    settings,
    side_by_side,
)
from scenarios.seam.trace import Recording
from tests.reports.recordings import SCENARIO, by_hand, info, span, step_of, thin, with_spans

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "runs.md").read_text(encoding="utf-8")


def change(scenario: dict[str, Any] | None = None, **changes: Any) -> Recording:
    """`by_hand` as asked for otherwise."""
    return by_hand(scenario={**SCENARIO, **(scenario or {})}, **changes)


def slower() -> Recording:
    """Twice as long in everything, with an operation more and one less."""
    doubled = [
        dataclasses.replace(
            one,
            label={"update": "other update"}.get(one.label, one.label),
            **{name: 2 * getattr(one, name) for name in ("issued_ns", "start_ns", "end_ns")},
        )
        for step in range(3)
        for one in step_of(100 * step, step, compressed=step > 0)
    ]
    return with_spans(change({"batch_size": 128}, name="slower"), *doubled)


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


def of(*recordings: Recording) -> SideBySide:
    return side_by_side([(f"run{at}", Run.of(one)) for at, one in enumerate(recordings)])


def test_settings_are_those_that_differ():
    other = change({"batch_size": 128, "library": "nccl", "path": "other.toml"}, world="real", seed=8)
    frame, same = settings([("one", Run.of(by_hand())), ("two", Run.of(other))])
    assert rows(frame, "run", "key", "value", "is_base", "differs") == [
        ("one", "world", "predicted", True, False),
        ("two", "world", "measured", False, True),
        ("one", "run.batch_size", "64", True, False),
        ("two", "run.batch_size", "128", False, True),
        ("one", "run.library", "gloo", True, False),
        ("two", "run.library", "nccl", False, True),
        ("one", "run.seed", "7", True, False),
        ("two", "run.seed", "8", False, True),
    ]
    # world_size, name, hosts, gpus, payload, fidelity, rows of two tables, python
    assert same == 9


def test_tables_are_known_by_their_names_and_a_branch_that_a_run_lacks_is_one_key():
    def tables(*each: dict[str, Any]) -> dict[str, Any]:
        return {"model": {"tables": list(each)}}

    one = change(tables({"name": "t0", "rows": 10}, {"name": "t1", "rows": 20, "ids": {"kind": "zipf"}}))
    two = change(tables({"name": "t0", "rows": 11}))
    frame, _ = settings([("one", Run.of(one)), ("two", Run.of(two))])
    assert rows(frame, "key", "pattern", "value") == [
        ("model.tables[1]", "model.tables[1]", "rows 20, ids kind zipf"),
        ("model.tables[1]", "model.tables[1]", ""),
        ("model.tables[0].rows", "model.tables[*].rows", "10"),
        ("model.tables[0].rows", "model.tables[*].rows", "11"),
    ]
    none = change({"model": None})
    frame, _ = settings([(name, Run.of(run)) for name, run in (("one", one), ("none", none), ("two", two))])
    values = frame.groupby("key", sort=False)["value"].agg(list).to_dict()
    assert values == {
        "model": ["given", "", "given"],
        "model.tables[0].rows": ["10", "", "11"],
    }


def test_versions_come_last_and_what_nobody_says_is_no_difference():
    other = change({"compression": None, "new": 1}, versions={"python": "3.13"})
    frame, _ = settings([("one", Run.of(by_hand())), ("two", Run.of(other))])
    assert rows(frame[frame["run"] == "two"], "key", "value") == [("new", "1"), ("versions.python", "3.13")]


def test_results_are_the_runs_own_numbers_and_their_changes():
    frame = of(by_hand(), slower()).results
    assert rows(frame, "run", "name", "world", "world_size", "steps", "link_class") == [
        ("run0", "by_hand", "sim", 2, 2, "nic"),
        ("run1", "slower", "sim", 2, 2, "nic"),
    ]
    numbers = ["step_ns", "samples_per_s", "compute_ns", "exposed_ns", "idle_ns", "skew_ns", "bytes_sent"]
    assert rows(frame, *numbers) == [
        (100.0, 1.28e9, 67.5, 30.0, 0.0, 2.5, 1000.0),
        (200.0, 1.28e9, 135.0, 60.0, 0.0, 5.0, 1000.0),
    ]
    assert rows(frame, "memory_bytes", "compute_over_mean", "ids_over_mean") == [(12288.0, 70 / 67.5, 1.5)] * 2
    # a link carries as much in twice the time
    assert frame["link_utilisation"].tolist() == [0.5, 0.25]
    assert rows(frame, "step_change", "samples_change", "exposed_change", "sent_change", "link_change") == [
        (0.0, 0.0, 0.0, 0.0, 0.0),
        (1.0, 0.0, 1.0, 0.0, -0.5),
    ]
    assert frame["idle_change"].isna().all(), "nothing is a share of 0"


def test_results_agree_with_the_parts_of_a_step():
    for recording in (by_hand(), slower()):
        run = Run.of(recording)
        parts = parts_of_step(run, steady_kept(run))
        own = results([("it", run)], parts.assign(run="it"))
        assert own[[*PARTS]].iloc[0].tolist() == parts["mean_ns"].tolist()


def test_operations_are_joined_and_the_largest_change_comes_first():
    frame = of(by_hand(), slower()).operations
    assert rows(frame, "run", "label", "median_ns", "change_ns", "calls_per_step") == [
        ("run0", "forward", 50.0, 0.0, 1.0),
        ("run1", "forward", 100.0, 50.0, 1.0),
        ("run0", "compressed gradients", 45.0, 0.0, 1.0),
        ("run1", "compressed gradients", 90.0, 45.0, 1.0),
        ("run0", "backward", 30.0, 0.0, 1.0),
        ("run1", "backward", 60.0, 30.0, 1.0),
        ("run0", "other update", 0.0, 0.0, 0.0),
        ("run1", "other update", 10.0, 10.0, 1.0),
        ("run0", "update", 5.0, 0.0, 1.0),
        ("run1", "update", 0.0, -5.0, 0.0),
    ]
    exposed = frame[frame["label"] == "compressed gradients"]
    assert rows(exposed, "exposed_ns", "exposed_change_ns") == [(30.0, 0.0), (60.0, 30.0)]


def test_a_run_without_spans_has_no_operations_and_changes_are_against_the_first_that_has():
    frame = of(thin(ranks=(), steps=()), by_hand(), slower()).operations
    assert rows(frame.head(2), "run", "label", "change_ns") == [("run1", "forward", 0.0), ("run2", "forward", 50.0)]
    assert len(operations([])) == 0
    assert operations([]).dtypes.equals(frame.dtypes)


def test_plans_are_of_tables_that_are_placed_elsewhere():
    other = by_hand()
    other.plan = [
        dataclasses.replace(other.plan[0], rank=1, storage_bytes=5000),
        dataclasses.replace(other.plan[0], rank=0, shard=1),
        other.plan[1],
        dataclasses.replace(other.plan[1], table="t2", sharding_type="row_wise"),
    ]
    runs = [("one", Run.of(by_hand())), ("two", Run.of(other)), ("none", Run.of(with_plan()))]
    frame, same = plans(runs)
    assert same == 1
    assert list(frame.itertuples(index=False, name=None)) == [
        ("one", "t0", "table_wise", "0", 1, 1, 4096),
        ("two", "t0", "table_wise", "0-1", 2, 2, 9096),
        ("one", "t2", "", "", 0, 0, 0),
        ("two", "t2", "row_wise", "1", 1, 1, 8192),
    ]
    assert [len(one) if isinstance(one, pd.DataFrame) else one for one in plans(runs[::2])] == [0, 2]


def with_plan() -> Recording:
    """Return a recording without a plan."""
    recording = by_hand()
    recording.plan = []
    return recording


def test_the_runs_own_frames_are_under_each_other():
    both = of(by_hand(), slower())
    assert rows(both.memory, "run", "rank", "part", "size_bytes") == [
        (name, 1, part, size)
        for name in ("run0", "run1")
        for part, size in (("embedding weights", 8192), ("activations", 4096))
    ]
    for name in ("steps", "link_classes", "imbalance"):
        whole = getattr(both, name)
        for run, own in both.runs:
            mine = whole[whole["run"] == run].drop(columns="run").reset_index(drop=True)
            pd.testing.assert_frame_equal(mine, getattr(own, name))


@pytest.mark.parametrize(
    "bare",
    [
        Recording(info=info()),
        Recording(info=info(scenario={}, world="real"), spans=[span(0, "step", 0, 0)]),
        Recording(info=info(complete=False), spans=[span(0, "compute", 0, 5)]),
    ],
    ids=["nothing", "a step of no time", "no step"],
)
def test_a_run_may_have_next_to_nothing(bare):
    whole = of(by_hand(), slower())
    for runs in ((by_hand(), bare), (bare, by_hand()), (bare, bare), (bare,)):
        mixed = of(*runs)
        assert mixed.results["run"].tolist() == [f"run{at}" for at in range(len(runs))]
        for name, frame in mixed.frames().items():
            assert frame.dtypes.equals(whole.frames()[name].dtypes), name


def test_a_run_against_itself_differs_in_nothing():
    both = of(by_hand(), by_hand())
    assert (len(both.settings), len(both.plans), both.same_tables) == (0, 0, 2)
    changes = both.results[list(CHANGES.values())].to_numpy(float).ravel()
    assert all(change == 0 or math.isnan(change) for change in changes)
    assert (both.operations["change_ns"] == 0).all()


def test_names_are_those_of_folders_made_unique(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "b" / "other", tmp_path / "b" / "run"]
    assert names_of(paths) == ["a/run", "b/run", "other", "b/run (2)"]
    assert names_of([tmp_path / "a" / ".." / "x"]) == ["x"]


def test_every_column_is_documented():
    chapter = DOCUMENT.split("\n## Several runs\n")[1].split("\n## ")[0]
    paragraphs = re.findall(r"- \*\*`(\w+)`\*\*:((?:.|\n)*?)(?=\n- \*\*`|\n\n)", chapter)
    for name, paragraph in paragraphs:
        listed = re.sub(r"\([^()]*(?:\([^()]*\)[^()]*)*\)", "", paragraph.split(". ")[0])
        columns = re.findall(r"`(\w+)`", listed)
        assert columns == list(getattr(of(by_hand()), name).columns), name
    assert [name for name, _ in paragraphs] == ["settings", "results", "parts", "operations", "plans"]
