"""The page of a validation: the errors of its scenarios' predictions, and the operations that cause them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.page import theme
from reports.page.blocks import Chart, Page, PageBlock
from reports.page.compare import error_charts
from reports.page.compare.error_charts import COLORS
from reports.sections.comparison import SIDES, TIMES, TITLES
from reports.sections.model import Cell, Fact, Facts, PageLink, ReportTable, Shown, Words
from reports.terminal import text
from reports.terminal.rows import cells, operation_name, records
from reports.validation.folder import Validated

_BARS = 30
_ROWS = 200
_LIBRARIES = ("gloo", "nccl")
_EXPLAINED = """An error is predicted / measured - 1, of median steps: below zero the prediction is too fast."""
_SCATTER_NOTE = """A dot is a scenario: its median step. Bars are the 95 % intervals of the medians. The bands are 10 %
and 25 % around where both are the same; below, the prediction is too fast."""
_OPERATIONS_NOTE = """The median over the scenarios that have the operation; what makes up most of a step's error
stands on top."""


def page(found: Validated) -> Page:
    """Return the whole page, for the validation's folder."""
    head = found.head
    machine = ", ".join(str(value) for value in head.get("machine", {}).values())
    about = [f"{text.counted(len(found.scenarios), 'scenario')}, begun {head.get('started', 'at an unknown time')}"]
    if not head.get("is_complete", True):
        about.append("ENDED EARLY: not every scenario had its turn")
    versions = ", ".join(f"{name} {version}" for name, version in head.get("versions", {}).items())
    foot = [str(head.get("command", "")), f"on {machine}" if machine else "", versions]
    return Page(title=f"Validation {found.folder.resolve().name}", about=about, sections=sections(found), foot=foot)


def sections(found: Validated) -> list[Shown]:
    """Return the sections, from the headline to single operations."""
    return [_summary(found), _scatter(found), _scenarios(found), _operations(found)]


def _known(found: Validated) -> pd.DataFrame:
    kept: pd.DataFrame = found.scenarios[found.scenarios["error"].notna().to_numpy(bool)]
    return kept


def _summary(found: Validated) -> Shown:
    known, title = _known(found), "Accuracy"
    notes = [f"{row['scenario']}: ended early: {row['ended']}" for row in records(found.scenarios) if row["ended"]]
    if noisy := int(found.scenarios["is_too_noisy"].sum()):
        notes.append(f"{text.counted(noisy, 'scenario')} measured less precisely than was asked for")
    if not len(known):
        return Shown("summary", title, [Words("No scenario has both a prediction and a measurement.", notes)])
    errors = statistics.errors(known["error"].tolist())
    worst = str(known["scenario"].iloc[int(known["error"].abs().to_numpy().argmax())])
    inside = f"{int(known['inside'].sum())} of {len(known)}"
    facts = [
        Fact("signed median", text.signed_percent(errors.signed_median), "is there a bias?", errors.signed_median),
        Fact("median", text.percent(errors.median), "of the errors' sizes", errors.median),
        Fact("95th percentile", text.percent(errors.p95), "of the errors' sizes", errors.p95),
        Fact("worst", text.signed_percent(errors.worst), worst, errors.worst),
        Fact("inside", inside, "measured medians within the predicted p10-p90"),
    ]
    return Shown("summary", title, [Facts(facts), Words(_EXPLAINED, notes)])


def _scatter(found: Validated) -> Shown:
    known, title = _known(found), "Predicted against measured"
    if not len(known):
        return Shown("scatter", title, absent="No scenario has both a prediction and a measurement.")
    points = known.rename(columns={"scenario": "name", "library": "group"})
    for side in SIDES:
        median = known[f"{side}_median_ns"]
        bounds = {f"{side}_{end}": known[f"{side}_median_{end}_ns"].fillna(median) for end in ("low", "high")}
        points = points.assign(**{side: median}, **bounds)
    drawn = error_charts.scatter(points, dict(zip(_LIBRARIES, (theme.EXPOSED, theme.COMPUTE), strict=True)))
    return Shown("scatter", title, [Chart("scatter", "Median step of each scenario", drawn, _SCATTER_NOTE)])


def _scenarios(found: Validated) -> Shown:
    known, title = _known(found), "Errors by scenario"
    if not len(found.scenarios):
        return Shown("scenarios", title, absent="No scenario had its turn.")
    blocks: list[PageBlock] = []
    if len(known):
        ordered = known.loc[known["error"].abs().sort_values(ascending=False, kind="stable").index].head(_BARS)
        blocks.append(_scenario_chart(ordered, len(known)))
    return Shown("scenarios", title, [*blocks, _scenario_table(found)])


