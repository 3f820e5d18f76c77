"""The page of a validation: how far off the predictions of its scenarios were, and which operations made them so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.page import theme
from reports.page.blocks import Block, Cell, Chart, Fact, Facts, Link, Page, Section, Table, Words
from reports.page.compare import error_charts
from reports.page.compare.error_charts import COLORS, TITLES, Points
from reports.terminal import text
from reports.terminal.rows import operation_name, records
from reports.validation.folder import Validated

_BARS = 30
_ROWS = 200
_SIDES = ("predicted", "measured")
_LIBRARIES = ("gloo", "nccl")
_EXPLAINED = """An error is predicted / measured - 1, of median steps: below zero the prediction is too fast."""
_SCATTER_NOTE = """A dot is a scenario: its median step. Bars are the 95 % intervals of the medians. The bands are 10 %
and 25 % around where both are the same; below, the prediction is too fast."""
_OPERATIONS_NOTE = """The median over the scenarios that have the operation; what makes up most of a step's error
stands on top."""


def page(found: Validated) -> Page:
    """The whole page, to lie in the validation's folder."""
    head = found.head
    machine = ", ".join(str(value) for value in head.get("machine", {}).values())
    about = [f"{text.counted(len(found.scenarios), 'scenario')}, begun {head.get('started', 'at an unknown time')}"]
    if not head.get("is_complete", True):
        about.append("ENDED EARLY: not every scenario had its turn")
    versions = ", ".join(f"{name} {version}" for name, version in head.get("versions", {}).items())
    foot = [str(head.get("command", "")), f"on {machine}" if machine else "", versions]
    return Page(title=f"Validation {found.folder.resolve().name}", about=about, sections=sections(found), foot=foot)


def sections(found: Validated) -> list[Section]:
    """From the headline to single operations."""
    return [_summary(found), _scatter(found), _scenarios(found), _operations(found)]


def _known(found: Validated) -> pd.DataFrame:
    kept: pd.DataFrame = found.scenarios[found.scenarios["error"].notna().to_numpy(bool)]
    return kept


def _summary(found: Validated) -> Section:
    known, title = _known(found), "Accuracy"
    notes = [f"{row['scenario']}: ended early: {row['ended']}" for row in records(found.scenarios) if row["ended"]]
    if noisy := int(found.scenarios["is_too_noisy"].sum()):
        notes.append(f"{text.counted(noisy, 'scenario')} measured less precisely than was asked for")
    if not len(known):
        return Section("summary", title, [Words("No scenario has both a prediction and a measurement.", notes)])
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
    return Section("summary", title, [Facts(facts), Words(_EXPLAINED, notes)])


def _scatter(found: Validated) -> Section:
    known, title = _known(found), "Predicted against measured"
    if not len(known):
        return Section("scatter", title, absent="No scenario has both a prediction and a measurement.")
    middles = {side: known[f"{side}_median_ns"].to_numpy(float) for side in _SIDES}
    bounds = {
        f"{side}_{end}": known[f"{side}_median_{end}_ns"].fillna(known[f"{side}_median_ns"]).to_numpy(float)
        for side in middles
        for end in ("low", "high")
    }
    points = Points(names=known["scenario"].tolist(), groups=known["library"].tolist(), **middles, **bounds)
    drawn = error_charts.scatter(points, dict(zip(_LIBRARIES, (theme.EXPOSED, theme.COMPUTE), strict=True)))
    return Section("scatter", title, [Chart("scatter", "Median step of each scenario", drawn, _SCATTER_NOTE)])


def _scenarios(found: Validated) -> Section:
    known, title = _known(found), "Errors by scenario"
    if not len(found.scenarios):
        return Section("scenarios", title, absent="No scenario had its turn.")
    blocks: list[Block] = []
    if len(known):
        ordered = known.loc[known["error"].abs().sort_values(ascending=False, kind="stable").index].head(_BARS)
        blocks.append(_scenario_chart(ordered, len(known)))
    return Section("scenarios", title, [*blocks, _scenario_table(found)])


