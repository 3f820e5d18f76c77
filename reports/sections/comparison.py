"""The report of a comparison: errors by step, operation and size, the worst cases, and the checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS
from reports.compare.calls import classes, errors_by_size, size_ranges
from reports.compare.checks import WORLDS, Check
from reports.printed import Printed
from reports.run import Run
from reports.sections import model
from reports.sections.address import address
from reports.sections.run.headline import remarks, rests_on
from reports.terminal import text
from reports.terminal.rows import cells, kind, operation_name, operation_names, records

SIDES = ("predicted", "measured")
TITLES = {"compute": "computation", "communication": "communication", "host": "neither"}
_MOST = model.Most(20, 200)
_WORST = 8
_DIFFERENCES = model.Most(3, 20)
TIMES = {"predicted_ns": "predicted", "measured_ns": "measured", "error": "error"}
_WORST_NOTE = (
    "Each row compares one call of one rank and step. For each call the table shows the rank with the"
    " largest error, and at most three calls of each operation. The last column is the difference as a share of the"
    " measured step."
)
# Columns of `errors_by_size`.
SIZE_ERRORS = {"rows": "rows", "signed_median": "signed median", "median": "median", "worst": "worst"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Printed):
    """A prediction and a measurement with their errors, (predicted - measured) / measured; nan if one side is missing.

    `operations` are those of one rank in one step, `calls` single ones by size; `errors_by_size` groups calls by kind.
    Printed, it shows the tables of `twinstep compare`.
    """

    predicted: Run
    measured: Run
    operations: pd.DataFrame
    steps: pd.DataFrame
    calls: pd.DataFrame
    errors_by_size: pd.DataFrame
    worst: pd.DataFrame
    checks: tuple[Check, ...]

    def _report(self) -> tuple[model.Report, CompareView]:
        return COMPARISON, CompareView(self)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return every frame by name, except those of the checks."""
        names = ["operations", "steps", "calls", "errors_by_size", "worst"]
        return {name: getattr(self, name) for name in names}


def typical_and_worst(errors: pd.DataFrame) -> tuple[float, float]:
    """Return the median of the errors' sizes, and the error of greatest size with its sign; nan and nan without any."""
    known = errors["error"].dropna().to_numpy(float)
    if not len(known):
        return float("nan"), float("nan")
    return float(np.median(np.abs(known))), float(known[np.abs(known).argmax()])


@dataclass(frozen=True, slots=True)
class CompareView:
    """A comparison, and the paths from its page to the two runs' own pages; "" without one."""

    comparison: Comparison
    pages: tuple[str, str] = ("", "")


def _errors(frame: pd.DataFrame) -> dict[str, float]:
    median, worst = typical_and_worst(frame)
    return {"median_absolute_error": median, "worst_error": worst}


def about(comparison: Comparison) -> list[str]:
    """Return a few lines on which runs are compared."""
    sides = (("predicted", comparison.predicted), ("measured", comparison.measured))
    lines = [f"{comparison.measured.info.name}: {text.count_words(comparison.measured.info.world_size, 'rank')}"]
    for role, run in sides:
        world = WORLDS.get(run.info.world, run.info.world)
        early = "" if run.info.complete else f"; ENDED EARLY: {run.info.error or 'for an unknown reason'}"
        notes = "".join(f"; {words}" for words in (rests_on(run.info), *remarks(run)) if words)
        lines.append(f"{role}: {world} run of {run.info.started or 'an unknown time'}{early}{notes}")
    lines += crowding_lines(comparison.measured)
    residual_ns = comparison.measured.info.clock_residual_ns
    if residual_ns:
        lines.append(f"clocks of the measured hosts agree within {text.duration(residual_ns)}")
    return lines


