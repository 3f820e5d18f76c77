"""The report of a study: its named and its best points, all points to filter, and why others failed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.sections import model
from reports.study.frame import (
    ABSENT,
    Goal,
    baseline_of,
    best_first,
    command,
    feasible,
    front_of,
    goals_of,
    labels_of,
    named_points,
    option,
    pareto,
    short_names,
)
from reports.study.measures import SHOWN
from reports.terminal import text
from reports.terminal.rows import records

About = Mapping[str, Any]  # what study.json says

BEST, FRONT = 10, 20  # as many are shown
_WIDTH = 40  # letters of a value in a table
# Goals that are as far off as a step's time is.
_TIMES = frozenset({"step_ns", "samples_per_s", "usd_per_1e9_samples", "kwh_per_1e9_samples"})
_NUMBERS = re.compile(r"\d[\d.,]*")
# Shown at first; a reader adds others.
FIRST = ("step_ns", "uncertainty_share", "samples_per_s", "usd_per_1e9_samples", "kwh_per_1e9_samples", "exposed_share",
          "memory_spare_bytes", "world_size")  # fmt: skip
_NAMES = {
    "best": "best: by {goal}",
    "knee": "knee: the point of the Pareto front of {goals} that is farthest, on the better side, from the line between"
    " the front's ends, with each goal scaled to its range on the front",
    "baseline": "baseline: the unchanged scenario",
}
_NOTHING = "No point completed."
_TABLE = (
    "Click a column's head to sort by it. Filter in the fields below by part of a text, or by >5, <=5, =5, 5..10. Click"
    " a point's number to select the point. Filters apply to all charts."
)
_PARALLEL = (
    "One line per point, stronger for better points; the better end of each measure's axis is at the top. Points with"
    " the same value are ordered by their goal. Drag along an axis to filter, click the axis to reset its filter; or"
    " focus the axis and use the arrow keys (shift: the other end) and Escape."
)
_LEVELS = (
    "Bar: range of the points shown; mark and number: their median; a dash: the scenario's own value. Keys with the"
    " largest effect come first. Click a value to filter by it."
)
_PAIR = "Only the points shown count. Click a square to filter by its two values."
_FAILED = "Grouped by sentence, numbers in it ignored; the sentence of each point is under All points."


@dataclass(frozen=True, slots=True)
class StudyView:
    """A study's points, and for each what leads to its run from the page, "" without one.

    `folder` is how the study's folder is called in JSON.
    """

    frame: pd.DataFrame
    about: About
    folder: str = ""
    hrefs: Sequence[str] = ()

    @property
    def goals(self) -> list[Goal]:
        """The study's goals; the first one orders the points."""
        return goals_of(self.frame, self.about)

    @property
    def keys(self) -> dict[str, str]:
        """The keys that points vary, with their short names."""
        return short_names(self.about["keys"])

    @property
    def has_results(self) -> bool:
        """Whether any point came out."""
        return bool((self.frame["status"] == "done").any())

    def at(self, rows: pd.DataFrame) -> list[int]:
        """Return where in the frame points stand, of which `rows` have the indices."""
        place = {index: at for at, index in enumerate(self.frame["index"].tolist())}
        return [place[index] for index in rows["index"].tolist()]

    def labels(self, width: int = 0) -> dict[str, list[str]]:
        """Return each point's values of the keys as text, by key; cut to `width` if it is given."""
        each = {key: labels_of(self.frame, key, self.about) for key in self.keys}
        return {key: [text.shorten(one, width or len(one)) for one in own] for key, own in each.items()}

    def points(self, rows: pd.DataFrame) -> list[model.Cell]:
        """Return points' names, as links to their runs' pages where there are any."""
        words = [(f"#{self.frame['index'].iloc[at]}", self.hrefs[at]) for at in self.at(rows)]
        return [model.PageLink(*pair) if pair[1] else pair[0] for pair in words]


