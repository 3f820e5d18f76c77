from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from reports.compare.checks import METRIC_TOLERANCE
from reports.compare.comparison import compare
from reports.run import Run
from reports.sections.comparison import typical_and_worst
from scenarios.seam.trace import Recording, Span
from tests.reports.recordings import SCENARIO, by_hand, thin, with_spans
from tests.reports.refusals import refusal
from tests.reports.test_document import read_documented


def stretch(recording: Recording, factor: int) -> list[Span]:
    """Return every moment `factor` times as late."""
    moments = [field.name for field in dataclasses.fields(Span) if field.name.endswith("_ns")]
    return [
        dataclasses.replace(one, **{name: getattr(one, name) * factor for name in moments}) for one in recording.spans
    ]


def real(**changes: Any) -> Recording:
    return by_hand(world="real", **changes)


def check(sim: Recording, measured: Recording, at: int):
    return compare(Run.of(sim), Run.of(measured)).checks[at]


def refuse(sim: Recording, measured: Recording) -> str:
    return refusal(compare, Run.of(sim), Run.of(measured))


def test_errors_are_signed_and_relative_to_what_was_measured():
    measured = with_spans(real(), *stretch(by_hand(), 4))
    comparison = compare(Run.of(by_hand()), Run.of(measured))
    assert comparison.steps["predicted_ns"].tolist() == [100.0, 100.0, 100.0]
    assert comparison.steps["measured_ns"].tolist() == [400.0, 400.0, 400.0]
    assert comparison.steps["error"].tolist() == [-0.75, -0.75, -0.75]
    assert set(comparison.operations["error"]) == {-0.75}
    assert typical_and_worst(comparison.operations) == (0.75, -0.75)


def test_the_worst_error_keeps_its_sign():
    run = compare(Run.of(by_hand()), Run.of(real()))
    assert typical_and_worst(run.steps.assign(error=[0.1, -0.4, np.nan])) == (0.25, -0.4)
    assert all(np.isnan(value) for value in typical_and_worst(run.steps.assign(error=np.nan)))


def test_an_operation_of_one_side_only_is_shown_without_an_error():
    measured = with_spans(real(), *(one for one in by_hand().spans if one.label != "update"))
    rows = compare(Run.of(by_hand()), Run.of(measured)).operations.set_index("label")
    assert rows.loc["update", "predicted_ns"] == 5.0
    assert rows.loc[["update"], ["measured_ns", "error"]].isna().all(axis=None)
    assert rows.loc["forward", "error"] == 0.0


def test_a_real_run_given_first_is_still_the_measured_one():
    comparison = compare(Run.of(real()), Run.of(by_hand()))
    assert (comparison.predicted.info.world, comparison.measured.info.world) == ("sim", "real")


def test_equal_runs_agree_in_every_check():
    checks = compare(Run.of(by_hand()), Run.of(real())).checks
    assert [one.agrees for one in checks] == [True, True, True]
    assert [one.compared for one in checks] == [18, 2, 6]


def test_spans_left_out_on_purpose_are_not_compared():
    checks = [check(thin(), real(), at) for at in range(3)]
    assert [one.agrees for one in checks] == [True] * 3
    assert checks[0].compared == 6  # three operations of rank 1 in two steps
    unsaid = dataclasses.replace(thin(), info=by_hand().info)
    assert not check(unsaid, real(), 0).agrees


def test_other_bytes_are_found():
    spans = by_hand().spans
    at = next(index for index, one in enumerate(spans) if one.kind == "all_reduce" and one.rank == 1)
    spans[at] = dataclasses.replace(spans[at], bytes_sent=999)
    found = check(by_hand(), with_spans(real(), *spans), 0)
    assert not found.agrees
    assert found.differences[["rank", "step", "label", "predicted_bytes_sent", "measured_bytes_sent"]].to_dict(
        "records"
    ) == [{"rank": 1, "step": 0, "label": "gradients", "predicted_bytes_sent": 1000.0, "measured_bytes_sent": 999.0}]


