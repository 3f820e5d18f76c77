from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare.calls import (
    CALL_ERRORS,
    ERRORS_BY_SIZE,
    call_errors,
    calls_of_both,
    classes,
    errors_by_size,
    size_range,
)
from reports.compare.comparison import compare
from reports.run import Run
from scenarios.seam.trace import Recording, Span
from tests.reports.recordings import PATIENT, by_hand, recordings, span, thin, with_spans
from tests.reports.store.test_parts import both


def of_calls(*calls: tuple[str, int, int], world: str = "sim") -> Recording:
    """Rank 0 in step 0: calls of a kind, with so many bytes to send, that take so long, one after the other."""
    spans, now = [], 0
    for sequence, (kind, size_bytes, took) in enumerate(calls, start=1):
        sent = {"bytes_in": size_bytes, "bytes_out": size_bytes, "bytes_sent": size_bytes}
        spans.append(span(0, kind, now, now + took, sequence=sequence, label="exchange", **sent))
        now += took
    return with_spans(by_hand(world=world), span(0, "step", 0, now), *spans)


def rows(predicted: Recording, measured: Recording) -> list[dict[Any, Any]]:
    calls = call_errors(calls_of_both(Run.of(predicted), Run.of(measured)))
    columns = ["kind", "size_from_bytes", "size_until_bytes", "predicted_count", "measured_count", "error"]
    return calls[columns].replace({np.nan: None}).to_dict("records")


def row(kind: str, size: tuple[int, int], counts: tuple[int, int], error: Any) -> dict[str, object]:
    names = ["size_from_bytes", "size_until_bytes", "predicted_count", "measured_count"]
    return {"kind": kind, **dict(zip(names, (*size, *counts), strict=True)), "error": error}


def test_small_messages_too_quick_and_large_ones_right_are_told_apart():
    predicted = of_calls(("all_reduce", 64, 80), ("all_reduce", 100, 80), ("all_reduce", 1 << 20, 500))
    measured = of_calls(("all_reduce", 64, 90), ("all_reduce", 100, 110), ("all_reduce", 1 << 20, 500), world="real")
    assert rows(predicted, measured) == [
        row("all_reduce", (64, 128), (2, 2), pytest.approx(-0.2)),
        row("all_reduce", (1 << 20, 1 << 21), (1, 1), 0.0),
    ]


def test_a_size_class_has_its_lower_end_and_not_its_upper_one():
    sizes = [0, 1, 2, 3, 4, (1 << 40) - 1, 1 << 40]
    found = call_errors(calls_of_both(*[Run.of(of_calls(*(("send", size, 10) for size in sizes)))] * 2))
    assert list(zip(found["size_from_bytes"], found["size_until_bytes"], found["predicted_count"], strict=True)) == [
        (0, 1, 1), (1, 2, 1), (2, 4, 2), (4, 8, 1), (1 << 39, 1 << 40, 1), (1 << 40, 1 << 41, 1)
    ]  # fmt: skip


def test_size_is_received_bytes_for_receivers_and_touched_bytes_for_computations():
    spans = [
        span(0, "recv", 0, 5, bytes_out=64),
        span(0, "compute", 5, 9, bytes_in=1, bytes_out=1, bytes_read=96.0, bytes_written=32.0),
        span(0, "barrier", 9, 10),
    ]
    run = Run.of(with_spans(by_hand(), *spans))
    assert calls_of_both(run, run).predicted["size_bytes"].tolist() == [64, 128, 0]


def test_a_size_that_one_side_lacks_has_no_error():
    found = rows(of_calls(("send", 64, 10)), of_calls(("send", 8, 10), world="real"))
    assert found == [row("send", (8, 16), (0, 1), None), row("send", (64, 128), (1, 0), None)]


def test_a_rank_that_stands_for_others_counts_as_often():
    spans = [
        span(0, "send", 0, 10, label="a", rank_count=3, bytes_sent=8),
        span(1, "send", 0, 50, label="a", bytes_sent=8),
    ]
    run = Run.of(with_spans(by_hand(), *spans))
    found = call_errors(calls_of_both(run, run))
    assert found[["predicted_count", "predicted_ns"]].to_numpy().tolist() == [[4, 10.0]]


@PATIENT
@given(recordings())
def test_every_operation_inside_a_step_is_counted_once_and_a_run_agrees_with_itself(recording):
    run = Run.of(recording)
    found = call_errors(calls_of_both(run, run))
    inside = sum(one.rank_count for one in recording.spans if one.kind != "step" and one.step >= 0)
    assert found["predicted_count"].sum() == found["measured_count"].sum() == inside
    assert set(found["error"].dropna()) <= {0.0}


