"""Show a study in the terminal and as JSON: the best points compared with the baseline, and why others failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from reports.study.frame import Goal, baseline_of, best_first, feasible, front_of, goals_of
from reports.study.measures import SHOWN
from reports.terminal import text
from reports.terminal.rows import records

About = Mapping[str, Any]  # the content of study.json

BEST, FRONT = 10, 20  # numbers of points shown
# Goals whose relative error is that of the step time.
_TIMES = frozenset({"step_ns", "samples_per_s", "usd_per_1e9_samples", "kwh_per_1e9_samples"})
_NUMBERS = re.compile(r"\d[\d.,]*")


def summarize(frame: pd.DataFrame, about: About) -> RenderableType:
    """Return the number of points, the best of them, the baseline, and the reasons of failures, for a terminal."""
    said = [text.paragraph(words) for words in (plans(frame),) if words]
    return Group(text.paragraph(headline(frame)), *_best(frame, about), *said, *_failures(frame))


def plans(frame: pd.DataFrame) -> str:
    """Return a sentence on how many points have another plan than the baseline; "" if none, or without a baseline."""
    with_tables = frame[((frame["status"] == "done") & (frame["plan"].fillna("") != "")).to_numpy(bool)]
    base, points = baseline_of(with_tables)["plan"].tolist(), with_tables[(with_tables["index"] > 0).to_numpy(bool)]
    others = int((points["plan"] != base[0]).sum()) if base else 0
    if not others:
        return ""
    return (
        f"Tables lie elsewhere than in the baseline in {others:,} of {text.counted(len(points), 'point')}: the planner"
        ' places them anew for each point, unless "sharding.plan" in [set] names a plan to keep.'
    )


def headline(frame: pd.DataFrame) -> str:
    """Return how many points succeeded, and how many of them keep the study's constraints, if any."""
    points = frame[frame["index"] > 0]
    failed = int((points["status"] != "done").sum())
    same = len(points) - points["digest"].nunique()
    words = text.counted(len(points), "point")
    words += f", {same:,} of them the same scenario as another" if same else ""
    words += f"; {failed:,} failed" if failed else ""
    if "feasible" not in frame:
        return words
    return f"{words}; {int(points['feasible'].sum()):,} of {len(points) - failed:,} keep the constraints"


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `status`, `points` (their number), `index` (of the first) and its `sentence`, grouped but for numbers."""
    failed = frame[(frame["status"] != "done").to_numpy(bool)]
    alike = failed["sentence"].map(lambda sentence: _NUMBERS.sub("#", sentence))
    grouped = failed.groupby([failed["status"], alike], sort=False)
    found = grouped.agg(points=("index", "size"), index=("index", "first"), said=("sentence", "first"))
    found = found.reset_index(level=0).rename(columns={"said": "sentence"})
    return found.sort_values("points", ascending=False, kind="stable").reset_index(drop=True)


@text.json_ready
def as_json(frame: pd.DataFrame, about: About, folder: str) -> dict[str, Any]:
    """Return all points, the indices of the best, of the Pareto front and of the baseline, and why points failed."""
    goals = goals_of(frame, about)
    best = best_first(frame[feasible(frame, about)], goals[0], about["stages"])
    plain = frame.astype(object).where(frame.notna(), None)
    return {
        "folder": folder,
        "goals": [goal.column for goal in goals],
        "points": plain.to_dict("records"),
        "best": best["index"].tolist()[:BEST],
        "within_bar": within_bar(best, goals[0])["index"].tolist(),
        "front": front_of(frame, about)["index"].tolist(),
        "baseline": next(iter(baseline_of(frame)["index"].tolist()), None),
        "failures": records(failures(frame)),
    }


def within_bar(best: pd.DataFrame, goal: Goal) -> pd.DataFrame:
    """Return the points that differ from the best by at most its uncertainty, itself included.

    No rows where the uncertainty is unknown, or the goal does not scale with the step time. `best` is the result of
    `best_first`.
    """
    bars = best["uncertainty_share"].to_numpy(float)
    if not len(best) or goal.column not in _TIMES or not bars[0] >= 0:
        return best.iloc[:0]
    values = best[goal.column].to_numpy(float)
    near: pd.DataFrame = best[np.abs(values - values[0]) <= bars[0] * abs(values[0])]
    return near


def _bar_line(best: pd.DataFrame, goal: Goal) -> str:
    near, share = within_bar(best, goal), float(best["uncertainty_share"].iloc[0])
    if not len(near):
        return "How far off these may be is not known: no calibration and no published steps of this hardware."
    of = f"Points within the uncertainty of the best (±{text.percent(share)}): {len(near):,}"
    shown = ", ".join("baseline" if index == 0 else f"#{index}" for index in near["index"].tolist()[:BEST])
    return f"{of} ({shown}{', ...' if len(near) > BEST else ''})"


def _best(frame: pd.DataFrame, about: About) -> list[RenderableType]:
    goals, keys = goals_of(frame, about), about["keys"]
    goal, (whole, title) = goals[0], _shown(frame, about)
    if not len(whole):
        return []
    base = baseline_of(frame)
    shown = whole if not len(base) or 0 in whole["index"].tolist() else pd.concat([whole, base])
    base_value = float(base[goal.column].iloc[0]) if len(base) else float("nan")
    cells = {key: [_value(row, key, about) for row in shown.to_dict("records")] for key in keys}
    differing = [key for key in keys if len(set(cells[key])) > 1]
    names, numbers = short_names(keys), _numbers_shown(len(differing), goals)
    columns = ["", *(names[key] for key in differing), *(SHOWN[one][0] if one else "change" for one in numbers)]
    rows = [
        [
            "baseline" if row["index"] == 0 else f"#{row['index']}",
            *(cells[key][at] for key in differing),
            *(_number(row, column, goal, base_value) for column in numbers),
        ]
        for at, row in enumerate(shown.to_dict("records"))
    ]
    title = f"{title} (fidelity {', '.join(dict.fromkeys(shown['fidelity']))})"
    same = [f"{names[key]} {cells[key][0]}" for key in keys if key not in differing]
    alike = [text.paragraph(f"All of these: {', '.join(same)}")] if same else []
    best = best_first(frame[feasible(frame, about)], goal, about["stages"])
    bars = [text.paragraph(_bar_line(best, goal))] if goal.column in _TIMES else []
    return [text.table(title, columns, rows, left=1 + len(differing)), *alike, *bars]


def _shown(frame: pd.DataFrame, about: About) -> tuple[pd.DataFrame, str]:
    """Return the points to show and their title: the best by one goal, or the Pareto front of several."""
    goals = goals_of(frame, about)
    titles = [SHOWN[goal.column][0] for goal in goals]
    if len(goals) > 1:
        front = front_of(frame, about)
        more = f", the first {FRONT} of {len(front):,}" if len(front) > FRONT else ""
        return front.head(FRONT), f"Pareto front of {' and '.join(titles)}{more}"
    best = best_first(frame[feasible(frame, about)], goals[0], about["stages"])
    of = f"The best {BEST} of {len(best):,}" if len(best) > BEST else "Points"
    return best.head(BEST), f"{of} by {titles[0]}"


def _value(row: Mapping[Any, Any], key: str, about: About) -> str:
    """Return a point's value of a key; for the baseline the scenario's own."""
    own = about.get("as_it_is", {}) if row["index"] == 0 else {}
    return str(own.get(key, "-")) if pd.isna(row[key]) else str(row[key])


def _numbers_shown(keys: int, goals: Sequence[Goal]) -> list[str]:
    """Return the measures that fit into 80 columns next to this many keys; "" is the change of the first goal."""
    goal = goals[0]
    if len(goals) > 1:
        return [*(one.column for one in goals), *([""] if keys <= 4 else [])]
    told = [] if goal.column in ("step_ns", "samples_per_s") else [goal.column]
    if keys <= 3:
        return ["step_ns", "samples_per_s", *told, "", "exposed_share", *(["memory_spare_bytes"] if not told else [])]
    return ["step_ns", "samples_per_s", *told, ""] if keys == 4 - len(told) else [goal.column, ""]


def _number(row: Mapping[Any, Any], column: str, goal: Goal, base: float) -> str:
    return SHOWN[column][1](row[column]) if column else text.signed_percent(row[goal.column] / base - 1)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last part, or as many parts as make it unique."""
    names = {}
    for key in keys:
        parts = key.split(".")
        endings = [".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1)]
        names[key] = next(
            (one for one in endings if not any(other != key and f".{other}".endswith(f".{one}") for other in keys)), key
        )
    return names


def _failures(frame: pd.DataFrame) -> list[RenderableType]:
    found = failures(frame)
    if not len(found):
        return []
    lines = [
        f"{row['points']:,} x {row['status']}, such as #{row['index']}: {row['sentence']}"
        for row in found.head(BEST).to_dict("records")
    ]
    if len(found) > BEST:
        lines.append(f"and {len(found) - BEST:,} other reasons")
    return [text.paragraph("\n".join(["Failed:", *lines]))]
