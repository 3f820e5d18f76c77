from __future__ import annotations

import pytest

from reports.study.measures import MEASURES, RATED, SHOWN, gain_of
from twinstep.studies.goals import GOALS


def test_every_measure_can_be_shown_and_goals_are_rated_as_the_study_rates_them() -> None:
    assert set(SHOWN) == set(MEASURES)
    assert {name: RATED[name] for name in GOALS} == GOALS
    assert set(RATED) <= set(MEASURES)


def test_a_gain_is_the_median_of_pairs_of_steps_with_its_interval() -> None:
    base = ((100.0, 50.0), (80.0, 40.0))
    assert gain_of(base, base) == (1.0, 1.0, 1.0)
    twice = ((200.0, 100.0), (160.0, 80.0))  # steps of unlike length, each twice as fast
    assert gain_of(base, twice) == (2.0, 2.0, 2.0)
    assert gain_of(base, ((90.0, 60.0),)) == (pytest.approx(1.05), 0.9, 1.2)  # the range of few pairs
    assert gain_of(base, ()) == (0.0, 0.0, 0.0)
    steps = tuple(float(at) for at in range(90, 111))
    median, low, high = gain_of(((100.0,) * 21,), (steps,))
    assert (median, low, high) == (1.0, 0.95, 1.05)  # the 6th and the 16th of 21 enclose it in 95 % of samples