def _scenario_table(found: Validated) -> ReportTable:
    pages = [[_page_of(found.folder, name, side) for side in SIDES] for name in found.scenarios["scenario"]]
    has_pages = any(any(cells) for cells in pages)
    rows = [
        _scenario_row(row, cells if has_pages else [])
        for row, cells in zip(records(found.scenarios), pages, strict=True)
    ]
    page_columns = ["timelines", ""] if has_pages else []
    times = [name for side in SIDES for name in (side, "p10-p90")]
    columns = ["scenario", *page_columns, *times, "error", "inside", "noisy"]
    return ReportTable("All scenarios", columns, rows, left=1 + len(page_columns))


def _scenario_chart(shown: pd.DataFrame, count: int) -> Chart:
    drawn = error_charts.error_bars(
        shown["scenario"].tolist(),
        shown["error"],
        [theme.EXPOSED] * len(shown),
        {
            "predicted": [text.duration(ns) for ns in shown["predicted_median_ns"]],
            "measured": [text.duration(ns) for ns in shown["measured_median_ns"]],
            "interval": _errors_between(shown["error_low"], shown["error_high"]),
        },
    )
    of = f", the {len(shown)} greatest of {count}" if len(shown) < count else ""
    return Chart("scenarios", f"Signed errors{of}", drawn, "Half and twice are equally far from zero.")


def _scenario_row(row: dict[str, Any], pages: Sequence[Cell]) -> Sequence[Cell]:
    times = []
    for side in SIDES:
        times += [text.duration(row[f"{side}_median_ns"]), text.interval(row[f"{side}_low_ns"], row[f"{side}_high_ns"])]
    inside = "-" if np.isnan(row["error"]) else "yes" if row["inside"] else "no"
    noisy = "yes" if row["is_too_noisy"] else "no"
    return [row["scenario"], *pages, *times, text.signed_percent(row["error"]), inside, noisy]


def _errors_between(low: pd.Series, high: pd.Series) -> list[str]:
    return [text.interval(*pair, form=text.signed_percent) for pair in zip(low, high, strict=True)]


def _page_of(folder: Path, scenario: str, side: str) -> Cell:
    """Return a link to a run's own page, "" if it has none."""
    path = Path(scenario, side, "reports", "report.html")
    return PageLink(side, quote(path.as_posix())) if (folder / path).is_file() else ""


def _operations(found: Validated) -> Shown:
    title = "Errors by operation"
    frame = found.operations[found.operations["error"].notna().to_numpy(bool)]
    if not len(frame):
        return Shown("operations", title, absent="No operation was both predicted and measured.")
    named = frame.assign(name=[operation_name(row) for row in records(frame)], size=frame["error_of_step"].abs())
    of_name = named.groupby("name", sort=True)
    each = of_name.agg(
        error=("error", "median"),
        error_of_step=("error_of_step", "median"),
        size=("size", "median"),
        part=("part", "first"),
        scenarios=("scenario", "nunique"),
        low=("error", "min"),
        high=("error", "max"),
    )
    shown = each.sort_values("size", ascending=False, kind="stable").head(_BARS)
    drawn = error_charts.error_bars(
        shown.index.tolist(),
        shown["error"],
        [COLORS[part] for part in shown["part"]],
        {
            "least to greatest": _errors_between(shown["low"], shown["high"]),
            "difference, of the step": [text.signed_percent(share) for share in shown["error_of_step"]],
            "scenarios": [str(count) for count in shown["scenarios"]],
        },
    )
    of = f", the {len(shown)} of {len(each)} that matter most" if len(shown) < len(each) else ""
    chart = Chart("operations", f"Signed errors{of}", drawn, _OPERATIONS_NOTE)
    return Shown("operations", title, [chart, _operation_table(named)])


def _operation_table(named: pd.DataFrame) -> ReportTable:
    ordered = named.sort_values("size", ascending=False, kind="stable")
    shown = ordered.assign(part=ordered["part"].map(TITLES)).head(_ROWS)
    rows = cells(shown, ["name", "scenario", "part", *TIMES, "error_of_step"])
    more = f": the first {_ROWS} of {len(ordered):,}" if len(ordered) > _ROWS else f": {len(ordered):,}"
    columns = ["operation", "scenario", "part", *TIMES.values(), "of the step"]
    return ReportTable(f"Each in its scenario{more}", columns, rows, left=3, folded=True)
