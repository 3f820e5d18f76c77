"""The page of a comparison: what its frames say of errors by operation, size and step, and where the worst ones are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS
from reports.compare.calls import errors_by_size
from reports.compare.checks import Check
from reports.compare.comparison import Comparison
from reports.compare.tables import (
    SIZE_ERRORS,
    TIMES,
    TIMES_COLUMNS,
    about,
    difference,
    sentence,
    size_ranges,
    typical_and_worst,
)
from reports.page.blocks import Chart, Page, PageBlock
from reports.page.compare import error_charts
from reports.page.compare.error_charts import COLORS, SIDES, TITLES
from reports.page.timeline import address
from reports.run import Run
from reports.sections.model import Cell, Fact, Facts, Link, Shown, Table, Words
from reports.terminal import text
from reports.terminal.rows import cells, operation_names, records

_BARS = 30
_ROWS = 200
_DIFFERENCES = 20

_SCATTER_NOTE = """A dot is an operation: the median of one rank in one step. Bars go from the 10th to the 90th
percentile over ranks and steps. The bands are 10 % and 25 % around where both are the same; below, the prediction is
too fast."""
_OPERATIONS_NOTE = """Below zero the prediction is too fast; half and twice are equally far from it. What differs by
most of a measured step stands on top. The numbers are in the table of all operations above."""
_SIZES_NOTE = """A dot is the median call of an operation with about so many bytes: what it sends, or what a computation
reads and writes. Lines are medians over all such operations."""
_WORST_NOTE = """Pairs of the same call of the same rank and step; of one call the rank that is furthest off, and at
most three of an operation. The last column is what both differ by, over the measured step."""


def page(comparison: Comparison, predicted_page: str, measured_page: str) -> Page:
    """The whole page; the paths of the two runs' own pages are relative to where it will lie, "" without one."""
    info = comparison.measured.info
    return Page(
        title=f"{info.name}: predicted against measured",
        about=[text.counted(info.world_size, "rank"), *about(comparison)[1:]],
        sections=sections(comparison, (predicted_page, measured_page)),
        foot=[_foot("predicted", comparison.predicted), _foot("measured", comparison.measured)],
    )


def places(comparison: Comparison) -> list[tuple[int, int]]:
    """The steps and ranks of the worst cases, which the runs' own pages must show."""
    return list(dict.fromkeys(zip(comparison.worst["step"].tolist(), comparison.worst["rank"].tolist(), strict=True)))


def sections(comparison: Comparison, pages: tuple[str, str]) -> list[Shown]:
    """From the headline to the checks; `pages` as `page` has them."""
    return [
        _summary(comparison),
        _scatter(comparison),
        _steps(comparison),
        _operations(comparison),
        _sizes(comparison),
        _worst(comparison, pages),
        _checks(comparison),
    ]


def _foot(role: str, run: Run) -> str:
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    return f"{role}: {info.world} run of {info.started or 'an unknown time'}, scenario {info.digest}, {versions}"


def _summary(comparison: Comparison) -> Shown:
    facts, steps = [], comparison.steps
    both = steps[steps["error"].notna().to_numpy(bool)]
    if len(both):
        for side in SIDES:
            median_ns = float(both[f"{side}_ns"].median())
            note = f"median of {text.steps(both['step'].tolist())}"
            facts.append(Fact(f"{side} step", text.duration(median_ns), note, median_ns))
    for name, frame in (("steps", steps), ("operations", comparison.operations), ("single calls", comparison.calls)):
        typical, worst = typical_and_worst(frame)
        if not np.isnan(typical):
            note = f"median size; worst {text.signed_percent(worst)}"
            facts.append(Fact(f"error of {name}", text.percent(typical), note, typical))
    for name, check in zip(("bytes", "order", "recorded metrics"), comparison.checks, strict=True):
        facts.append(Fact(name, _verdict(check), _of(check)))
    explained = Words("An error is (predicted - measured) / measured: below zero the prediction is too fast.")
    return Shown("summary", "Accuracy", [Facts(facts), explained])


