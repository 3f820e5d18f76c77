"""A study's rows as a frame: one row a point, with a column for each varied key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from reports.study.measures import MEASURES
from reports.study.rows import COLUMNS, about_of, kind_of, stored

# Stages in the order in which points go through them.
_ORDER = {"": 0, "estimate": 1, "links": 2, "flows": 3}
ABSENT = "-"  # a key that a point leaves as it is in the scenario
# So near to the line between a front's ends a point lies on it; numbers are rounded.
_ON_LINE = 1e-9
_NULLABLE = {pa.bool_(): "boolean", pa.int64(): "Int64", pa.float64(): "Float64", pa.string(): "str"}


def study_frame(folder: Path, *, stages: bool = False) -> pd.DataFrame:
    """A point's last stage, or with `stages` all of them, by index; the baseline, if there is one, has index 0.

    Varied keys come after `index`, with <NA> where a point leaves a key as it is in the scenario. Of a study with
    constraints `feasible`, the last column, says which points keep them.

    Raises:
        ReportError: the folder is no study's, or damaged.
    """
    about = about_of(folder)
    latest: dict[tuple[int, str], dict[str, Any]] = {}
    for row in stored(folder):
        if row["index"] >= 0:
            latest[row["index"], row["fidelity"]] = dict(row)
    rows = sorted(latest.values(), key=lambda row: (row["index"], _ORDER.get(row["fidelity"], 0)))
    if not stages:
        rows = list({row["index"]: row for row in rows}.values())
    keys = about["keys"]
    frame = pd.DataFrame([{name: row[name] for name in COLUMNS} for row in rows], columns=list(COLUMNS))
    numbers = dict.fromkeys(["seconds", *MEASURES], "float64")
    frame = frame.drop(columns="values").astype({"index": "int64", "played": "bool", **numbers})
    for at, key in enumerate(keys, 1):
        frame.insert(at, key, _column([row["values"].get(key) for row in rows]))
    return frame.assign(feasible=feasible(frame, about)) if about.get("constraints") else frame


def _column(values: list[object]) -> Any:
    kind = kind_of(values)
    if pa.types.is_string(kind):
        values = [one if one is None or isinstance(one, str) else json.dumps(one) for one in values]
    return pd.Series(values, dtype=_NULLABLE[kind]).array


@dataclass(frozen=True, slots=True)
class Goal:
    """A column by which points are called better; `most`: whether more of it is."""

    column: str
    most: bool


def goals_of(frame: pd.DataFrame, about: Mapping[str, Any]) -> list[Goal]:
    """The goals of a study that these points have, the first first; the step's time where they have none of them."""
    goals = [Goal(column, which == "most") for column, which in about["goals"].items()]
    return [goal for goal in goals if frame[goal.column].notna().any()] or [Goal("step_ns", most=False)]


# Bounds of constraints, as a study's file names them.
_BOUNDS: Mapping[str, Any] = {
    "above": np.greater,
    "at_least": np.greater_equal,
    "below": np.less,
    "at_most": np.less_equal,
}