def crowding_lines(measured: Run) -> list[str]:
    """Return a line if a measured run had more ranks than its machines have cores, else no line."""
    info = measured.info
    cluster = info.scenario.get("cluster", {})
    on_cores = cluster.get("host", {}).get("gpu", {}).get("kind") == "cpu" and not cluster.get("hosts_share_cores")
    if not (on_cores and 0 < info.cores < info.world_size):
        return []
    return [
        f"measured with {text.count_words(info.world_size, 'rank')} on {text.count_words(info.cores, 'core')}:"
        " predictions that assume a core for each rank are too fast (twinstep docs calibration)"
    ]


def _about(frame: pd.DataFrame) -> str:
    median, worst = typical_and_worst(frame)
    return f"median error {text.percent(median)}, worst {text.signed_percent(worst)}"


def _summary(view: CompareView) -> Iterator[model.Block]:
    facts, comparison = [], view.comparison
    both = comparison.steps[comparison.steps["error"].notna().to_numpy(bool)]
    for side in SIDES if len(both) else ():
        median_ns = float(both[f"{side}_ns"].median())
        note = f"median of {text.steps(both['step'].tolist())}"
        facts.append(model.Fact(f"{side} step", text.duration(median_ns), note, median_ns))
    frames = {"steps": comparison.steps, "operations": comparison.operations, "single calls": comparison.calls}
    for name, frame in frames.items():
        typical, worst = typical_and_worst(frame)
        if not np.isnan(typical):
            note = f"median size; worst {text.signed_percent(worst)}"
            facts.append(model.Fact(f"error of {name}", text.percent(typical), note, typical))
    for name, check in zip(("bytes", "order", "recorded metrics"), comparison.checks, strict=True):
        count = len(check.differences)
        found = f"{count:,} of {check.compared:,} differ" if count else f"{check.compared:,} compared"
        facts.append(
            model.Fact(name, "not checked" if not check.compared else "same" if check.agrees else "different", found)
        )
    yield model.Facts(facts)
    yield model.Words("An error is (predicted - measured) / measured: below zero the prediction is too fast.")


def _steps(view: CompareView) -> Iterator[model.ReportTable]:
    frame = view.comparison.steps

    def rows(most: int) -> list[list[str]]:
        """Return the steps with the largest errors, in order."""
        order = frame["error"].abs().sort_values(ascending=False, kind="stable").index
        return cells(frame if len(frame) <= most else frame.loc[order[:most]].sort_values("step"), ["step", *TIMES])

    title, columns = f"Steps: {_about(frame)}", ["step", *TIMES.values()]
    yield model.ReportTable(
        title, columns, rows, folded=True, name="All steps", most=_MOST, count=len(frame), others="of smaller errors",
        file="steps.csv",
    )  # fmt: skip


def named_operations(comparison: Comparison) -> pd.DataFrame:
    """Return the operations with the `name` that each has everywhere in the report."""
    return comparison.operations.assign(name=operation_names(comparison.operations))


def _operations(view: CompareView) -> Iterator[model.ReportTable]:
    frame = named_operations(view.comparison)
    spreads = {
        f"{side}_spread": list(map(text.interval, frame[f"{side}_low_ns"], frame[f"{side}_high_ns"])) for side in SIDES
    }
    shown = frame.assign(part=frame["part"].map(TITLES), kind=list(map(kind, records(frame))), **spreads)
    columns: model.FrameColumns = {
        "name": "operation",
        "kind": "kind",
        "part": model.Column("part", model.PAGE),
        "predicted_ns": "predicted",
        "predicted_spread": model.Column("p10-p90", model.PAGE),
        "measured_ns": "measured",
        "measured_spread": model.Column("p10-p90", model.PAGE),
        "error": "error",
        "error_of_step": model.Column("of the step", model.PAGE),
    }
    yield model.table_of(
        f"Operations per rank and step: {_about(frame)}", shown, columns, left=3, folded=True, name="All operations",
        most=_MOST, others="shorter ones", file="operations.csv",
    )  # fmt: skip


