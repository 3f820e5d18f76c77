from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.study.frame import Goal, knee, pareto

RATE, COST, SPARE = Goal("rate", most=True), Goal("cost", most=False), Goal("spare", most=True)


def points(*rows: tuple[float, ...]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["rate", "cost", "spare"][: len(rows[0])])
    return frame.assign(index=range(1, len(rows) + 1))


def knee_of(frame: pd.DataFrame, *goals: Goal) -> list[int]:
    return knee(pareto(frame, goals), goals)["index"].tolist()


def test_the_knee_is_where_more_of_one_goal_begins_to_cost_much() -> None:
    bent = points((10, 1), (80, 2), (90, 5), (100, 11), (70, 3))
    assert knee_of(bent, RATE, COST) == [2]
    assert knee_of(bent, COST, RATE) == [2]


@pytest.mark.parametrize(
    "rows",
    [
        [(10, 1)],
        [(10, 1), (100, 11)],
        [(10, 1), (55, 6), (100, 11)],  # a straight front
        [(10, 1), (20, 7), (100, 11)],  # bent to the worse side
        [(10, 1), (100, 1)],  # one is best in both
    ],
)
def test_a_front_that_does_not_bend_to_the_better_side_has_no_knee(rows: list[tuple[float, ...]]) -> None:
    assert knee_of(points(*rows), RATE, COST) == []
    assert knee_of(points(*rows), RATE) == []


def test_a_goal_in_which_all_are_the_same_changes_nothing() -> None:
    bent = points((10, 1, 4), (80, 2, 4), (90, 5, 4), (100, 11, 4))
    assert knee_of(bent, RATE, COST, SPARE) == knee_of(bent, RATE, COST) == [2]


def test_of_three_goals_it_is_the_point_that_is_good_in_all() -> None:
    assert knee_of(points((100, 9, 0), (0, 1, 0), (0, 9, 50), (80, 2, 40)), RATE, COST, SPARE) == [4]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=25))
def test_no_point_of_the_front_is_farther_from_the_line_between_its_ends(rows: list[tuple[int, int]]) -> None:
    frame = points(*((float(rate), float(cost)) for rate, cost in rows))
    front = pareto(frame, [RATE, COST])
    first, last = front[["rate", "cost"]].to_numpy(float)[[0, -1]]
    along = last - first
    if not along.all():
        assert len(front) == 1
        return
    across = (front[["rate", "cost"]].to_numpy(float) - first) / along  # 0, 0 and 1, 1 at the ends
    gain = (across[:, 1] - across[:, 0]) / np.sqrt(2)  # to the better side
    found = knee(front, [RATE, COST])["index"].tolist()
    if found:
        assert gain[front["index"].tolist().index(found[0])] == pytest.approx(gain.max())
    else:
        assert gain.max() == pytest.approx(0, abs=1e-12)
