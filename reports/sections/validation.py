"""The report of a validation: how far off its scenarios' predictions were, and which operations made them so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from reports.analysis import statistics
from reports.analysis.repeats import Plays
from reports.sections import model
from reports.sections.comparison import SIDES, TIMES, TITLES
from reports.terminal import text
from reports.terminal.rows import name_rows, operation_name, records
from reports.terminal.text import format_range
from reports.validation.folder import Validated
from reports.validation.validation import Validation

# Of that many scenarios, those with the greatest errors, it is shown where the error comes from.
_EXPLAINED = 3
_OPERATIONS, _ROWS = model.Most(6, 6), model.Most(200, 200)
_ERRORS = "An error is predicted / measured - 1, of median steps: below zero the prediction is too fast."
_NONE = "No scenario has both a prediction and a measurement."


@dataclass(frozen=True, slots=True)
class ValidationView:
    """A validation as its folder has it; of one that has just ended `live` are its scenarios with their plays.

    `precision` is what was asked for, `max_error` the bar, if there is one.
    """

    found: Validated
    live: Sequence[Validation] | None = None
    precision: float = math.nan
    max_error: float | None = None

    @property
    def compared_rows(self) -> pd.DataFrame:
        """The scenarios that have both sides."""
        frame: pd.DataFrame = self.found.scenarios[self.found.scenarios["error"].notna().to_numpy(bool)]
        return frame

    @property
    def by_error(self) -> pd.DataFrame:
        """These, the greatest errors first."""
        return self.compared_rows.loc[
            self.compared_rows["error"].abs().sort_values(ascending=False, kind="stable").index
        ]


def _summary(view: ValidationView) -> Iterator[model.Block]:
    known, scenarios = view.compared_rows, view.found.scenarios
    notes = [f"{row['scenario']}: ended early: {row['ended']}" for row in records(scenarios) if row["ended"]]
    if noisy := int(scenarios["is_too_noisy"].sum()):
        notes.append(f"{text.count_words(noisy, 'scenario')} measured less precisely than requested")
    if len(known):
        errors = statistics.errors(known["error"].tolist())
        inside = f"{int(known['inside'].sum())} of {len(known)}"
        signed, worst = text.signed_percent(errors.signed_median), str(view.by_error["scenario"].iloc[0])
        yield model.Facts(
            [
                model.Fact("signed median", signed, "is there a bias?", errors.signed_median),
                model.Fact("median", text.percent(errors.median), "of absolute errors", errors.median),
                model.Fact("95th percentile", text.percent(errors.p95), "of absolute errors", errors.p95),
                model.Fact("worst", text.signed_percent(errors.worst), worst, errors.worst),
                model.Fact("inside", inside, "measured medians within the predicted p10-p90"),
            ]
        )
    yield model.Words(_ERRORS if len(known) else _NONE, notes)


def _scenarios(view: ValidationView) -> Iterator[model.ReportTable]:
    """Yield median, p10 and p90 of both sides, error, and whether the measured median is inside; with runs' pages."""
    frame, folder = view.found.scenarios, view.found.folder
    pages = [[_page_of(folder, name, side) for side in SIDES] for name in frame["scenario"]]
    has_pages = any(map(any, pages))
    rows: list[list[model.Cell]] = []
    for row, links in zip(records(frame), pages, strict=True):
        times = []
        for side in SIDES:
            times += [text.duration(row[f"{side}_median_ns"])]
            times += [format_range(row[f"{side}_low_ns"], row[f"{side}_high_ns"])]
        inside = "-" if math.isnan(row["error"]) else "yes" if row["inside"] else "no"
        noisy, error = "yes" if row["is_too_noisy"] else "no", text.signed_percent(row["error"])
        rows.append([row["scenario"], *(links if has_pages else []), *times, error, inside, noisy])
    to_pages = [model.Column("timelines", model.PAGE), model.Column("", model.PAGE)] if has_pages else []
    times = [name for side in SIDES for name in (side, "p10-p90")]
    columns: model.Columns = ["scenario", *to_pages, *times, "error", "inside", model.Column("noisy", model.PAGE)]
    title, left = "Step times (median, p10 to p90)", 1 + len(to_pages)
    yield model.ReportTable(title, columns, rows, left=left, name="All scenarios")


def _page_of(folder: Path, scenario: str, side: str) -> model.Cell:
    path = Path(scenario, side, "reports", "report.html")
    return model.PageLink(side, quote(path.as_posix())) if (folder / path).is_file() else ""