def test_an_operation_that_one_side_lacks_differs_in_bytes_and_order():
    fewer = [one for one in by_hand().spans if not (one.label == "update" and one.step == 2)]
    bytes_check, order_check, _ = compare(Run.of(by_hand()), Run.of(with_spans(real(), *fewer))).checks
    assert bytes_check.differences[["rank", "step", "label"]].to_dict("records") == [
        {"rank": 1, "step": 2, "label": "update"}
    ]
    assert order_check.differences.to_dict("records") == [
        {
            "rank": 1,
            "stream": "main",
            "position": 8,
            "predicted": "compute 'update' of step 2",
            "measured": "nothing",
        }
    ]


def test_order_goes_by_sequence_and_not_by_time():
    assert check(by_hand(), with_spans(real(), *reversed(by_hand().spans)), 1).agrees
    swapped = {1: 3, 3: 1}
    spans = [
        dataclasses.replace(one, sequence=swapped.get(one.sequence, one.sequence)) if one.rank == 0 else one
        for one in by_hand().spans
    ]
    found = check(by_hand(), with_spans(real(), *spans), 1)
    assert found.differences[["rank", "position", "predicted", "measured"]].to_dict("records") == [
        {
            "rank": 0,
            "position": 0,
            "predicted": "compute 'forward' of step 0",
            "measured": "compute 'backward' of step 0",
        }
    ]


def metrics(recording: Recording, *values: float) -> Recording:
    kept = [dataclasses.replace(one, value=value) for one, value in zip(recording.metrics, values, strict=False)]
    return dataclasses.replace(recording, metrics=kept)


