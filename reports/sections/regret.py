"""The report of how well predictions choose: the best points as measured, regret by value, the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.sections.model import Report, ReportSection, ReportTable, Words, table_of
from reports.study.frame import short_names
from reports.study.measures import SHOWN
from reports.study.regret import regret_by_value, regret_of, value_text
from reports.terminal import text
from reports.terminal.rows import records

_BEST = 10
_SHORTLISTS = (1, 2, 3, 5, 10)  # numbers of points


@dataclass(frozen=True, slots=True)
class RegretView:
    """The `judged` points of a study, its varied keys and the goal by which predictions choose."""

    points: pd.DataFrame
    keys: Sequence[str]
    goal: str

    @property
    def by_value(self) -> pd.DataFrame:
        """The regret where one key's value is given."""
        return regret_by_value(self.points, self.keys)


def _best(view: RegretView) -> Iterator[ReportTable]:
    """Yield a table of the fastest points as measured, and the predicted best."""
    points, place = view.points, view.points["predicted_ns"].rank(method="min").astype(int)
    ranked = points.assign(place=place).sort_values(["measured_ns", "index"])
    shown = ranked[(np.arange(len(ranked)) < _BEST) | (ranked["place"] == 1).to_numpy(bool)]
    names, (title, form) = short_names(view.keys), SHOWN[view.goal]
    differing = [key for key in view.keys if shown[key].map(value_text).nunique() > 1]
    rows = []
    for row in records(shown):
        times = row["measured_ns"], row["predicted_ns"]
        numbers = [form(1e9 / ns if view.goal == "samples_per_s" else ns) for ns in times]
        values = [value_text(row[key]) for key in differing]
        rows.append([f"#{row['index']}", *values, *numbers, text.signed_percent(row["error"]), str(row["place"])])
    columns = ["", *(names[key] for key in differing), "measured", "predicted", "error", "place"]
    of = f"The best {_BEST} of {len(points):,}" if len(points) > _BEST else "Points"
    about = f"{of} as measured, in {title}; the predicted time's error, and its place among predictions"
    yield ReportTable(about, columns, rows, left=1 + len(differing))


def _by_value(view: RegretView) -> Iterator[ReportTable]:
    found = view.by_value.assign(key=lambda frame: frame["key"].map(short_names(view.keys)))
    columns = {"key": "key", "value": "value", "point_count": "points", "regret": "regret"}
    if len(found):
        shown = found.assign(regret=found["regret"].map(text.percent))
        yield table_of("Regret where a value is given", shown, columns, left=2)


def shortlists(points: pd.DataFrame) -> pd.DataFrame:
    """Return the regret if the first `count` points by prediction are measured and the best of them, `index`, taken."""
    ordered, least_ns = points.sort_values(["predicted_ns", "index"]), points["measured_ns"].min()
    rows = []
    for count in (one for one in _SHORTLISTS if one < len(points)):
        best = ordered.head(count).sort_values(["measured_ns", "index"]).iloc[0]
        rows.append((count, int(best["index"]), float(best["measured_ns"] / least_ns - 1)))
    return pd.DataFrame(rows, columns=["count", "index", "regret"])


def _shortlists(view: RegretView) -> Iterator[ReportTable]:
    found = shortlists(view.points)
    shown = found.assign(index=found["index"].map("#{}".format), regret=found["regret"].map(text.percent))
    columns = {"count": "measured", "index": "the best", "regret": "regret"}
    if len(found):
        yield table_of("Regret where the first points by prediction are measured", shown, columns, left=0)


def _verdict(view: RegretView) -> Iterator[Words]:
    found = regret_of(view.points)
    pairs = [
        f"{one.right:,} of {one.count:,} pairs ({text.percent(one.share)}) that differ by more than"
        f" {100 * one.difference:g} %"
        for one in found.pairs
    ]
    lines = [
        f"Regret: {text.percent(found.regret)}: the predicted best (#{found.predicted_best}) takes that much longer"
        f" than the measured best (#{found.measured_best}) of {text.count_words(found.point_count, 'point')}",
        f"In the right order: {', '.join(pairs)}",
        f"Rank correlation: Spearman {found.spearman:.3f}, Kendall {found.kendall:.3f}",
        f"Errors of times: median {text.signed_percent(found.errors.signed_median)}; absolute: median"
        f" {text.percent(found.errors.median)}, 95th percentile {text.percent(found.errors.p95)}; worst"
        f" {text.signed_percent(found.errors.worst)}. Rounds of a point differ by"
        f" ±{text.percent(found.disagreement)} in the median",
    ]
    yield Words("\n".join(lines), strong=True)


def _numbers(view: RegretView) -> dict[str, Any]:
    found = regret_of(view.points)
    return {**asdict(found), "pairs": [{**asdict(one), "share": one.share} for one in found.pairs]}


REGRET = Report(
    lines=lambda view: [],
    data=lambda view: {"goal": view.goal},
    sections=[
        ReportSection(
            "best",
            "The best points",
            [_best],
            data=lambda view: {"points": view.points.astype(object).where(view.points.notna(), None)},
        ),
        ReportSection("by_value", "Regret by value", [_by_value], data=lambda view: {"by_value": view.by_value}),
        ReportSection(
            "shortlists", "Shortlists", [_shortlists], data=lambda view: {"shortlists": shortlists(view.points)}
        ),
        ReportSection("verdict", "Regret", [_verdict], data=_numbers),
    ],
)
