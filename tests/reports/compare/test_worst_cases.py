from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given

from reports.compare.calls import MOST, MOST_OF_ONE, WORST, calls_of_both, worst_cases
from reports.compare.comparison import compare
from reports.json_document import document
from reports.run import Run
from reports.sections.comparison import COMPARISON, CompareView
from scenarios.seam.trace import Recording
from tests.reports.recordings import PATIENT, by_hand, recordings, span, thin, with_spans


def worst(predicted: Recording, measured: Recording):
    sides = Run.of(predicted), Run.of(measured)
    return worst_cases(calls_of_both(*sides), sides[1].steps)


def of_labels(*calls: tuple[str, int], rank: int = 0, world: str = "sim", step: int = 0) -> Recording:
    spans, now = [span(rank, "step", 0, 1000, step=step)], 0
    for sequence, (label, took) in enumerate(calls, start=1):
        spans.append(span(rank, "compute", now, now + took, sequence=sequence, label=label, step=step))
        now += took
    return with_spans(by_hand(world=world), *spans)


def both(*recordings: Recording) -> Recording:
    return with_spans(recordings[0], *(one for recording in recordings for one in recording.spans))


def test_a_case_says_where_it_is_and_what_it_makes_of_the_measured_step():
    found = worst(of_labels(("a", 10), ("b", 30)), of_labels(("a", 10), ("b", 80), world="real"))
    assert found.iloc[0].to_dict() == {
        "rank": 0,
        "step": 0,
        "kind": "compute",
        "label": "b",
        "stream": "main",
        "call": 0,
        "predicted_start_ns": 10,
        "predicted_end_ns": 40,
        "measured_start_ns": 10,
        "measured_end_ns": 90,
        "predicted_ns": 30,
        "measured_ns": 80,
        "difference_ns": -50,
        "error": -0.625,
        "error_of_step": -0.05,
    }


def test_the_furthest_apart_comes_first_whatever_its_sign():
    found = worst(
        of_labels(("a", 10), ("b", 90), ("c", 10)),
        of_labels(("a", 10), ("b", 20), ("c", 50), world="real"),
    )
    assert found["label"].tolist() == ["b", "c", "a"]
    assert found["difference_ns"].tolist() == [70, -40, 0]


def test_calls_are_paired_by_their_place_and_not_by_time():
    measured = of_labels(("a", 10), ("a", 30), world="real")
    turned = with_spans(measured, *reversed(measured.spans))
    assert worst(of_labels(("a", 10), ("a", 30)), turned)["difference_ns"].tolist() == [0, 0]


def test_of_one_call_the_rank_that_is_furthest_apart_counts():
    predicted = both(of_labels(("a", 10)), of_labels(("a", 10), rank=1))
    measured = both(of_labels(("a", 30), world="real"), of_labels(("a", 70), rank=1))
    assert worst(predicted, measured)[["rank", "difference_ns"]].to_numpy().tolist() == [[1, -60]]


def test_no_operation_takes_all_the_places():
    same = [("a", 500 + at) for at in range(MOST_OF_ONE + 2)]
    found = worst(of_labels(*same, ("b", 2)), of_labels(*(("a", 1) for _ in same), ("b", 1), world="real"))
    assert found["label"].tolist() == ["a"] * MOST_OF_ONE + ["b"]
    assert found["predicted_ns"].tolist() == [504, 503, 502, 2]


def test_there_are_so_many_at_most():
    calls = [(f"operation {at}", at) for at in range(MOST + 5)]
    assert len(worst(of_labels(*calls), of_labels(*calls, world="real"))) == MOST


def test_operations_of_only_one_run_are_not_paired():
    other_step = of_labels(("a", 10), step=1, world="real")
    assert len(worst(of_labels(("a", 10)), other_step)) == 0
    other_rank = of_labels(("a", 10), rank=1, world="real")
    assert len(worst(of_labels(("a", 10)), other_rank)) == 0
    longer = both(of_labels(("a", 10), world="real"), other_step)
    assert worst(of_labels(("a", 10)), longer)["step"].tolist() == [0]
    left_out = worst(thin(), by_hand(world="real"))
    assert set(zip(left_out["rank"], left_out["step"], strict=True)) <= {(1, 1), (1, 2)}


def test_with_nothing_in_common_there_are_columns_and_no_rows():
    found = worst(with_spans(by_hand()), with_spans(by_hand(world="real")))
    assert (len(found), list(found)) == (0, list(WORST))
    assert {str(found[name].dtype) for name, kind in WORST.items() if kind == "int"} == {"int64"}


@pytest.mark.slow
@PATIENT
@given(recordings(), recordings())
def test_any_two_runs_can_be_paired(one, other):
    found = worst(one, other)
    assert len(found) <= MOST
    assert (found.groupby(["kind", "label"]).size() <= MOST_OF_ONE).all()
    sizes = found["difference_ns"].abs()
    assert sizes.tolist() == sorted(sizes, reverse=True)
    times = {(span.rank, span.step, span.kind, span.start_ns, span.end_ns) for span in one.spans}
    columns = ["rank", "step", "kind", "predicted_start_ns", "predicted_end_ns"]
    assert {*found[columns].itertuples(index=False, name=None)} <= times


def test_the_terminal_and_scripts_have_them():
    measured = by_hand(world="real")
    slower = [
        dataclasses.replace(one, end_ns=one.end_ns + 7) if one.label == "update" else one for one in measured.spans
    ]
    comparison = compare(Run.of(by_hand()), Run.of(with_spans(measured, *slower)))
    printed = repr(comparison)
    shown = [" ".join(line.split()) for line in printed.splitlines() if "-7.0 %" in line]
    assert shown == [f"update 1 {step} 5 ns 12 ns -58.3 % -7.0 %" for step in range(3)]
    assert max(map(len, printed.splitlines())) <= 80
    written = document(COMPARISON, CompareView(comparison))
    assert written["worst"][0]["difference_ns"] == -7
    assert written["calls"]["worst_error"] == pytest.approx(-7 / 12)
    assert [row["kind"] for row in written["errors_by_size"]] == ["all_reduce", "compute"]
