"""The report of a fit to NCCL's rows: the fitted figures of a profile, and the errors of rows that were held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.nccl.fit import Fit
from reports.nccl.fit_tables import fitted_frame, held_out, value_text, worse
from reports.sections.model import Report, ReportSection, ReportTable, Words, table_of
from reports.terminal import text
from reports.terminal.rows import records

_HELD_OUT = {"operation": "operation", "scale": "on", "rows": "rows", "mean_before": "mean before"}
_HELD_OUT |= {"worst_before": "worst", "mean_after": "mean after", "worst_after": "worst"}


@dataclass(frozen=True, slots=True)
class FitView:
    """A fit, the profile that it began with, and the file of the new one."""

    fit: Fit
    profile: str
    out: Path


def _tell_fit(view: FitView) -> Iterator[Words]:
    used = {row for one in view.fit.fitted for row in one.rows}
    yield Words(
        f"{text.count_words(len(used), 'row')}, of every second size, set the figures;"
        f" the other {text.count_words(len(view.fit.held_out), 'row')} are held out."
        " An error is predicted / measured - 1: mean of the errors' sizes, worst with its sign."
    )
    lines = []
    for row in records(fitted_frame(view.fit)):
        value, present = (value_text(row["key"], row[name]) for name in ("fitted", "present"))
        rows = text.count_words(row["rows"], "row")
        lines.append(f"{row['key']} = {value} ({view.profile}: {present}), {rows} from {row['rows_of']}")
    yield Words("\n".join(lines))


def _show_held_out(view: FitView) -> Iterator[ReportTable]:
    yield table_of("Rows held out", held_out(view.fit), _HELD_OUT, left=2)


def _held_out_data(view: FitView) -> dict[str, Any]:
    return {"held_out": held_out(view.fit), "notes": list(view.fit.notes), "worse": worse(view.fit)}


NCCL_FIT = Report(
    lines=lambda view: [],
    data=lambda view: {"profile": view.profile, "out": str(view.out)},
    sections=[
        ReportSection("fitted", "Fitted figures", [_tell_fit], data=lambda view: {"fitted": fitted_frame(view.fit)}),
        ReportSection("held_out", "Rows held out", [_show_held_out], data=_held_out_data),
    ],
)
