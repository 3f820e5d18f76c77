from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given

from reports.analysis.step_breakdown import ADDING_UP, PARTS, parts_of_step, steady_kept, steady_steps, sync_period
from reports.run import Run
from reports.sections.run.headline import sync_words
from scenarios.seam.trace import Recording, Span
from tests.reports.recordings import (
    PATIENT,
    SCENARIO,
    by_hand,
    info,
    recordings,
    span,
    step_of,
    thin,
    with_spans,
)


def test_the_parts_of_a_step_are_means_over_ranks_with_the_worst_one():
    parts = parts_of_step(Run.of(by_hand()), [1, 2])
    # rank 0 computes 0-70 and ends at 95; rank 1 computes 0-60 and 95-100
    expected = [
        ("compute", 67.5, 0.675, 70.0, 0, 1, 70 / 67.5),
        ("exposed transfer", 30.0, 0.3, 35.0, 1, 1, 35 / 30),
        ("step skew", 2.5, 0.025, 5.0, 0, 1, 2.0),
        ("communication", 45.0, 0.45, 55.0, 0, 1, 55 / 45),
        ("hidden communication", 15.0, 0.15, 30.0, 0, 1, 2.0),
        ("exposed communication", 30.0, 0.3, 35.0, 1, 1, 35 / 30),
    ]
    rows = {row[0]: row for row in parts.itertuples(index=False, name=None)}
    for name in ("waiting for other ranks", "idle"):
        absent = rows.pop(name)
        assert absent[1:6] == (0.0, 0.0, 0.0, 0, 1)
        assert math.isnan(absent[6])
    assert list(rows.values()) == expected


@PATIENT
@given(recordings())
def test_disjoint_parts_add_up_to_the_step(recording: Recording):
    run = Run.of(recording)
    kept = steady_kept(run)
    parts = parts_of_step(run, kept).set_index("part")["mean_ns"]
    if len(parts):
        complete = run.steps[run.steps["step"].isin(kept)]
        whole = complete["step_ns"].mean()
        ranks_in_each = complete["ranks"].nunique() == 1 and complete["ranks"].iloc[0] == 3
        if ranks_in_each:
            assert math.isclose(parts[[*ADDING_UP.values()]].sum(), whole, rel_tol=1e-9, abs_tol=1e-6)
        assert math.isclose(parts[PARTS["hidden_ns"]] + parts[PARTS["exposed_ns"]], parts[PARTS["communication_ns"]])


def pipeline(rank: int, start: int, step: int, labels: str) -> list[Span]:
    """A step of one rank that does what letters stand for, 10 ns each."""
    spans = [span(rank, "step", start, start + 10 * len(labels), step=step)]
    for at, label in enumerate(labels):
        began = start + 10 * at
        spans.append(span(rank, "compute", began, began + 10, step=step, sequence=at + 1, label=label))
    return spans


@pytest.mark.parametrize("count", [3, 4, 8])
@pytest.mark.parametrize(
    ("first", "last"),
    [("IIC", "C"), ("I", "C"), ("IC", "C")],
    ids=["filled in the first step", "the first step only fills", "filled before the first step"],
)
def test_the_headline_of_a_pipeline_is_not_the_step_that_drains_it(count: int, first: str, last: str):
    works = [first, *["IC"] * (count - 2), last]
    spans = [
        one for step, work in enumerate(works) for rank in (0, 1) for one in pipeline(rank, 100 * step, step, work)
    ]
    run = Run.of(with_spans(by_hand(), *spans))
    steady = steady_steps(run.steps)
    assert set(steady["step_ns"]) == {20}
    assert set(range(1, count - 1)) <= set(steady["step"]) <= set(range(count - 1))


def replicating(every: int, steps: int, *, batch_size: int = 100, first: Mapping[int, str] = {}) -> Run:
    """Steps of 20 ns on two ranks, of which each `every`-th takes 30 ns more; what the `first` do is given."""
    works = [first.get(step, "IC" + "SSS" * ((step + 1) % every == 0)) for step in range(steps)]
    spans = [
        one for step, work in enumerate(works) for rank in (0, 1) for one in pipeline(rank, 100 * step, step, work)
    ]
    scenario = {**SCENARIO, "batch_size": batch_size, "replication": {"sharding_group_size": 1, "sync_every": every}}
    recording = with_spans(by_hand(), *spans)
    recording.info = info(scenario=scenario)
    return Run.of(recording)


def test_the_headline_is_of_steps_that_do_not_average_though_most_of_the_last_ones_do():
    """Two steps of one kind, then one that begins another: of that kind five average and four do not."""
    run = replicating(2, 12, first={0: "IS", 1: "IS" + "SSS", 2: "ICC"})
    assert [each["step"] for each in run.steps.to_dict("records") if each["steady"]] == [4, 6, 8, 10]


@pytest.mark.parametrize(("every", "steps"), [(2, 2), (2, 5), (3, 3), (4, 13), (5, 9)])
def test_the_mean_over_a_sync_period_has_one_step_that_averages(every: int, steps: int):
    period = sync_period(replicating(every, steps))
    assert period is not None
    assert period.steps == tuple(range(every - 1, steps, every))
    assert (period.every, period.sync_ns) == (every, 50)
    assert period.mean_ns == pytest.approx(20 + 30 / every)
    assert period.samples_per_s == pytest.approx(2 * 100 * 1e9 / period.mean_ns)


def test_the_headline_says_what_averaging_takes():
    run = replicating(5, 11)
    assert steady_steps(run.steps)["step"].tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10]
    assert sync_words(run) == [
        "every 5 steps replicas of tables are averaged: such a step takes 50 ns (steps 4, 9); the mean over 5 is 26 ns,"
        " 7,692,307,692 samples/s"
    ]
    assert sync_words(replicating(5, 4)) == [
        "every 5 steps replicas of tables are averaged, but in no step of this run: expected run.steps of at least 5"
    ]
    assert [sync_words(one) for one in (replicating(1, 3), Run.of(by_hand()))] == [[], []]


def test_steady_steps_are_the_complete_ones_of_the_last_phase():
    spans = [one for step in range(5) for one in step_of(100 * step, step, compressed=step >= 2)]
    spans = [one for one in spans if (one.step, one.rank, one.kind) != (4, 1, "step")]
    assert steady_steps(Run.of(with_spans(by_hand(), *spans)).steps)["step"].tolist() == [2, 3]
    assert steady_kept(Run.of(thin(steps=(2,)))) == [2]
    assert steady_kept(Run.of(with_spans(by_hand()))) == []
    assert len(parts_of_step(Run.of(with_spans(by_hand())), [])) == 0
