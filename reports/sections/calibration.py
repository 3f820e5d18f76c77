"""The reports of a calibration (errors, rates of kernels, prices of a host) and of a fit to NCCL's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from reports.nccl.fit import Fit
from reports.nccl.fit_tables import fitted_frame, held_out, value_text, worse
from reports.sections.model import Block, Report, ReportSection, ReportTable, Words, table_of
from reports.terminal import text
from reports.terminal.rows import records

_GROUPS = {"name": "kernels", "sizes": "bytes", "median_error": "median error", "typical_mean": "typical"}
_GROUPS |= {"worst_error": "worst", "spread": "spread of repeats"}
_PROBES = {"probe": "probe", "size_bytes": "size", "measured_ns": "measured", "range": "p10 to p90"}
_PROBES |= {"predicted_ns": "model", "error": "error"}
_FAMILIES = {"family": "operators", "measured": "measured", "mean_before": "off before"}
_FAMILIES |= {"mean_after": "off with the table", "remark": ""}
_PIECES = {"name": "piece", "measured_ns": "measured", "predicted_ns": "model", "error": "error"}
# Each table's title, and its columns.
_TABLES = {
    "probes": ("Calibration residuals", _PROBES),
    "groups": ("Calibration residuals", _GROUPS),
    "reached": ("What is reached", {"what": "of", "rate": "best kernel"}),
    "families": ("Operators; every fifth is held out to judge the table", _FAMILIES),
    "prices": ("What a host takes", {"name": "price", "before_ns": "before", "measured_ns": "measured"}),
    "pieces": ("Pieces of training", {**_PIECES, "error_before": "error before"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationView:
    """A view of a calibration's measurements.

    Attributes:
        data: its values in JSON.
        tables: the frames of some of `_TABLES`, with their columns.
        words: sentences below a table, by its name.
        of: what was measured, for the titles of tables, by name.
    """

    data: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    words: Mapping[str, str] = field(default_factory=dict)
    of: Mapping[str, str] = field(default_factory=dict)


def _blocks(name: str, view: CalibrationView) -> Iterator[Block]:
    title, columns = _TABLES[name]
    if name in view.tables:
        yield table_of(": ".join(filter(None, [title, view.of.get(name)])), view.tables[name], columns)
    if words := view.words.get(name):
        yield Words(words)


CALIBRATION = Report(
    lines=lambda view: [],
    data=lambda view: view.data,
    sections=[ReportSection(name, title, [partial(_blocks, name)]) for name, (title, _) in _TABLES.items()],
)


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
