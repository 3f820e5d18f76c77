"""The report of a calibration: errors of the fitted figures, rates that kernels reach, prices of a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from reports.sections.model import Block, Report, ReportSection, Words, table_of

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
    """What a calibration has measured.

    Attributes:
        data: what JSON has of it.
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
