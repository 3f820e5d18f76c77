"""The page of a study: tables of its named and best points, and all points to filter, by a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports.page.blocks import Chart, Own, Page
from reports.page.study import front
from reports.page.study.payload import ABSENT, FIRST, labels_of, links, named_points, payload
from reports.sections.model import Block, Cell, Listing, PageLink, ReportTable, Shown, View, Words
from reports.study.frame import Goal, baseline_of, best_first, goals_of, pareto
from reports.study.measures import SHOWN
from reports.study.options import command, option
from reports.study.tables import BEST, failures, headline, short_names
from reports.terminal import text

About = Mapping[str, Any]  # the content of study.json

_WIDTH = 40  # letters of a value in a table
_NAMES = {
    "best": "best: by {goal}",
    "knee": "knee: the point of the front of {goals} that is farthest, to the better side, from the line between its"
    " ends, each goal scaled to its best and worst on the front",
    "baseline": "baseline: the scenario as it is",
}
_SCRIPTS = ("study/points.js", "study/parallel.js", "study/levels.js", "study/table.js", "study/study.js")


def page(frame: pd.DataFrame, about: About, folder: Path, away: str = "") -> Page:
    """Return the whole page; `folder` is the study's, `away` the path from the page to that folder."""
    none = _nothing(frame)
    keys = about["keys"]
    sections = [
        _glance(frame, about, [away + href if href else "" for href in links(frame, folder)]),
        *(_of_charts(keys) if not none else []),
        Shown("points", "All points", [View("table", _TABLE)]) if len(frame) else _empty(none),
        _failures(frame),
    ]
    lines = [headline(frame), f"Variations of {about['scenario']}."]
    foot = ["All numbers here are those of the data set in rows/, of which every column is in docs/study.md."]
    own = Own(["study/study.css"], _SCRIPTS, payload(frame, about, folder, away)) if len(frame) else Own()
    return Page(title=Path(about["study"]).stem, about=lines, sections=sections, foot=foot, own=own)


_TABLE = (
    "Column heads sort. Under them: part of a text, or >5, <=5, =5, 5..10. A point's number chooses it. Filters are"
    " those of all charts, too."
)
_FRONT = (
    "Line: the points than which no shown one is as good in both and better in one. A click chooses a point. Faint:"
    " filtered out."
)
_PARALLEL = (
    "A line for each point, the better the stronger; of a measure the better end is above. A point's place within"
    " a value is by its goal. Drag along an axis to filter, click it for all; or focus it, and use arrow keys"
    " (shift: the other end), Escape."
)
_LEVELS = (
    "Bar: from the least to the most of the points shown; mark and number: their median; a dash: as in the scenario."
    " The keys with the most effect come first. A click on a value filters by it."
)
_PAIR = "Of the points shown. A click on a square filters by its two values."


def _of_charts(keys: Sequence[str]) -> list[Shown]:
    drawn = Chart("front", "", front.figure(), _FRONT)
    one = "Only one key is varied."
    return [
        Shown("front", "Pareto front", [View("axes"), drawn]),
        Shown("parallel", "Parallel coordinates", [View("parallel", _PARALLEL)]),
        Shown("keys", "Each key against the goal", [View("levels", _LEVELS)]),
        Shown("pair", "Two keys", [View("pair", _PAIR)]) if len(keys) > 1 else Shown("pair", "Two keys", absent=one),
    ]


def _nothing(frame: pd.DataFrame) -> str:
    return "" if (frame["status"] == "done").any() else "No point came out."


def _empty(none: str) -> Shown:
    return Shown("points", "All points", absent=none or "There are no points.")


def _glance(frame: pd.DataFrame, about: About, hrefs: Sequence[str]) -> Shown:
    if none := _nothing(frame):
        return Shown("glance", "At a glance", absent=none)
    goals, named = goals_of(frame, about), named_points(frame, about)
    titles = [SHOWN[goal.column][0] for goal in goals]
    said = [_NAMES[name].format(goal=titles[0], goals=" and ".join(titles)) for name in named]
    blocks: list[Block] = [_named(frame, about, hrefs, named), Words("", said), *_commands(frame, about, named)]
    return Shown("glance", "At a glance", [*blocks, _best(frame, about, hrefs, goals)])