def _show_named_points(view: StudyView) -> Iterator[model.Block]:
    """Yield a column for each named point, what the names mean, and the commands that predict them."""
    named, about = named_points(view.frame, view.about), view.about
    points = pd.concat(named.values())
    at, raw = view.at(points), {name: float(row["index"].iloc[0]) for name, row in named.items()}
    rows: list[list[model.Cell]] = [["point", *view.points(points)]]
    rows += [[title, *(own[one] for one in at)] for title, own in view.labels(_WIDTH).items()]
    rows += [[title, *(form(values[one]) for one in at)] for title, form, values in _measures(view)]
    yield model.ReportTable("Named points", ["", *named], rows, raw=raw)
    titles = [SHOWN[goal.column][0] for goal in view.goals]
    yield model.Words("", [_NAMES[name].format(goal=titles[0], goals=" and ".join(titles)) for name in named])
    lines, labels = [], view.labels()
    for name, one, fidelity in zip(named, at, points["fidelity"], strict=True):
        values = {key: own[one] for key, own in labels.items() if own[one] != ABSENT and name != "baseline"}
        lines.append(f"# {name}\n{' '.join([command(about, fidelity), *(option(*each) for each in values.items())])}")
    yield model.Listing("Commands that predict them", "\n".join(lines))


def _measures(view: StudyView) -> list[tuple[str, Callable[[float], str], list[float]]]:
    """Return the measures that tables show: goals first, then the first goal's change from the baseline."""
    frame, goals = view.frame, view.goals
    names = dict.fromkeys([*(goal.column for goal in goals), *FIRST])
    shown = [(*SHOWN[name], frame[name].tolist()) for name in names if frame[name].notna().any()]
    base = baseline_of(frame)[goals[0].column]
    if len(base):
        change = (frame[goals[0].column] / float(base.iloc[0]) - 1).tolist()
        shown.append((f"{SHOWN[goals[0].column][0]}, change", text.signed_percent, change))
    return shown


def _best(view: StudyView) -> Iterator[model.ReportTable]:
    goals, labels, measures = view.goals, view.labels(_WIDTH), _measures(view)
    best = best_first(view.frame, goals[0], view.about["stages"])
    shown = best.head(BEST)
    rows = [
        [point, *(own[at] for own in labels.values()), *(form(values[at]) for _, form, values in measures)]
        for point, at in zip(view.points(shown), view.at(shown), strict=True)
    ]
    title = f"The best {len(rows)} of {text.count_words(len(best), 'point')} by {SHOWN[goals[0].column][0]}"
    if len(goals) > 1:
        title += f"; {len(pareto(best, goals)):,} are on the front"
    yield model.ReportTable(title, ["", *labels, *(name for name, _, _ in measures)], rows, left=1 + len(labels))


def _beside_baseline(view: StudyView) -> Iterator[model.Block]:
    """Yield the best points, or the front of several goals, beside the baseline, as far as there is room."""
    frame, about, goals = view.frame, view.about, view.goals
    goal, (whole, title) = goals[0], _points_to_show(view)
    if not len(whole):
        return
    base = baseline_of(frame)
    shown = whole if not len(base) or 0 in whole["index"].tolist() else pd.concat([whole, base])
    base_value, at = float(base[goal.column].iloc[0]) if len(base) else float("nan"), view.at(shown)
    cells = {view.keys[key]: [own[one] for one in at] for key, own in view.labels().items()}
    differing = {name: own for name, own in cells.items() if len(set(own)) > 1}
    numbers = _numbers_shown(len(differing), goals)
    columns = ["", *differing, *(SHOWN[one][0] if one else "change" for one in numbers)]
    rows = [
        [
            "baseline" if row["index"] == 0 else f"#{row['index']}",
            *values,
            *(_number(row, column, goal, base_value) for column in numbers),
        ]
        for row, *values in zip(shown.to_dict("records"), *differing.values(), strict=True)
    ]
    title = f"{title} (fidelity {', '.join(dict.fromkeys(shown['fidelity']))})"
    yield model.ReportTable(title, columns, rows, left=1 + len(differing))
    if same := [f"{name} {own[0]}" for name, own in cells.items() if name not in differing]:
        yield model.Words(f"All of these: {', '.join(same)}")
    if goal.column in _TIMES:
        yield model.Words(_bar_line(best_first(frame[feasible(frame, about)], goal, about["stages"]), goal))