def _notes(view: ValidationView) -> Iterator[model.Words]:
    notes, live = [], view.live or ()
    for one in live:
        if one.ended:
            notes.append(f"{one.name}: ENDED EARLY: {one.ended}")
        if one.is_too_noisy and one.measured is not None:
            notes.append(f"{one.name}: TOO NOISY: {noise(one.measured, view.precision)}")
    if single := sum(one.predicted is not None and len(one.predicted.each) == 1 for one in live):
        notes.append(
            f"Draws of {text.count_words(single, 'scenario')} do not vary: the predicted interval covers only"
            " differences between steps and is too narrow for a measurement"
        )
    if notes:
        yield model.Words("\n".join(notes))


def noise(plays: Plays, precision: float) -> str:
    """Why a measured median is not known as precisely as was asked for."""
    sample, rounds = plays.sample, text.count_words(len(plays.each), "round")
    known = text.count_words(sample.count, "step")
    if not math.isnan(sample.uncertainty):
        known = f"median known to ±{text.percent(sample.uncertainty)}"
    lie = ""
    if len(plays.each) > 1:
        lie = f", whose own medians are {format_range(min(plays.medians_ns), max(plays.medians_ns))}"
    return f"{known} after {rounds}{lie}; requested: ±{text.percent(precision)}"


def operations(view: ValidationView) -> pd.DataFrame:
    """Return operations that have both sides, with their `name` and the `size` of what they make of the step's error.

    Those that make most of it come first.
    """
    frame = view.found.operations[view.found.operations["error"].notna().to_numpy(bool)]
    shown = frame.assign(name=[operation_name(row) for row in records(frame)], size=frame["error_of_step"].abs())
    return shown.sort_values("size", ascending=False, kind="stable")


def _operations(view: ValidationView) -> Iterator[model.ReportTable]:
    frame = operations(view)
    more = f": the first {_ROWS.page} of {len(frame):,}" if len(frame) > _ROWS.page else f": {len(frame):,}"
    columns = {"name": "operation", "scenario": "scenario", "part": "part", **TIMES, "error_of_step": "of the step"}
    shown, title = frame.assign(part=frame["part"].map(TITLES)).head(_ROWS.page), f"Each in its scenario{more}"
    if len(frame):
        yield model.table_of(title, shown, columns, left=3, folded=True)


def _explain_errors(view: ValidationView) -> Iterator[model.ReportTable]:
    """Yield where the greatest errors of a validation that has just ended come from."""
    columns = {"name": "operation", "kind": "kind", **TIMES, "error_of_step": "of the step"}
    every = view.found.operations
    for name in view.by_error["scenario"].head(0 if view.live is None else _EXPLAINED):
        own = name_rows(every[(every["scenario"] == name).to_numpy(bool)])
        title = f"{name}: where operations differ most"
        yield model.table_of(title, own, columns, left=2, most=_OPERATIONS, others="others")


def _verdict(view: ValidationView) -> Iterator[model.Words]:
    known, count = view.by_error, len(view.found.scenarios)
    errors = statistics.errors(known["error"].tolist())
    if view.live is None:
        short = f"Median error {text.percent(errors.median)}, worst {text.signed_percent(errors.worst)}."
        yield model.Words(short, strong=True)
    elif not len(known):
        yield model.Words(f"Errors: none of {text.count_words(count, 'scenario')} was compared.", strong=True)
    else:
        said = (
            f"Errors of {text.count_words(len(known), 'scenario')}: median {text.signed_percent(errors.signed_median)};"
            f" absolute: median {text.percent(errors.median)}, 95th percentile {text.percent(errors.p95)};"
            f" worst {text.signed_percent(errors.worst)} ({known['scenario'].iloc[0]})"
        )
        if view.max_error is not None:
            past = [one.name for one in view.live if one.is_past(view.max_error)]
            said += f"\nPast {text.percent(view.max_error)}: {', '.join(past) or 'none'}"
        yield model.Words(said, strong=True)


VALIDATION = model.Report(
    lines=lambda view: [],
    data=lambda view: {"scenarios": view.found.scenarios, "operations": view.found.operations},
    sections=[
        model.ReportSection("summary", "Accuracy", [model.on_page(_summary)]),
        model.ReportSection("scatter", "Predicted against measured", [model.figure("compare.validation.scatter")]),
        model.ReportSection(
            "scenarios",
            "Errors by scenario",
            [
                model.figure("compare.validation.scenarios"),
                model.on_page(lambda view: _scenarios(view) if len(view.found.scenarios) else ()),
                model.on_terminal(_scenarios),
                model.on_terminal(_notes),
            ],
        ),
        model.ReportSection(
            "operations",
            "Errors by operation",
            [
                model.figure("compare.validation.operations"),
                model.on_page(_operations),
                model.on_terminal(_explain_errors),
            ],
        ),
        model.ReportSection("verdict", "Errors", [model.on_terminal(_verdict)]),
    ],
)
