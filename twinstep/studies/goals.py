"""Goals by which points are ranked, and the comparison of two values of a goal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

Goal = Literal[
    "samples_per_s",
    "step_ns",
    "usd_per_1e9_samples",
    "kwh_per_1e9_samples",
    "goodput",
    "days",
    "memory_spare_bytes",
    "world_size",
]
# Maps each goal to whether more of it is better.
GOALS: Mapping[Goal, bool] = {
    "samples_per_s": True,
    "step_ns": False,
    "usd_per_1e9_samples": False,
    "kwh_per_1e9_samples": False,
    "goodput": True,
    "days": False,
    "memory_spare_bytes": True,
    "world_size": False,
}
_UNITS: Mapping[Goal, tuple[float, str]] = {
    "samples_per_s": (1, "samples/s"),
    "step_ns": (1e6, "ms"),
    "usd_per_1e9_samples": (1, "$ per 10^9 samples"),
    "kwh_per_1e9_samples": (1, "kWh per 10^9 samples"),
    "goodput": (0.01, "% goodput"),
    "days": (1, "days"),
    "memory_spare_bytes": (2**30, "GiB spare"),
    "world_size": (1, "GPUs"),
}


def rating(row: Mapping[str, Any], goal: Goal) -> float:
    """Rate a row by a goal; less is better, inf is unknown. Without samples the step's time rates."""
    value, step_ns = (_number_or_nan(row.get(name)) for name in (goal, "step_ns"))
    if not math.isnan(value):
        return -value if GOALS[goal] else value
    return math.inf if goal != "samples_per_s" or math.isnan(step_ns) else step_ns


def _number_or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def rating_text(rated: float, goal: Goal) -> str:
    """Return a rating in words: the value with its unit; a step's time where samples are unknown."""
    if goal == "samples_per_s" and rated > 0:
        goal = "step_ns"
    scale, unit = _UNITS[goal]
    return f"{abs(rated) / scale:,.5g} {unit}"


def layers(costs: Sequence[Sequence[float]], enough: int) -> list[int]:
    """Return the number of each point's front: 0 for the Pareto front, 1 for that of the remaining points, and so on.

    `costs` are [points, goals], less is better. Once `enough` points have a number, all others get the next one; with
    one goal all get 0.
    """
    if not costs or len(costs[0]) == 1:
        return [0] * len(costs)
    values = np.asarray(costs, float)
    numbers = np.zeros(len(values), np.int64)
    left = np.lexsort(values.T[::-1])  # in this order only an earlier point can dominate a later one
    while len(left) > max(len(values) - enough, 0):
        front: list[int] = []
        for at in left:
            kept = values[front]
            if not ((kept <= values[at]).all(axis=1) & (kept < values[at]).any(axis=1)).any():
                front.append(int(at))
        # `left` keeps its order, so that each further front needs no new sort.
        left = left[~np.isin(left, front)]
        numbers[left] += 1
    return [int(each) for each in numbers]
