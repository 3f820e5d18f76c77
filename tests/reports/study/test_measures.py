from __future__ import annotations

from reports.study.measures import MEASURES, RATED, SHOWN
from sim.study.goals import GOALS


def test_every_measure_can_be_shown_and_goals_are_rated_as_the_study_rates_them() -> None:
    assert set(SHOWN) == set(MEASURES)
    assert {name: RATED[name] for name in GOALS} == GOALS
    assert set(RATED) <= set(MEASURES)