def feasible(frame: pd.DataFrame, about: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Which points came out and keep the study's constraints; an unknown measure keeps none."""
    kept = (frame["status"] == "done").to_numpy(bool)
    for column, bounds in about.get("constraints", {}).items():
        for name, bound in bounds.items():
            kept = kept & _BOUNDS[name](frame[column].to_numpy(float), bound)
    return kept


def front_of(frame: pd.DataFrame, about: Mapping[str, Any]) -> pd.DataFrame:
    """The Pareto front of a study's goals, of the points that keep its constraints, by the first goal.

    Of a study in several stages, of the points of the last one that has any. The baseline may be on it.
    """
    done = came_out(frame[feasible(frame, about)], about["stages"])
    return pareto(done, goals_of(frame, about))


def best_first(frame: pd.DataFrame, goal: Goal, stages: Sequence[str] = ()) -> pd.DataFrame:
    """The points that came out, the best first; of a study in several stages, those of the last one that has any."""
    done = came_out(frame, stages)
    done = done[done[goal.column].notna().to_numpy(bool)]
    return done.sort_values([goal.column, "index"], ascending=[not goal.most, True])


def came_out(frame: pd.DataFrame, stages: Sequence[str] = ()) -> pd.DataFrame:
    """The points that are done; of a study in several stages, those of the last one that has any."""
    done = frame[(frame["status"] == "done").to_numpy(bool)]
    if len(stages) > 1 and len(done):
        last = max(done["fidelity"].unique(), key=lambda name: _ORDER.get(name, 0))
        done = done[(done["fidelity"] == last).to_numpy(bool)]
    return done


def pareto(points: pd.DataFrame, goals: Sequence[Goal]) -> pd.DataFrame:
    """The points than which no other one is as good in every goal and better in one; those without a goal are none.

    In the order of the first goal, the best first. Of points with equal goals the first one stands for all.
    """
    known = points.dropna(subset=[goal.column for goal in goals])
    columns = [known[goal.column].to_numpy(float) * (-1 if goal.most else 1) for goal in goals]
    order = np.lexsort([known["index"].to_numpy(), *reversed(columns)])
    costs = np.column_stack(columns)[order]
    kept: list[int] = []
    for at, cost in enumerate(costs):
        # Sorted so, only an earlier one can be as good or better.
        if not kept or not (costs[kept] <= cost).all(axis=1).any():
            kept.append(at)
    return known.iloc[order[kept]]


def knee(front: pd.DataFrame, goals: Sequence[Goal]) -> pd.DataFrame:
    """The point of a Pareto front at its knee, where a little more of one goal begins to cost much of another: one row.

    Goals are scaled to 0, the front's best, and 1, its worst. The knee is farthest, to the better side, from the line
    between the front's ends (of k goals, from the plane on which these numbers add up to k - 1). No row: there are
    fewer than two goals in which the front differs, or all of it lies on that line or to the worse side.
    """
    costs = [front[goal.column].to_numpy(float) * (-1 if goal.most else 1) for goal in goals]
    scaled = [
        (cost - cost.min()) / (cost.max() - cost.min()) for cost in costs if len(cost) and cost.max() > cost.min()
    ]
    if len(scaled) < 2:
        return front.iloc[:0]
    total = np.sum(scaled, axis=0)
    at = int(total.argmin())
    return front.iloc[[at]] if total[at] < len(scaled) - 1 - _ON_LINE else front.iloc[:0]


def baseline_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The baseline's row, if it is there and came out: at most one."""
    return frame[((frame["index"] == 0) & (frame["status"] == "done")).to_numpy(bool)]


def named_points(frame: pd.DataFrame, about: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """The best point by the first goal, the knee of the front of all goals, and the baseline; those that there are."""
    goals = goals_of(frame, about)
    front = pareto(came_out(frame, about["stages"]), goals)
    found = {
        "best": best_first(frame, goals[0], about["stages"]).head(1),
        "knee": knee(front, goals),
        "baseline": baseline_of(frame),
    }
    return {name: row for name, row in found.items() if len(row)}


def labels_of(frame: pd.DataFrame, key: str, about: Mapping[str, Any]) -> list[str]:
    """Each point's value of a key as text; of the baseline the scenario's own."""
    own = about.get("as_it_is", {}).get(key, ABSENT)
    values = frame[key].astype(object).where(frame[key].notna(), None).tolist()
    return [
        label(own if value is None and index == 0 else ABSENT if value is None else value)
        for index, value in zip(frame["index"].tolist(), values, strict=True)
    ]


def label(value: object) -> str:
    """A value as text: TOML's words for booleans, arrays and tables as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Each key's last part, or as many as tell it from others."""
    names = {}
    for key in keys:
        parts = key.split(".")
        endings = [".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1)]
        names[key] = next(
            (one for one in endings if not any(other != key and f".{other}".endswith(f".{one}") for other in keys)), key
        )
    return names
