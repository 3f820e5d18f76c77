"""A sample's figures against known ones, and the median's interval against the coin that it follows from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.analysis.statistics import (
    LEAST_COUNT,
    disagreement,
    errors,
    median_place,
    sample,
    weighted_lower_median,
    weighted_quantiles,
)
from tests.reports.recordings import PATIENT


@pytest.mark.parametrize(
    ("count", "place"),
    # 10 values by hand: 2 * (1 + 10) / 1024 of all samples miss the 2nd to 9th, 2.1 %; with the 3rd to 8th 10.9 %.
    [(1, None), (5, None), (6, 1), (9, 2), (10, 2), (20, 6), (30, 10), (50, 18), (100, 40)],
)
def test_the_places_are_the_known_ones(count: int, place: int | None) -> None:
    assert median_place(count) == place


@given(st.integers(LEAST_COUNT, 60))
def test_the_interval_holds_the_median_in_95_percent_of_samples_and_a_narrower_one_does_not(count: int) -> None:
    """Of values drawn around a median of 100, those below it are counted by a fair coin: all counts, weighed."""

    def catch(narrower: int) -> float:
        share = 0.0
        for below in range(count + 1):
            values = [99.0 - at for at in range(below)] + [101.0 + at for at in range(count - below)]
            if narrower:
                place = median_place(count)
                assert place is not None
                ordered = sorted(values)
                low, high = ordered[place - 1 + narrower], ordered[-place - narrower]
            else:
                low, high = sample(values).median_low, sample(values).median_high
            share += math.comb(count, below) / 2**count * (low < 100 < high)
        return share

    assert catch(0) >= 0.95
    assert catch(1) < 0.95


@given(st.lists(st.integers(1, 10**12), min_size=LEAST_COUNT, max_size=200), st.randoms())
def test_a_sample_is_in_order_whatever_order_it_came_in(values: list[int], random: object) -> None:
    one = sample(values)
    assert min(values) <= one.low <= one.median <= one.high <= max(values)
    assert one.median_low <= one.median <= one.median_high
    assert {one.median_low, one.median_high} <= set(values)
    random.shuffle(values)  # type: ignore[attr-defined]
    assert sample(values) == one


def test_a_sample_known_by_hand() -> None:
    one = sample([float(value) for value in range(1, 12)])
    assert (one.count, one.low, one.median, one.high) == (11, 2.0, 6.0, 10.0)
    assert (one.median_low, one.median_high) == (2.0, 10.0)
    assert one.spread == pytest.approx(8 / 6)
    assert one.uncertainty == pytest.approx(4 / 6)


def test_a_sample_too_small_for_an_interval_does_not_claim_one() -> None:
    one = sample([1.0] * (LEAST_COUNT - 1))
    assert math.isnan(one.median_low)
    assert math.isnan(one.uncertainty)
    assert not one.uncertainty <= 1.0


def test_disagreement_is_half_the_way_between_medians() -> None:
    assert disagreement([90.0, 100.0, 110.0]) == pytest.approx(0.1)
    assert disagreement([5.0]) == 0


def test_errors_keep_the_sign_where_it_says_something() -> None:
    found = errors([0.1, -0.3, 0.02])
    assert found.signed_median == 0.02
    assert found.median == 0.1
    assert found.p95 == pytest.approx(0.1 + 0.9 * 0.2)
    assert found.worst == -0.3
    assert math.isnan(errors([]).worst)


VALUES = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(1, 5)), max_size=30)


@PATIENT
@given(VALUES, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_weighted_quantiles_are_those_of_each_value_repeated_as_often_as_it_weighs(rows, share):
    groups, values, weights = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    (found,) = weighted_quantiles(groups, values.astype(float), weights, count=4, shares=[share])
    for group in range(4):
        own = groups == group
        expected = np.quantile(np.repeat(values[own], weights[own]), share) if own.any() else np.nan
        assert found[group] == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.integers(0, 4))))
def test_a_weighted_lower_median_is_the_lower_middle_of_repeated_values(rows):
    groups, values, weights = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    medians = weighted_lower_median(groups, values.astype(float), weights, 4)
    for group in range(4):
        repeated = np.sort(np.repeat(values[groups == group], weights[groups == group]))
        assert np.isnan(medians[group]) if not len(repeated) else medians[group] == repeated[(len(repeated) - 1) // 2]