def _by_class(view: CompareView) -> Iterator[model.ReportTable]:
    frame = errors_by_size(classes(view.comparison.calls), by="part")
    shown = frame.assign(part=frame["part"].map(TITLES), size=size_ranges(frame))
    title = "Errors by size: bytes that a call sends, or that a computation reads and writes"
    yield model.table_of(title, shown, {"part": "part", "size": "size of a call", **SIZE_ERRORS}, left=2)


def _by_kind(view: CompareView) -> Iterator[model.ReportTable]:
    by_part = errors_by_size(view.comparison.calls, by="part")
    frame = pd.concat([by_part.assign(kind="all"), view.comparison.errors_by_size])
    shown = frame[(frame["kind"] != "compute").to_numpy(bool)]  # compute is the only kind of its part
    shown = shown.assign(part=shown["part"].map(TITLES), size=size_ranges(shown))
    columns = {"part": "part", "kind": "kind", "size": "size", **SIZE_ERRORS}
    yield model.table_of("Errors by kind and size", shown, columns, left=3, folded=True)


def _calls(view: CompareView) -> Iterator[model.ReportTable]:
    calls = view.comparison.calls
    shown = calls.assign(name=names_of(view.comparison, calls), size=size_ranges(calls))
    columns = {"name": "operation", "kind": "kind", "size": "size", "predicted_count": "calls", **TIMES}
    yield model.table_of("Single calls", shown, columns, left=3, folded=True, most=_MOST, file="calls.csv")


def _no_sizes(view: CompareView) -> str:
    known = view.comparison.calls["error"].notna()
    return "" if known.any() else "No operation of one size is in both runs."


def names_of(comparison: Comparison, frame: pd.DataFrame) -> list[str]:
    """Return each row's operation name, as in the table of operations."""
    named = named_operations(comparison)
    known = dict(zip(_keys(named), named["name"], strict=True))
    return [known[key] for key in _keys(frame)]