def _points_to_show(view: StudyView) -> tuple[pd.DataFrame, str]:
    """Return the best points of one goal, or the Pareto front of several, as many as are shown, and their title."""
    frame, about, goals = view.frame, view.about, view.goals
    titles = [SHOWN[goal.column][0] for goal in goals]
    if len(goals) > 1:
        front = front_of(frame, about)
        more = f", the first {FRONT} of {len(front):,}" if len(front) > FRONT else ""
        return front.head(FRONT), f"Pareto front of {' and '.join(titles)}{more}"
    best = best_first(frame[feasible(frame, about)], goals[0], about["stages"])
    of = f"The best {BEST} of {len(best):,}" if len(best) > BEST else "Points"
    return best.head(BEST), f"{of} by {titles[0]}"


def _numbers_shown(keys: int, goals: Sequence[Goal]) -> list[str]:
    """Return the measures that a study's table shows beside `keys` columns of keys within 80 characters.

    "" stands for the first goal's change against the baseline.
    """
    goal = goals[0]
    if len(goals) > 1:
        return [*(one.column for one in goals), *([""] if keys <= 4 else [])]
    told = [] if goal.column in ("step_ns", "samples_per_s") else [goal.column]
    if keys <= 3:
        return ["step_ns", "samples_per_s", *told, "", "exposed_share", *(["memory_spare_bytes"] if not told else [])]
    return ["step_ns", "samples_per_s", *told, ""] if keys == 4 - len(told) else [goal.column, ""]


def _number(row: Mapping[Any, Any], column: str, goal: Goal, base: float) -> str:
    if column:
        return SHOWN[column][1](row[column])
    return text.signed_percent(row[goal.column] / base - 1 if base else math.nan)  # goodput may be 0


def _bar_line(best: pd.DataFrame, goal: Goal) -> str:
    near, share = within_bar(best, goal), float(best["uncertainty_share"].iloc[0])
    if not len(near):
        return "The uncertainty is unknown: this hardware has no calibration and no published step times."
    of = f"Points within the uncertainty of the best (±{text.percent(share)}): {len(near):,}"
    shown = ", ".join("baseline" if index == 0 else f"#{index}" for index in near["index"].tolist()[:BEST])
    return f"{of} ({shown}{', ...' if len(near) > BEST else ''})"


def within_bar(best: pd.DataFrame, goal: Goal) -> pd.DataFrame:
    """Return the points within the uncertainty of the best one, which is included; `best` is sorted by `best_first`.

    None where the uncertainty is not known, or the goal does not go with the time of a step.
    """
    bars = best["uncertainty_share"].to_numpy(float)
    if not len(best) or goal.column not in _TIMES or not bars[0] >= 0:
        return best.iloc[:0]
    values = best[goal.column].to_numpy(float)
    near: pd.DataFrame = best[np.abs(values - values[0]) <= bars[0] * abs(values[0])]
    return near


def headline(frame: pd.DataFrame) -> str:
    """Return a line with the number of points with results, and of those within the study's constraints."""
    points = frame[frame["index"] > 0]
    failed = int((points["status"] != "done").sum())
    same = len(points) - points["digest"].nunique()
    words = text.count_words(len(points), "point")
    words += f", {same:,} of them duplicates of others" if same else ""
    words += f"; {failed:,} failed" if failed else ""
    if "feasible" not in frame:
        return words
    return f"{words}; {int(points['feasible'].sum()):,} of {len(points) - failed:,} satisfy the constraints"


def plans(frame: pd.DataFrame) -> str:
    """Return how many points have other plans of the tables than the baseline; "" if none has, or no baseline is."""
    with_tables = frame[((frame["status"] == "done") & (frame["plan"].fillna("") != "")).to_numpy(bool)]
    base, points = baseline_of(with_tables)["plan"].tolist(), with_tables[(with_tables["index"] > 0).to_numpy(bool)]
    others = int((points["plan"] != base[0]).sum()) if base else 0
    if not others:
        return ""
    return (
        f"Tables are placed differently than in the baseline in {others:,} of {text.count_words(len(points), 'point')}:"
        ' the planner plans each point anew, unless "sharding.plan" in [set] names a plan to keep.'
    )


def _plans(view: StudyView) -> list[model.Words]:
    return [model.Words(said)] if (said := plans(view.frame)) else []


def notes(frame: pd.DataFrame) -> list[str]:
    """Return sentences on points with a result that may not mean what it seems."""
    noted = frame[((frame["status"] == "done") & (frame["sentence"] != "")).to_numpy(bool)]
    return [
        f"note: {text.count_words(row['points'], 'point')}, such as #{row['index']}: {row['sentence']}"
        for row in records(_by_sentence(noted))
    ]