def _named(frame: pd.DataFrame, about: About, hrefs: Sequence[str], named: Mapping[str, pd.DataFrame]) -> ReportTable:
    """Return a table with a column for each named point."""
    place = {index: at for at, index in enumerate(frame["index"].tolist())}
    at = [place[int(row["index"].iloc[0])] for row in named.values()]
    rows: list[list[Cell]] = [["point", *(_point(frame, one, hrefs) for one in at)]]
    for key, title in short_names(about["keys"]).items():
        labels = labels_of(frame, key, about)
        rows.append([title, *(text.shortened(labels[one], _WIDTH) for one in at)])
    for title, form, values in _numbers(frame, about):
        rows.append([title, *(form(values[one]) for one in at)])
    return ReportTable(
        "Named points", ["", *named], rows, raw={name: float(one) for name, one in _indices(named).items()}
    )


def _indices(named: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    return {name: int(row["index"].iloc[0]) for name, row in named.items()}


def _point(frame: pd.DataFrame, at: int, hrefs: Sequence[str]) -> Cell:
    words = f"#{frame['index'].iloc[at]}"
    return PageLink(words, hrefs[at]) if hrefs[at] else words


def _numbers(frame: pd.DataFrame, about: About) -> list[tuple[str, Callable[[float], str], list[float]]]:
    """Return the measures of tables, goals first, then the first goal's change against the baseline."""
    goals = goals_of(frame, about)
    names = dict.fromkeys([*(goal.column for goal in goals), *FIRST])
    shown = [(*SHOWN[name], frame[name].tolist()) for name in names if frame[name].notna().any()]
    base = baseline_of(frame)[goals[0].column]
    if len(base):
        change = (frame[goals[0].column] / float(base.iloc[0]) - 1).tolist()
        shown.append((f"{SHOWN[goals[0].column][0]}, change", text.signed_percent, change))
    return shown


def _commands(frame: pd.DataFrame, about: About, named: Mapping[str, pd.DataFrame]) -> list[Listing]:
    place = {index: at for at, index in enumerate(frame["index"].tolist())}
    lines = []
    for name, row in named.items():
        at = place[int(row["index"].iloc[0])]
        values = {key: labels_of(frame, key, about)[at] for key in about["keys"]} if name != "baseline" else {}
        options = [option(key, one) for key, one in values.items() if one != ABSENT]
        lines.append(f"# {name}\n{' '.join([command(about, row['fidelity'].iloc[0]), *options])}")
    return [Listing("Commands that predict them", "\n".join(lines))]


def _best(frame: pd.DataFrame, about: About, hrefs: Sequence[str], goals: Sequence[Goal]) -> ReportTable:
    best = best_first(frame, goals[0], about["stages"])
    place = {index: at for at, index in enumerate(frame["index"].tolist())}
    rows = [place[index] for index in best["index"].tolist()[:BEST]]
    labels = {title: labels_of(frame, key, about) for key, title in short_names(about["keys"]).items()}
    numbers = _numbers(frame, about)
    cells: list[list[Cell]] = [
        [
            _point(frame, at, hrefs),
            *(text.shortened(values[at], _WIDTH) for values in labels.values()),
            *(form(values[at]) for _, form, values in numbers),
        ]
        for at in rows
    ]
    title = f"The best {len(rows)} of {text.counted(len(best), 'point')} by {SHOWN[goals[0].column][0]}"
    if len(goals) > 1:
        title += f"; {len(pareto(best, goals)):,} are on the front"
    return ReportTable(title, ["", *labels, *(name for name, _, _ in numbers)], cells, left=1 + len(labels))


def _failures(frame: pd.DataFrame) -> Shown:
    found = failures(frame)
    if not len(found):
        return Shown("failed", "Failed points", absent="No point failed.")
    rows = [
        [row["status"], f"{row['points']:,}", f"#{row['index']}", row["sentence"]] for row in found.to_dict("records")
    ]
    note = "By their sentences, but for numbers in them; each point has its own under All points."
    table = ReportTable("Why points failed", ["status", "points", "such as", "sentence"], rows, left=4, note=note)
    return Shown("failed", "Failed points", [table])