def _verdict(check: Check) -> str:
    return "not checked" if not check.compared else "same" if check.agrees else "different"


def _of(check: Check) -> str:
    count = len(check.differences)
    return f"{count:,} of {check.compared:,} differ" if count else f"{check.compared:,} compared"


def _known(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with a time above 0 on both sides."""
    kept: pd.DataFrame = frame[(frame["error"].notna() & (frame["predicted_ns"] > 0)).to_numpy(bool)]
    return kept


def _named(comparison: Comparison) -> pd.DataFrame:
    return comparison.operations.assign(name=operation_names(comparison.operations))


def _scatter(comparison: Comparison) -> Shown:
    frame, title = _known(_named(comparison)), "Predicted against measured"
    if not len(frame):
        return Shown("scatter", title, absent="No operation took time in both runs.")
    points = frame.rename(columns=lambda name: name.removesuffix("_ns")).assign(group=frame["part"].map(TITLES))
    drawn = error_charts.scatter(points, {TITLES[part]: COLORS[part] for part in COLORS})
    chart = Chart("scatter", "Times per rank and step", drawn, _SCATTER_NOTE)
    return Shown("scatter", title, [chart, _operation_table(comparison)])


def _operation_table(comparison: Comparison) -> Table:
    frame = _named(comparison)
    spreads = {
        f"{side}_spread": list(map(text.interval, frame[f"{side}_low_ns"], frame[f"{side}_high_ns"])) for side in SIDES
    }
    shown = frame.assign(part=frame["part"].map(TITLES), **spreads).head(_ROWS)
    sides = [name for side in SIDES for name in (f"{side}_ns", f"{side}_spread")]
    rows = cells(shown, ["name", "part", *sides, "error", "error_of_step"])
    columns = ["operation", "part", "predicted", "p10-p90", "measured", "p10-p90", "error", "of the step"]
    return Table(f"All operations{_first(frame)}", columns, rows, left=2, folded=True)


def _first(frame: pd.DataFrame, most: int = _ROWS) -> str:
    return f": the first {most:,} of {len(frame):,}" if len(frame) > most else f": {len(frame):,}"


def _steps(comparison: Comparison) -> Shown:
    frame = comparison.steps
    known = frame[frame["error"].notna().to_numpy(bool)]
    if not len(known):
        return Shown("steps", "Steps", absent="No step was completed in both runs.")
    drawn, note = error_charts.step_errors(known)
    rows = cells(frame.head(_ROWS), ["step", *TIMES])
    table = Table(f"All steps{_first(frame)}", ["step", *TIMES_COLUMNS], rows, folded=True)
    return Shown("steps", "Steps", [Chart("steps", "Step time, and its error below", drawn, note), table])


def _operations(comparison: Comparison) -> Shown:
    frame, title = _named(comparison), "Errors by operation"
    known = frame[frame["error"].notna().to_numpy(bool)]
    if not len(known):
        return Shown("operations", title, absent="No operation is in both runs.")
    shown = known.loc[known["error_of_step"].abs().sort_values(ascending=False, kind="stable").index].head(_BARS)
    step_ns = float(comparison.steps["measured_ns"].median())
    drawn = error_charts.error_bars(
        shown["name"].tolist(),
        shown["error"],
        [COLORS[part] for part in shown["part"]],
        {
            "predicted": [text.duration(ns) for ns in shown["predicted_ns"]],
            "measured": [text.duration(ns) for ns in shown["measured_ns"]],
            "share of the step": [text.percent(ns / step_ns if step_ns else np.nan) for ns in shown["measured_ns"]],
            "difference, of the step": [text.signed_percent(share) for share in shown["error_of_step"]],
        },
    )
    of = f"the {len(shown)} of {len(known)} that differ by most time" if len(shown) < len(known) else "most time first"
    return Shown("operations", title, [Chart("operations", f"Signed errors, {of}", drawn, _OPERATIONS_NOTE)])


def _sizes(comparison: Comparison) -> Shown:
    calls, title = comparison.calls, "Errors by size"
    known = calls[calls["error"].notna().to_numpy(bool)]
    known = known.assign(name=_names(comparison, known))
    if not len(known):
        return Shown("sizes", title, absent="No operation of one size is in both runs.")
    by_part = errors_by_size(calls, by="part")
    medians = {
        part: [(int(row["size_from_bytes"]), float(row["signed_median"])) for row in records(rows)]
        for part, rows in ((part, by_part[(by_part["part"] == part).to_numpy(bool)]) for part in COLORS)
        if len(rows)
    }
    drawn = error_charts.errors_over_sizes(known, medians)
    blocks: list[PageBlock] = [Chart("sizes", "Signed errors of single calls", drawn, _SIZES_NOTE)]
    blocks.append(_by_size_table(pd.concat([by_part.assign(kind="all"), comparison.errors_by_size])))
    return Shown("sizes", title, [*blocks, _call_table(comparison)])


def _by_size_table(frame: pd.DataFrame) -> Table:
    shown = frame[(frame["kind"] != "compute").to_numpy(bool)]  # it is all of its part
    shown = shown.assign(part=shown["part"].map(TITLES), size=size_ranges(shown))
    rows = cells(shown, ["part", "kind", "size", *SIZE_ERRORS])
    columns = ["part", "kind", "size", "operations", "signed median", "median size", "worst"]
    return Table("Errors by kind and size", columns, rows, left=3, folded=True)


def _call_table(comparison: Comparison) -> Table:
    calls = comparison.calls
    shown = calls.assign(name=_names(comparison, calls), size=size_ranges(calls)).head(_ROWS)
    rows = cells(shown, ["name", "kind", "size", "predicted_count", *TIMES])
    columns = ["operation", "kind", "size", "calls", *TIMES_COLUMNS]
    return Table(f"Single calls{_first(calls)}", columns, rows, left=3, folded=True)


def _worst(comparison: Comparison, pages: tuple[str, str]) -> Shown:
    frame, title = comparison.worst, "The worst cases"
    if not len(frame):
        return Shown("worst", title, absent="The runs have no operation of a rank and step in common.")
    names = _names(comparison, frame)
    numbers = cells(frame, ["rank", "step", *TIMES, "error_of_step"])
    rows: list[Sequence[Cell]] = [
        [name, *_links(comparison, pages, row, name), *own]
        for name, row, own in zip(names, records(frame), numbers, strict=True)
    ]
    timelines = ["timeline", "timeline"] if any(pages) else []
    columns = ["operation", *timelines, "rank", "step", *TIMES_COLUMNS, "of the step"]
    table = Table("Largest single differences", columns, rows, left=1 + len(timelines), note=_WORST_NOTE)
    return Shown("worst", title, [table])


def _names(comparison: Comparison, frame: pd.DataFrame) -> list[str]:
    """Each row's operation name, as in the table of all operations."""
    known = dict(zip(_keys(comparison.operations), operation_names(comparison.operations), strict=True))
    return [known[key] for key in _keys(frame)]


def _keys(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    return list(frame[KEYS].itertuples(index=False, name=None))


def _links(comparison: Comparison, pages: tuple[str, str], row: dict[str, Any], name: str) -> list[Cell]:
    if not any(pages):
        return []
    sides = zip(SIDES, (comparison.predicted, comparison.measured), pages, strict=True)
    return [
        Link(side, address(path, run, name, (row[f"{side}_start_ns"], row[f"{side}_end_ns"]))) if path else ""
        for side, run, path in sides
    ]


def _checks(comparison: Comparison) -> Shown:
    blocks: list[PageBlock] = []
    for check in comparison.checks:
        blocks += [Words(sentence(check)), *([_differences(check)] if len(check.differences) else [])]
    return Shown("checks", "Consistency checks", blocks)


def _differences(check: Check) -> Table:
    shown = check.differences.head(_DIFFERENCES)
    more = f": the first {len(shown)} of {len(check.differences):,}" if len(shown) < len(check.differences) else ""
    rows = [[difference(row)] for row in records(shown)]
    return Table(f"Differences{more}", ["predicted and measured"], rows, folded=True)
