"""Regret, ranks and pairs of few points, against what is worked out by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.json_document import document
from reports.sections.regret import REGRET, RegretView, shortlists
from reports.study.regret import judged_points, regret_by_value, regret_of
from reports.terminal import text
from reports.terminal.render import render_report

KEYS = ["a.x", "b"]


def predict(*samples_per_s: float, **more: Any) -> pd.DataFrame:
    """Points 1, 2, ... of digests d1, d2, ..."""
    count = len(samples_per_s)
    return pd.DataFrame(
        {
            "index": range(1, count + 1),
            "a.x": [1 + at % 2 for at in range(count)],
            "b": "gloo",
            "digest": [f"d{at}" for at in range(1, count + 1)],
            "fidelity": "flows",
            "status": "done",
            "samples_per_s": samples_per_s,
            "step_ns": [1e12 / one for one in samples_per_s],
        }
        | more
    )


def round_of(point: int, samples_per_s: float, number: int = 1, status: str = "done") -> dict[str, Any]:
    of = {"digest": f"d{point}", "fidelity": f"round {number}", "status": status}
    return {**of, "samples_per_s": samples_per_s, "step_ns": 1e12 / samples_per_s}


def points_of(ours: list[float], theirs: list[float]) -> pd.DataFrame:
    rounds = [round_of(at, one) for at, one in enumerate(theirs, 1)]
    return judged_points(predict(*ours), rounds, KEYS, "samples_per_s")


def test_regret_is_how_much_longer_the_predicted_best_takes_as_measured() -> None:
    found = regret_of(points_of([100, 400, 300, 50], [100, 200, 250, 50]))
    assert (found.predicted_best, found.measured_best, found.point_count) == (2, 3, 4)
    assert found.regret == pytest.approx(250 / 200 - 1)
    assert found.errors.worst == pytest.approx(200 / 400 - 1)  # of time
    assert (found.spearman, found.kendall) == (pytest.approx(0.8), pytest.approx(4 / 6))  # one of six pairs is wrong
    assert regret_of(points_of([1, 2, 3], [1, 2, 3])).regret == 0


def test_only_pairs_that_differ_by_more_are_counted_and_equal_predictions_are_no_choice() -> None:
    """As measured 100, 106 and 112: differences of 6, 12 and 5.66 %."""
    right = regret_of(points_of([1, 2, 3], [100, 106, 112]))
    assert [(one.difference, one.count, one.right) for one in right.pairs] == [(0.05, 3, 3), (0.1, 1, 1)]
    turned = regret_of(points_of([3, 2, 3], [100, 106, 112]))
    assert [(one.count, one.right, one.share) for one in turned.pairs] == [(3, 1, 1 / 3), (1, 0, 0)]
    alike = regret_of(points_of([1, 2], [100, 104]))
    assert [one.count for one in alike.pairs] == [0, 0]
    assert math.isnan(alike.pairs[0].share)


def test_ranks_of_points_that_are_all_alike_say_nothing() -> None:
    found = regret_of(points_of([1, 1, 1], [1, 2, 3]))
    assert math.isnan(found.kendall)
    assert math.isnan(found.spearman)
    assert document(REGRET, RegretView(points_of([1, 1], [1, 2]), KEYS, "samples_per_s"))["kendall"] is None


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=2, max_size=12))
def test_kendall_counts_pairs_and_regret_is_never_negative(both: list[tuple[int, int]]) -> None:
    ours, theirs = ([float(one) for one in side] for side in zip(*both, strict=True))
    found = regret_of(points_of(ours, theirs))
    pairs = list(itertools.combinations(both, 2))
    products = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in pairs]
    untied = [sum(a[side] != b[side] for a, b in pairs) for side in (0, 1)]
    whole = math.sqrt(untied[0] * untied[1])
    balance = sum(one > 0 for one in products) - sum(one < 0 for one in products)
    assert found.kendall == pytest.approx(balance / whole if whole else math.nan, nan_ok=True)
    assert found.regret >= 0
    assert regret_of(points_of(theirs, theirs)).regret == 0


def test_a_points_time_is_the_median_of_its_rounds_and_one_scenario_counts_once() -> None:
    frame = predict(100, 200, 300, 400, 500, digest=["d1", "d1", "d3", "d4", "d5"])
    frame.loc[frame["index"] == 4, "status"] = "error"
    rounds = [
        *(round_of(1, 100), round_of(1, 80, 2), round_of(1, 125, 3), round_of(3, 100), round_of(3, 1, 2, "error")),
        *(round_of(4, 100), round_of(5, 100, status="error"), round_of(9, 100)),
    ]
    points = judged_points(frame, rounds, KEYS, "samples_per_s")
    assert points["index"].tolist() == [1, 3]
    assert points["rounds"].tolist() == [3, 1]
    assert points["measured_ns"].tolist() == [1e7, 1e7]
    assert points["disagreement"].tolist() == [pytest.approx((125 - 80) / 2 / 100), 0]
    assert points["error"].tolist() == [pytest.approx(0), pytest.approx(-2 / 3)]
    steps = judged_points(frame, rounds, KEYS, "step_ns")
    assert steps["measured_ns"].tolist() == [1e10, 1e10]


def test_regret_where_a_value_is_given() -> None:
    """Of x = 1 the points 1 and 3, of x = 2 the points 2 and 4; all have the same b."""
    points = points_of([100, 400, 90, 50], [100, 200, 125, 50])
    found = regret_by_value(points, KEYS)
    assert found.to_dict("records") == [
        {"key": "a.x", "value": "1", "point_count": 2, "regret": 0.25, "predicted_best": 1, "measured_best": 3},
        {"key": "a.x", "value": "2", "point_count": 2, "regret": 0.0, "predicted_best": 2, "measured_best": 2},
    ]


def test_whole_values_stay_whole_beside_the_scenarios_own() -> None:
    points = points_of([100, 400, 90, 50, 70], [100, 200, 125, 50, 70])
    points["a.x"] = pd.array([3, 3, 4, 4, None], dtype="Int64")
    assert regret_by_value(points, KEYS)["value"].tolist() == ["3", "4"]


def test_a_longer_shortlist_has_less_regret() -> None:
    """By prediction the order is 2, 3, 1, 4; as measured 3 is best, 2 takes a quarter longer."""
    found = shortlists(points_of([100, 400, 300, 50], [100, 200, 250, 50]))
    assert found.to_dict("list") == {"count": [1, 2, 3], "index": [2, 3, 3], "regret": [0.25, 0.0, 0.0]}


def test_output_states_the_regret_and_its_points() -> None:
    points = points_of([100, 400, 300, 50], [100, 200, 250, 50])
    shown = text.as_text(render_report(REGRET, RegretView(points, KEYS, "samples_per_s")))
    assert "#3  1       250        300  -16.7 %      2" in shown
    assert "Regret: 25.0 %: the predicted best (#2) takes that much longer than the measured" in shown
    assert "In the right order: 5 of 6 pairs (83.3 %) that differ by more than 5 %" in " ".join(shown.split("\n"))
    assert "Spearman 0.800, Kendall 0.667" in shown