def _keys(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    return list(frame[KEYS].itertuples(index=False, name=None))


def _worst(view: CompareView) -> Iterator[model.ReportTable]:
    frame, names = view.comparison.worst, names_of(view.comparison, view.comparison.worst)
    numbers = cells(frame, ["rank", "step", *TIMES, "error_of_step"])
    rows: list[list[model.Cell]] = [
        [name, *_links(view, row, name), *own] for name, row, own in zip(names, records(frame), numbers, strict=True)
    ]
    timelines = [model.Column("timeline", model.PAGE)] * (2 if any(view.pages) else 0)
    columns: model.Columns = ["operation", *timelines, "rank", "step", *TIMES.values(), "of the step"]
    title, most = "Largest single differences", model.Most(_WORST, len(rows))
    left = 1 + len(timelines)
    yield model.ReportTable(
        title, columns, rows, left=left, note=_WORST_NOTE, most=most, others="smaller ones", file="worst.csv"
    )


def _links(view: CompareView, row: dict[str, Any], name: str) -> list[model.Cell]:
    """Return links to an operation in the timelines of the predicted and the measured run's page."""
    if not any(view.pages):
        return []
    sides = zip(SIDES, (view.comparison.predicted, view.comparison.measured), view.pages, strict=True)
    return [
        model.PageLink(side, address(path, run, name, (row[f"{side}_start_ns"], row[f"{side}_end_ns"]))) if path else ""
        for side, run, path in sides
    ]


def _checks(view: CompareView) -> Iterator[model.Words]:
    for check in view.comparison.checks:
        shown = check.differences.head(0 if check.reason else _DIFFERENCES.terminal)
        yield model.Words("\n".join([sentence(check), *(f"  {difference(row)}" for row in records(shown))]))


def _checks_with_differences(view: CompareView) -> Iterator[model.Block]:
    for check in view.comparison.checks:
        yield model.Words(sentence(check))
        rows = [[difference(row)] for row in records(check.differences.head(_DIFFERENCES.page))]
        more = f": the first {len(rows)} of {len(check.differences):,}" if len(rows) < len(check.differences) else ""
        if rows:
            yield model.ReportTable(f"Differences{more}", ["predicted and measured"], rows, folded=True)


def sentence(check: Check) -> str:
    """Return the result of a check; differences without a known reason are in capitals."""
    if not check.compared:
        return f"Not checked: {check.name}: {check.reason}."
    if check.agrees:
        worst = f"; greatest difference {check.worst:.2g} of the value" if check.worst else ""
        return f"Same {check.name}: all {check.compared:,} compared{worst}."
    count = f"{check.name}: {len(check.differences):,} of {check.compared:,} compared"
    why = f", by {text.percent(check.worst)} at most, as {check.reason}" if check.reason else ""
    return f"{'Different' if why else 'DIFFERENT'} {count}{why}."


def difference(row: dict[str, Any]) -> str:
    """Return a line about one operation or number in which predicted and measured run differ, with both values."""
    where = [f"rank {row['rank']}"] + ([f"step {row['step']}"] if "step" in row else [])
    if "position" in row:
        return (
            f"{where[0]}, stream {row['stream']}, operation {row['position']}: {row['predicted']} and {row['measured']}"
        )
    if "name" in row:
        return f"{', '.join(where)}, {row['name']}: {row['predicted']:.9g} and {row['measured']:.9g}"
    unlike = [
        f"{column} {row[f'predicted_{column}']:,.0f} and {row[f'measured_{column}']:,.0f}"
        for column in ("bytes_in", "bytes_out", "bytes_sent")
        if row[f"predicted_{column}"] != row[f"measured_{column}"]
    ]
    return f"{', '.join([*where, operation_name(row)])}: {', '.join(unlike)}"


def _frames_and_errors(name: str, view: CompareView) -> dict[str, Any]:
    frame = view.comparison.frames()[name]
    return {name: {**_errors(frame), "rows": records(frame)}}


def _check_data(view: CompareView) -> dict[str, Any]:
    names = ("name", "agrees", "compared", "worst", "reason")
    return {
        "checks": [
            {**{name: getattr(check, name) for name in names}, "differences": records(check.differences)}
            for check in view.comparison.checks
        ]
    }


def _data(view: CompareView) -> dict[str, Any]:
    comparison = view.comparison
    return {
        "name": comparison.measured.info.name,
        "worlds": [comparison.predicted.info.world, comparison.measured.info.world],
        "digest": comparison.measured.info.digest,
        "warm_up": comparison.measured.warm_up,
    }


COMPARISON = model.Report(
    lines=lambda view: about(view.comparison),
    sections=[
        model.ReportSection("summary", "Accuracy", [model.on_page(_summary)]),
        model.ReportSection("scatter", "Predicted against measured", [model.figure("compare.page.scatter")]),
        model.ReportSection(
            "steps",
            "Steps",
            [model.figure("compare.page.steps"), _steps],
            absent=model.lacking(lambda view: view.comparison.steps, "No step was completed in both runs."),
            data=lambda view: _frames_and_errors("steps", view),
        ),
        model.ReportSection(
            "operations",
            "Errors by operation",
            [model.figure("compare.page.operations"), _operations],
            absent=model.lacking(lambda view: view.comparison.operations, "No operation is in both runs."),
            data=lambda view: _frames_and_errors("operations", view),
        ),
        model.ReportSection(
            "sizes",
            "Errors by size",
            [
                model.figure("compare.page.sizes"),
                model.on_terminal(_by_class),
                model.on_page(_by_kind),
                model.on_page(_calls),
            ],
            absent=_no_sizes,
            data=lambda view: {**_frames_and_errors("calls", view), "errors_by_size": view.comparison.errors_by_size},
        ),
        model.ReportSection(
            "worst",
            "The worst cases",
            [_worst],
            absent=model.lacking(
                lambda view: view.comparison.worst, "The runs have no operation of a rank and step in common."
            ),
            data=lambda view: {"worst": view.comparison.worst},
        ),
        model.ReportSection(
            "checks",
            "Consistency checks",
            [model.on_terminal(_checks), model.on_page(_checks_with_differences)],
            data=_check_data,
        ),
    ],
    data=_data,
)
