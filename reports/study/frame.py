"""A study's rows as a frame, one row per point with a column for each varied key; the command that predicts a point."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from reports.study.measures import MEASURES
from reports.study.rows import COLUMNS, about_of, kind_of, stored_rows
from reports.terminal import text
from scenarios.toml_writer import toml_value

# Stages in the order in which points pass through them.
_ORDER = {"": 0, "estimate": 1, "links": 2, "flows": 3}
ABSENT = "-"  # a key that a point leaves as it is in the scenario
# So near to the line between a front's ends a point lies on it; numbers are rounded.
_ON_LINE = 1e-9
_NULLABLE = {pa.bool_(): "boolean", pa.int64(): "Int64", pa.float64(): "Float64", pa.string(): "str"}


def study_frame(folder: Path, *, stages: bool = False) -> pd.DataFrame:
    """Return each point's last stage, or with `stages` all of them, by index; a baseline has index 0.

    Varied keys come after `index`, with <NA> where a point leaves a key unchanged. If the study has constraints, the
    last column, `feasible`, is whether a point keeps them.

    Raises:
        ReportError: the folder is not a study's, or damaged.
    """
    about = about_of(folder)
    latest: dict[tuple[int, str], dict[str, Any]] = {}
    for row in stored_rows(folder):
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
    """A column by which points are compared; `most`: whether more is better."""

    column: str
    most: bool


def goals_of(frame: pd.DataFrame, about: Mapping[str, Any]) -> list[Goal]:
    """Return the study's goals that these points have, the first first; the step time where they have none."""
    goals = [Goal(column, which == "most") for column, which in about["goals"].items()]
    return [goal for goal in goals if frame[goal.column].notna().any()] or [Goal("step_ns", most=False)]


# Bounds of constraints, by their names in a study's file.
_BOUNDS: Mapping[str, Any] = {
    "above": np.greater,
    "at_least": np.greater_equal,
    "below": np.less,
    "at_most": np.less_equal,
}


def feasible(frame: pd.DataFrame, about: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Return which points succeeded and keep the study's constraints; an unknown measure violates them."""
    kept = (frame["status"] == "done").to_numpy(bool)
    for column, bounds in about.get("constraints", {}).items():
        for name, bound in bounds.items():
            kept = kept & _BOUNDS[name](frame[column].to_numpy(float), bound)
    return kept


def front_of(frame: pd.DataFrame, about: Mapping[str, Any]) -> pd.DataFrame:
    """Return the Pareto front of a study's goals among points that keep its constraints, by the first goal.

    A study in several stages contributes points of the last stage that has any. The baseline may be on the front.
    """
    done = came_out(frame[feasible(frame, about)], about["stages"])
    return pareto(done, goals_of(frame, about))


def best_first(frame: pd.DataFrame, goal: Goal, stages: Sequence[str] = ()) -> pd.DataFrame:
    """Return the successful points, best first; for several stages those of the last stage that has any."""
    done = came_out(frame, stages)
    done = done[done[goal.column].notna().to_numpy(bool)]
    return done.sort_values([goal.column, "index"], ascending=[not goal.most, True])


def came_out(frame: pd.DataFrame, stages: Sequence[str] = ()) -> pd.DataFrame:
    """Return the successful points; for several stages those of the last stage that has any."""
    done = frame[(frame["status"] == "done").to_numpy(bool)]
    if len(stages) > 1 and len(done):
        last = max(done["fidelity"].unique(), key=lambda name: _ORDER.get(name, 0))
        done = done[(done["fidelity"] == last).to_numpy(bool)]
    return done


def pareto(points: pd.DataFrame, goals: Sequence[Goal]) -> pd.DataFrame:
    """Return the points that no other point dominates (as good in every goal, better in one), by the first goal.

    Points without a value for a goal are left out. The first of several points with equal goals represents them.
    """
    known = points.dropna(subset=[goal.column for goal in goals])
    columns = [known[goal.column].to_numpy(float) * (-1 if goal.most else 1) for goal in goals]
    order = np.lexsort([known["index"].to_numpy(), *reversed(columns)])
    costs = np.column_stack(columns)[order]
    kept: list[int] = []
    for at, cost in enumerate(costs):
        # Only an earlier point in this order can dominate.
        if not kept or not (costs[kept] <= cost).all(axis=1).any():
            kept.append(at)
    return known.iloc[order[kept]]


def knee(front: pd.DataFrame, goals: Sequence[Goal]) -> pd.DataFrame:
    """Return the knee of a Pareto front, where more of one goal begins to cost much of another: at most one row.

    Goals are scaled to 0, the front's best, and 1, its worst. The knee is farthest, to the better side, from the line
    between the front's ends (with k goals, from the plane on which these numbers add up to k - 1). No row is returned
    if the front differs in fewer than two goals, or lies wholly on that line or to its worse side.
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
    """Return the baseline's row if it succeeded, else no row."""
    return frame[((frame["index"] == 0) & (frame["status"] == "done")).to_numpy(bool)]


def named_points(frame: pd.DataFrame, about: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Return the named points that exist: the best by the first goal, the knee of the goals' front, the baseline."""
    goals = goals_of(frame, about)
    front = pareto(came_out(frame, about["stages"]), goals)
    found = {
        "best": best_first(frame, goals[0], about["stages"]).head(1),
        "knee": knee(front, goals),
        "baseline": baseline_of(frame),
    }
    return {name: row for name, row in found.items() if len(row)}


def labels_of(frame: pd.DataFrame, key: str, about: Mapping[str, Any]) -> list[str]:
    """Return each point's value of a key as text; for the baseline the scenario's own value."""
    own = about.get("as_it_is", {}).get(key, ABSENT)
    values = frame[key].astype(object).where(frame[key].notna(), None).tolist()
    return [
        label(own if value is None and index == 0 else ABSENT if value is None else value)
        for index, value in zip(frame["index"].tolist(), values, strict=True)
    ]


def label(value: object) -> str:
    """Return a value as text: booleans as in TOML, arrays and tables as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last part, with earlier parts if these are needed to tell keys apart."""
    endings = text.shortest_endings([key.split(".") for key in keys])
    return {key: ".".join(parts) for key, parts in zip(keys, endings, strict=True)}


_PLAYED = ("links", "flows")


def command(about: Mapping[str, Any], fidelity: str) -> str:
    """Return the part of the command that all points share: scenario, values that the study sets, and fidelity.

    An estimate is the planner's alone, so its command simulates the point with the scenario's fidelity.
    """
    given = dict(about.get("set", {}))
    if any(about["stages"]) and fidelity in _PLAYED:
        given["run.fidelity"] = fidelity
    return " ".join(["twinstep predict", shlex.quote(about["scenario"]), *(option(*one) for one in given.items())])


def option(key: str, value: object) -> str:
    """Return a key's value as `--set` takes it, quoted for a shell; arrays and tables may be JSON."""
    return f"--set {shlex.quote(f'{key}={_toml(value)}')}"


def _toml(value: object) -> str:
    """Return a value as TOML, but text unchanged where `--set` reads it as text."""
    if isinstance(value, str):
        try:
            return toml_value(json.loads(value)) if value[:1] in ("[", "{") else value
        except ValueError:
            return value
    return toml_value(value)
