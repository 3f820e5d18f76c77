from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.study.frame import Goal, command, knee, option, pareto
from scenarios.config.load import load
from scenarios.config.overrides.option import parse_values
from twinstep.studies.points import points_of, resolve
from twinstep.studies.study_file import read_study

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


STUDY = """
scenario = "criteo_small_2x2"
[set]
run.steps = 5
run.seed = 3
[vary]
"cluster.nic.rate" = ["1 Gbit/s", "2 Gbit/s"]
"run.batch_size" = [32, 64]
"model.tables[*].sharding" = [["row_wise"], ["table_wise", "row_wise"]]
"""


def test_the_command_of_a_point_gives_its_very_scenario(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    study = read_study(tmp_path / "study.toml")
    about = {"scenario": study.scenario, "set": study.shared, "stages": [""]}
    points = list(points_of(study))
    for point in points:
        line = " ".join([command(about, "flows"), *(option(*one) for one in point.values.items())])
        twinstep, predict, path, *options = shlex.split(line)
        assert (twinstep, predict) == ("twinstep", "predict")
        assert set(options[::2]) == {"--set"}
        scenario, own = load(path, parse_values(options[1::2])), resolve(study, point).scenario
        assert own is not None
        assert scenario.as_dict() == own.as_dict()
    assert len(points) == 9


def test_arrays_and_tables_are_as_the_frame_has_them_or_as_they_are() -> None:
    assert option("a.b", '["row_wise", 1]') == option("a.b", ["row_wise", 1]) == """--set 'a.b=["row_wise", 1]'"""
    assert option("a", '{"rate": "1 Gbit/s", "on": true}') == """--set 'a={"rate" = "1 Gbit/s", "on" = true}'"""
    assert option("a[*].x", "[half") == "--set 'a[*].x=[half'"
    assert option("a", "1 Gbit/s") == "--set 'a=1 Gbit/s'"
    assert (option("a", True), option("a", 0.5)) == ("--set a=true", "--set a=0.5")


def test_of_a_study_in_stages_the_command_has_the_fidelity_of_the_last_one() -> None:
    about = {"scenario": "a b.toml", "stages": ["estimate", "links"]}
    assert command(about, "links") == "twinstep predict 'a b.toml' --set run.fidelity=links"
    assert command(about, "estimate") == "twinstep predict 'a b.toml'"