def _notes(view: StudyView) -> list[model.Words]:
    return [model.Words(sentence) for sentence in notes(view.frame)]


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """`status`, `points` (how many), `index` (of the first) and its `sentence`, by sentences but for their numbers."""
    return _by_sentence(frame[(frame["status"] != "done").to_numpy(bool)])


def _by_sentence(rows: pd.DataFrame) -> pd.DataFrame:
    alike = rows["sentence"].map(lambda sentence: _NUMBERS.sub("#", sentence))
    grouped = rows.groupby([rows["status"], alike], sort=False)
    found = grouped.agg(points=("index", "size"), index=("index", "first"), said=("sentence", "first"))
    found = found.reset_index(level=0).rename(columns={"said": "sentence"})
    return found.sort_values("points", ascending=False, kind="stable").reset_index(drop=True)


def _failures(view: StudyView) -> Iterator[model.Words]:
    if len(found := failures(view.frame)):
        lines = [
            f"{row['points']:,} x {row['status']}, such as #{row['index']}: {row['sentence']}"
            for row in records(found.head(BEST))
        ]
        more = [f"and {len(found) - BEST:,} other reasons"] if len(found) > BEST else []
        yield model.Words("\n".join(["Failed:", *lines, *more]))


def _failure_table(view: StudyView) -> Iterator[model.ReportTable]:
    found = failures(view.frame)
    shown = found.assign(points=found["points"].map("{:,}".format), index=[f"#{index}" for index in found["index"]])
    columns = {"status": "status", "points": "points", "index": "such as", "sentence": "sentence"}
    yield model.table_of("Why points failed", shown, columns, left=4, note=_FAILED)


def _data(view: StudyView) -> dict[str, Any]:
    """Return all points, the indices of the best ones, the Pareto front and the baseline, and why points failed."""
    frame, about, goals = view.frame, view.about, view.goals
    best = best_first(frame[feasible(frame, about)], goals[0], about["stages"])
    return {
        "folder": view.folder,
        "goals": [goal.column for goal in goals],
        "points": frame.astype(object).where(frame.notna(), None),
        "best": best["index"].tolist()[:BEST],
        "within_bar": within_bar(best, goals[0])["index"].tolist(),
        "front": front_of(frame, about)["index"].tolist(),
        "baseline": next(iter(baseline_of(frame)["index"].tolist()), None),
        "failures": failures(frame),
    }


def _filled_by_script(*blocks: model.View | str) -> model.SectionPart:
    """Return blocks that the page's script fills, if any point has a result; a string names a figure."""
    return model.on_page(
        lambda view: [model.Figure(one, view) if isinstance(one, str) else one for one in blocks if view.has_results]
    )


STUDY = model.Report(
    lines=lambda view: [headline(view.frame)],
    data=_data,
    sections=[
        model.ReportSection(
            "glance",
            "At a glance",
            [
                model.on_page(_show_named_points),
                model.on_page(_best),
                model.on_terminal(_beside_baseline),
                model.on_terminal(_plans),
                _notes,
            ],
            absent=lambda view: "" if view.has_results else _NOTHING,
            absent_in=model.PAGE,
        ),
        model.ReportSection("front", "Pareto front", [_filled_by_script(model.View("axes"), "study.page.front")]),
        model.ReportSection("parallel", "Parallel coordinates", [_filled_by_script(model.View("parallel", _PARALLEL))]),
        model.ReportSection("keys", "Each key against the goal", [_filled_by_script(model.View("levels", _LEVELS))]),
        model.ReportSection(
            "pair",
            "Two keys",
            [_filled_by_script(model.View("pair", _PAIR))],
            absent=lambda view: "Only one key is varied." if len(view.keys) == 1 and view.has_results else "",
        ),
        model.ReportSection(
            "points",
            "All points",
            [model.on_page(lambda view: [model.View("table", _TABLE)])],
            absent=model.lacking(lambda view: view.frame, _NOTHING),
        ),
        model.ReportSection(
            "failed",
            "Failed points",
            [model.on_terminal(_failures), model.on_page(_failure_table)],
            absent=model.lacking(lambda view: failures(view.frame), "No point failed."),
            absent_in=model.PAGE,
        ),
    ],
)