def _scenario_table(found: Validated) -> Table:
    pages = [[_page_of(found.folder, name, side) for side in _SIDES] for name in found.scenarios["scenario"]]
    has_pages = any(any(cells) for cells in pages)
    rows = [
        _scenario_row(row, cells if has_pages else [])
        for row, cells in zip(records(found.scenarios), pages, strict=True)
    ]
    page_columns = ["timelines", ""] if has_pages else []
    columns = [
        "scenario",
        *page_columns,
        "predicted",
        "p10-p90",
        "measured",
        "p10-p90",
        "error",
        "inside",
        "noisy",
    ]
    return Table("All scenarios", columns, rows, left=1 + len(page_columns))


def _scenario_chart(shown: pd.DataFrame, count: int) -> Chart:
    drawn = error_charts.error_bars(
        shown["scenario"].tolist(),
        shown["error"],
        [theme.EXPOSED] * len(shown),
        {
            "predicted": [text.duration(ns) for ns in shown["predicted_median_ns"]],
            "measured": [text.duration(ns) for ns in shown["measured_median_ns"]],
            "interval": [_between(*pair) for pair in zip(shown["error_low"], shown["error_high"], strict=True)],
        },
    )
    of = f", the {len(shown)} greatest of {count}" if len(shown) < count else ""
    return Chart("scenarios", f"Signed errors{of}", drawn, "Half and twice are equally far from zero.")


def _between(low: float, high: float) -> str:
    return "-" if np.isnan(low) else f"{text.signed_percent(low)} to {text.signed_percent(high)}"


def _scenario_row(row: dict[str, Any], pages: Sequence[Cell]) -> Sequence[Cell]:
    times = []
    for side in _SIDES:
        low, high = row[f"{side}_low_ns"], row[f"{side}_high_ns"]
        spread = "-" if np.isnan(low) else f"{text.duration(low)} to {text.duration(high)}"
        times += [text.duration(row[f"{side}_median_ns"]), spread]
    inside = "-" if np.isnan(row["error"]) else "yes" if row["inside"] else "no"
    noisy = "yes" if row["is_too_noisy"] else "no"
    return [row["scenario"], *pages, *times, text.signed_percent(row["error"]), inside, noisy]


def _page_of(folder: Path, scenario: str, side: str) -> Cell:
    """A run's own page, where there is one."""
    path = Path(scenario, side, "reports", "report.html")
    return Link(side, quote(path.as_posix())) if (folder / path).is_file() else ""


def _operations(found: Validated) -> Section:
    title = "Errors by operation"
    frame = found.operations[found.operations["error"].notna().to_numpy(bool)]
    if not len(frame):
        return Section("operations", title, absent="No operation was both predicted and measured.")
    named = frame.assign(name=[operation_name(row) for row in records(frame)], size=frame["error_of_step"].abs())
    of_name = named.groupby("name", sort=True)
    each = (
        of_name[["error", "error_of_step", "size"]]
        .median()
        .assign(
            part=of_name["part"].first(),
            scenarios=of_name["scenario"].nunique(),
            low=of_name["error"].min(),
            high=of_name["error"].max(),
        )
    )
    shown = each.sort_values("size", ascending=False, kind="stable").head(_BARS)
    drawn = error_charts.error_bars(
        shown.index.tolist(),
        shown["error"],
        [COLORS[part] for part in shown["part"]],
        {
            "least to greatest": [_between(*pair) for pair in zip(shown["low"], shown["high"], strict=True)],
            "difference, of the step": [text.signed_percent(share) for share in shown["error_of_step"]],
            "scenarios": [str(count) for count in shown["scenarios"]],
        },
    )
    of = f", the {len(shown)} of {len(each)} that matter most" if len(shown) < len(each) else ""
    chart = Chart("operations", f"Signed errors{of}", drawn, _OPERATIONS_NOTE)
    return Section("operations", title, [chart, _operation_table(named)])


def _operation_table(named: pd.DataFrame) -> Table:
    ordered = named.sort_values("size", ascending=False, kind="stable")
    rows = [
        [
            row["name"],
            row["scenario"],
            TITLES[row["part"]],
            text.duration(row["predicted_ns"]),
            text.duration(row["measured_ns"]),
            text.signed_percent(row["error"]),
            text.signed_percent(row["error_of_step"]),
        ]
        for row in records(ordered.head(_ROWS))
    ]
    more = f": the first {_ROWS} of {len(ordered):,}" if len(ordered) > _ROWS else f": {len(ordered):,}"
    columns = ["operation", "scenario", "part", "predicted", "measured", "error", "of the step"]
    return Table(f"Each in its scenario{more}", columns, rows, left=3, folded=True)