@pytest.mark.parametrize(
    ("predicted", "measured", "agrees"),
    [
        (1.0, 1.0 + 0.5 * METRIC_TOLERANCE, True),
        (1.0, 1.0 + 2 * METRIC_TOLERANCE, False),
        (0.0, 0.0, True),
        (0.0, 1e-30, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
    ],
)
def test_recorded_numbers_agree_within_the_tolerance(predicted, measured, agrees):
    assert check(metrics(by_hand(), predicted), metrics(real(), measured), 2).agrees is agrees


def test_a_number_that_one_side_lacks_is_a_difference():
    found = check(metrics(by_hand(), 0.5, 0.5), metrics(real(), 0.5), 2)
    assert found.compared == 2
    assert found.differences[["rank", "step", "name"]].to_dict("records") == [{"rank": 1, "step": 0, "name": "loss"}]


def test_a_run_that_recorded_nothing_is_not_said_to_agree():
    found = check(metrics(by_hand()), real(), 2)
    assert (found.agrees, found.compared, found.reason) == (False, 0, "the simulated run recorded none")


def test_a_rank_that_stands_for_others_is_compared_with_itself():
    alone = [dataclasses.replace(one, rank_count=2) for one in by_hand().spans if one.rank == 0]
    checks = compare(Run.of(with_spans(by_hand(), *alone)), Run.of(real())).checks
    assert [one.agrees for one in checks] == [True, True, True]
    assert [one.compared for one in checks] == [9, 1, 3]


def test_runs_of_different_scenarios_are_refused_with_the_first_keys_that_differ():
    other = copy.deepcopy(SCENARIO)
    other["cluster"]["hosts"] = 8
    other["model"]["tables"][1]["rows"] = 30
    other["path"], other["payload"] = "elsewhere.toml", "sizes"
    other["batch_size"], other["library"] = None, "nccl"
    assert refuse(by_hand(), real(digest="d2", name="other", scenario=other)) == (
        "runs of different scenarios, 'by_hand' and 'other'; they differ in cluster.hosts (2 and 8),"
        " run.batch_size (64 and none), run.library (gloo and nccl) and 1 more"
    )


def test_runs_whose_scenarios_look_alike_differ_by_their_digests():
    assert refuse(by_hand(), real(digest="d2")) == (
        "runs of different scenarios, 'by_hand' and 'by_hand'; their digests differ"
    )


def test_slow_parts_are_not_among_what_makes_scenarios_differ():
    """The digest leaves them out."""
    slow, other = copy.deepcopy(SCENARIO), copy.deepcopy(SCENARIO)
    slow["cluster"]["faults"] = [{"part": {"host": 0, "gpu": 3}, "speed": 0.5}]
    other["name"] = "other"
    assert refuse(by_hand(scenario=slow), real(digest="d2", name="other", scenario=other)) == (
        "runs of different scenarios, 'by_hand' and 'other'; they differ in name (by_hand and other)"
    )


def of_ids(bytes_sent: int, dtype: str = "int64") -> list[Span]:
    """Return the spans of `by_hand`, in which rank 1 has so many bytes of ids to give in step 0."""
    return [
        dataclasses.replace(one, bytes_sent=bytes_sent, dtype=dtype)
        if (one.kind, one.rank, one.step) == ("all_reduce", 1, 0)
        else one
        for one in by_hand().spans
    ]


EXPECTED = {"scenario": {**SCENARIO, "ranks": "alike"}}


def test_expected_numbers_of_ids_are_said_to_be_why_bytes_differ():
    drawn, expected = with_spans(by_hand(), *of_ids(800)), with_spans(by_hand(**EXPECTED), *of_ids(1000))
    comparison = compare(Run.of(expected), Run.of(drawn), any_worlds=True)
    printed = " ".join(repr(comparison).split())
    assert (
        "Different bytes per operation and rank: 1 of 18 compared, by 20.0 % at most, as the predicted run has"
        " expected instead of sampled id counts. Same order"
    ) in printed
    found = comparison.checks[0]
    assert (found.agrees, len(found.differences), found.worst) == (False, 1, pytest.approx(0.2))
    turned = compare(Run.of(drawn), Run.of(expected), any_worlds=True).checks[0]
    assert turned.reason == "the measured run has expected instead of sampled id counts"
    against_real = check(expected, with_spans(real(**EXPECTED), *of_ids(800)), 0)
    assert against_real.reason, "a real run draws them, whatever a prediction of it would"


@pytest.mark.parametrize(
    ("predicted", "measured", "scenarios"),
    [
        (of_ids(1000), of_ids(800), ({}, {})),
        (of_ids(1000), of_ids(800), (EXPECTED, EXPECTED)),
        (of_ids(1000), of_ids(800), ({"scenario": {**EXPECTED["scenario"], "model": None}}, {})),
        (of_ids(1000, "float32"), of_ids(800, "float32"), (EXPECTED, {})),
        (of_ids(1000), of_ids(800, "float32"), (EXPECTED, {})),
        (of_ids(1000), [one for one in of_ids(800) if one.label != "update"], (EXPECTED, {})),
    ],
    ids=["both drawn", "both expected", "no tables", "no ids", "ids on one side", "an operation that one side lacks"],
)
def test_where_more_than_numbers_of_ids_differs_it_is_shouted(predicted, measured, scenarios):
    sides = [with_spans(by_hand(**one), *spans) for one, spans in zip(scenarios, (predicted, measured), strict=True)]
    comparison = compare(*map(Run.of, sides), any_worlds=True)
    assert comparison.checks[0].reason == ""
    assert "DIFFERENT bytes per operation and rank: " in repr(comparison)


def test_two_runs_of_the_same_world_are_refused_unless_asked_for():
    assert refuse(by_hand(), by_hand()) == (
        "both runs of 'by_hand' are simulated ones, expected a simulated and a real one;"
        " --any compares them all the same"
    )
    assert compare(Run.of(by_hand()), Run.of(by_hand()), any_worlds=True).steps["error"].tolist() == [0.0, 0.0, 0.0]


def test_every_column_of_a_comparison_is_documented():
    common = {"predicted_ns", "measured_ns", "error"}
    for name, frame in compare(Run.of(by_hand()), Run.of(real())).frames().items():
        listed = set(read_documented("comparison.csv", name))
        assert listed <= set(frame.columns) <= listed | common


def test_printed_it_shows_the_errors_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    sim = by_hand()
    found = compare(Run.of(sim), Run.of(dataclasses.replace(real(), spans=stretch(real(), 2))))
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if line.startswith(("step ", "operation "))]
    assert len(heads) == 3
    assert all("predicted  measured    error" in head for head in heads)
    assert "-50.0 %" in str(found)