def test_spans_left_out_of_either_run_are_in_neither_table():
    both = calls_of_both(Run.of(thin()), Run.of(by_hand(world="real")))
    assert both.predicted.equals(both.measured)
    assert sorted(set(zip(both.measured["rank"], both.measured["step"], strict=True))) == [(1, 1), (1, 2)]


def test_errors_by_kind_and_size_count_each_operation_once():
    def relabel(recording: Recording, *labels: str) -> Recording:
        names = ["", *labels]
        return with_spans(
            recording, *(dataclasses.replace(one, label=names[at]) for at, one in enumerate(recording.spans))
        )

    predicted = relabel(of_calls(("send", 8, 50), ("send", 8, 90), ("send", 8, 110)), "a", "b", "c")
    measured = relabel(of_calls(*[("send", 8, 100)] * 3, world="real"), "a", "b", "c")
    calls = call_errors(calls_of_both(Run.of(predicted), Run.of(measured)))
    assert errors_by_size(calls).to_dict("records") == [
        {
            "part": "communication",
            "kind": "send",
            "size_from_bytes": 8,
            "size_until_bytes": 16,
            "rows": 3,
            "signed_median": pytest.approx(-0.1),
            "median": pytest.approx(0.1),
            "worst": pytest.approx(-0.5),
        }
    ]
    assert errors_by_size(calls, by="part")["kind"].tolist() == [""]


def test_operations_have_the_medians_of_their_runs_and_where_80_percent_lie():
    spans: list[Span] = []
    for rank, took in enumerate([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 1000]):
        spans += [span(rank, "step", 0, 1000), span(rank, "compute", 0, took, label="a")]
    run = Run.of(with_spans(by_hand(world_size=11), *spans))
    (found,) = compare(run, Run.of(with_spans(by_hand(world="real", world_size=1), *spans[:2]))).operations.to_dict(
        "records"
    )
    assert [found[f"predicted_{name}"] for name in ("low_ns", "ns", "high_ns")] == [20.0, 60.0, 100.0]
    assert [found[f"measured_{name}"] for name in ("low_ns", "ns", "high_ns")] == [10.0, 10.0, 10.0]
    assert (found["error"], found["error_of_step"]) == (5.0, 0.05)


@pytest.mark.slow
@PATIENT
@given(recordings())
def test_medians_of_operations_are_those_of_the_run(recording):
    run = Run.of(recording)
    found = compare(run, run, any_worlds=True).operations.sort_values(["kind", "label", "stream"])
    assert found["predicted_ns"].tolist() == run.operations["median_ns"].tolist()
    assert (found["predicted_low_ns"] <= found["predicted_ns"]).all()
    assert (found["predicted_ns"] <= found["predicted_high_ns"]).all()


def test_with_nothing_in_common_there_are_columns_and_no_rows():
    nothing = Run.of(with_spans(by_hand()))
    found = compare(nothing, Run.of(with_spans(by_hand(world="real"))))
    kinds = {"int": "int64", "float": "float64"}
    for frame, columns in ((found.calls, CALL_ERRORS), (found.errors_by_size, ERRORS_BY_SIZE)):
        assert len(frame) == 0
        expected = {name: kinds[kind] for name, kind in columns.items() if kind in kinds}
        assert {name: str(frame[name].dtype) for name in expected} == expected
        assert list(frame) == list(columns)
    printed = repr(found)
    assert "Errors by size: no operation of one size is in both runs." in printed


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((0, 1), "0 B"),
        ((1, 2), "1-2 B"),
        ((256, 4096), "256 B-4 KiB"),
        ((4096, 65536), "4-64 KiB"),
        ((1 << 40, 1 << 41), "1-2 TiB"),
        ((1 << 52, 1 << 53), "4096-8192 TiB"),
    ],
)
def test_size_classes_in_words(size, words):
    assert size_range(*size) == words


def test_the_terminal_shows_classes_a_factor_of_16_wide():
    sizes = [0, 1, 15, 16, 255, 256]
    run = Run.of(of_calls(*(("send", size, 10) for size in sizes)))
    wide = classes(call_errors(calls_of_both(run, run)))
    assert wide[["size_from_bytes", "size_until_bytes"]].to_numpy().tolist() == [
        [0, 1], [1, 16], [1, 16], [16, 256], [16, 256], [256, 4096]
    ]  # fmt: skip


@pytest.mark.slow
@PATIENT
@given(recordings(), st.integers(1, 20), st.integers(1, 20))
def test_a_part_at_a_time_says_what_the_whole_says(tmp_path_factory, recording, part_rows, group_rows):
    whole, parted = both(recording, tmp_path_factory.mktemp("parts") / "run", part_rows, group_rows)
    frames, found = (compare(run, whole, any_worlds=True).frames() for run in (whole, parted))
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(found[name], frame)
