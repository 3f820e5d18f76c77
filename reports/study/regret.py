"""Judge how well predictions choose among measured points: regret, rank correlation, pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.statistics import Errors, disagreement, errors
from reports.study.frame import came_out
from reports.terminal.rows import records

# The measured differences from which a pair counts for the predicted order.
DIFFERENCES = (0.05, 0.10)
_BY_VALUE = ("point_count", "regret", "predicted_best", "measured_best")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A count of pairs of points whose measured times differ by more than `difference`; `right`: predicted in order."""

    difference: float
    count: int
    right: int

    @property
    def share(self) -> float:
        """The share of pairs in the right order; nan without any."""
        return self.right / self.count if self.count else np.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """A comparison of predictions with measurements of at least one point.

    Attributes:
        regret: how much longer the predicted best takes than the measured best, both as measured, as a share.
        predicted_best: the point's index; the first of equal predictions.
        measured_best: the point's index; the first of equal measurements.
        spearman: Spearman's rank correlation; nan where all times are equal.
        kendall: Kendall's tau-b; nan where all times are equal.
        pairs: one for each of `DIFFERENCES`.
        errors: of predicted times.
        disagreement: half the range of a point's rounds, as a share; the median point's.
    """

    point_count: int
    regret: float
    predicted_best: int
    measured_best: int
    spearman: float
    kendall: float
    pairs: tuple[Pairs, ...]
    errors: Errors
    disagreement: float


def cost_ns(row: Mapping[Any, Any], goal: str) -> float:
    """Return the time (ns) of a sample where samples per second are the goal, else of a step: less is better."""
    return 1e9 / float(row["samples_per_s"]) if goal == "samples_per_s" else float(row["step_ns"])


def judged_points(
    predicted: pd.DataFrame, rounds: Iterable[Mapping[str, Any]], keys: Sequence[str], goal: str
) -> pd.DataFrame:
    """Return the points that succeeded in both worlds, by index; the first of those with one scenario.

    Columns are `index`, the keys, `digest`, `predicted_ns` and `measured_ns` (the median of its rounds) by `cost_ns`,
    `error`, `rounds` (their number) and `disagreement` (half the range of the rounds, as a share).

    Args:
        predicted: a study's frame.
        rounds: rows of measured rounds, matched by their digest.
        keys: the varied keys.
        goal: a measure; see `cost_ns`.
    """
    costs: dict[str, dict[str, float]] = {}
    for row in rounds:
        if row["status"] == "done":
            costs.setdefault(row["digest"], {})[row["fidelity"]] = cost_ns(row, goal)
    points = came_out(predicted).drop_duplicates("digest").sort_values("index")
    points = points[points["digest"].isin(list(costs)).to_numpy(bool)].reset_index(drop=True)
    each = [list(costs[digest].values()) for digest in points["digest"]]
    made = points[["index", *keys, "digest"]].copy()
    made["predicted_ns"] = np.array([cost_ns(row, goal) for row in records(points)], float)
    made["measured_ns"] = np.array([np.median(one) for one in each], float)
    made["error"] = made["predicted_ns"] / made["measured_ns"] - 1
    made["rounds"] = np.array([len(one) for one in each], int)
    made["disagreement"] = np.array([disagreement(one) for one in each], float)
    return made


def regret_of(points: pd.DataFrame) -> Regret:
    """Return the regret of the predictions of `judged_points` points."""
    predicted, measured = (points[name].to_numpy(float) for name in ("predicted_ns", "measured_ns"))
    chosen, best = int(predicted.argmin()), int(measured.argmin())
    one, other = np.triu_indices(len(points), 1)
    orders = [np.sign(times[one] - times[other]) for times in (predicted, measured)]
    apart = np.maximum(measured[one], measured[other]) / np.minimum(measured[one], measured[other]) - 1
    is_right = orders[0] == orders[1]
    return Regret(
        point_count=len(points),
        regret=float(measured[chosen] / measured[best] - 1),
        predicted_best=int(points["index"].iloc[chosen]),
        measured_best=int(points["index"].iloc[best]),
        spearman=float(points[["predicted_ns", "measured_ns"]].corr(method="spearman").to_numpy()[0, 1]),
        kendall=_kendall(*orders),
        pairs=tuple(
            Pairs(difference=share, count=int((apart > share).sum()), right=int(is_right[apart > share].sum()))
            for share in DIFFERENCES
        ),
        errors=errors(points["error"].tolist()),
        disagreement=float(points["disagreement"].median()),
    )


def _kendall(one: Any, other: Any) -> float:
    """Return tau-b from the signs of all pairs in both rankings; a tie in one ranking counts only in the other."""
    alike = np.sqrt(float((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / alike) if alike else np.nan


def regret_by_value(points: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the regret among the points with each value of a key, as if that value were given.

    Columns are `key`, `value` and the numbers of `Regret`, for each value that several points have, but not all.
    """
    rows = []
    for key in keys:
        # Grouped by text: pandas makes a group's key 3.0 where a value is 3 and another one is unknown.
        for value, some in points.groupby([value_text(one) for one in points[key]], sort=False):
            if 1 < len(some) < len(points):
                found = asdict(regret_of(some))
                rows.append({"key": key, "value": value, **{name: found[name] for name in _BY_VALUE}})
    return pd.DataFrame(rows, columns=["key", "value", *_BY_VALUE])


def value_text(value: Any) -> str:
    """Return a key's value as people read it; a dash where the key is as in the scenario."""
    return "-" if pd.isna(value) else str(value)
