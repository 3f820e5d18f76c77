"""Draw several runs, each run in its colour, the first one as a ring that no other hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import ColumnDataSource, FactorRange, Range1d

from reports.page import charts, theme
from reports.side_by_side.frames import SideBySide
from reports.side_by_side.words import labels
from reports.terminal import text

_LEGEND = 22  # letters of a run in a legend
_ROW = 26  # px of a row of dots
_MARGIN = 20  # px above and below rows
# Distinct from the colours of compute and communication.
_COLORS = [
    *(theme.COOL[2], theme.WARM[2], theme.COOL[1], theme.WARM[1]),
    *(theme.COOL[8], theme.WARM[3], theme.COOL[4], theme.WARM[8]),
]


def colors(found: SideBySide) -> dict[str, str]:
    """Return a colour for each run, by label."""
    return {label: _COLORS[at % len(_COLORS)] for at, label in enumerate(labels(found).values())}


def legend_words(run: str) -> str:
    """Return a run's label, shortened so that a legend fits several into a line."""
    return text.shorten(run, _LEGEND)


def dots(
    names: Sequence[str],
    values: Mapping[str, Sequence[float]],
    form: Callable[[float], str],
    colored: Mapping[str, str],
    *,
    x: str,
    scale: float = 1.0,
) -> Any:
    """Draw a row for each name, the first on top, with a dot for each run of `values`.

    Args:
        names: the names of rows.
        values: by the runs' labels, a number for each row; nan for none.
        form: writes a value for tooltips.
        colored: the runs' colours; the first run is drawn as a ring.
        x: the label of the axis.
        scale: factor from values to the axis.
    """
    rows = charts.distinct(names)
    table = np.array(list(values.values()), float).reshape(len(values), len(rows)) * scale
    most = float(table[~np.isnan(table)].max(initial=0.0)) or 1.0
    drawn = charts.figure(
        height=_ROW * max(len(rows), 1) + _MARGIN,
        x=x,
        y_range=FactorRange(factors=rows[::-1]),
        x_range=Range1d(-0.02 * most, 1.05 * most),  # so that a dot at 0 is drawn whole
        tooltips=[("", "@name"), ("@run", "@words")],
    )
    _ties(drawn, rows, table)
    base, shown = next(iter(colored)), []
    for (run, own), scaled in zip(values.items(), table, strict=True):
        words = [form(float(value)) for value in own]
        data = {"row": rows, "value": scaled, "name": list(names), "run": [run] * len(rows), "words": words}
        dot = drawn.scatter(
            x="value", y="row", source=ColumnDataSource(data), size=13 if run == base else 8, line_color=colored[run],
            fill_color=None if run == base else colored[run], line_width=2.5, legend_label=legend_words(run),
        )  # fmt: skip
        shown.append(dot)
    drawn.hover.renderers = shown
    drawn.ygrid.grid_line_color = None
    charts.cut_names(drawn.yaxis[0])
    charts.legend(drawn)
    return drawn


def _ties(drawn: Any, rows: Sequence[str], table: Any) -> None:
    """Draw a line from the least of each row to the greatest."""
    shown = ~np.isnan(table).all(axis=0)
    low, high = np.nanmin(table[:, shown], axis=0), np.nanmax(table[:, shown], axis=0)
    kept = [row for row, own in zip(rows, shown.tolist(), strict=True) if own]
    source = ColumnDataSource({"row": kept, "low": low, "high": high})
    drawn.segment(
        x0="low", x1="high", y0="row", y1="row", source=source, line_color=theme.LIGHT.grid, line_width=4,
        tags=["grid:line_color"],
    )  # fmt: skip


def over_steps(frames: Mapping[str, pd.DataFrame], colored: Mapping[str, str]) -> Any:
    """Draw the time of each step, a line for each run; with many steps each point is a median of neighbours."""
    tooltips = [("", "@run"), ("step", "@step"), ("took", "@took{0.000} ms")]
    drawn = charts.over_steps(height=240, y="ms", tooltips=tooltips)
    for label, frame in frames.items():
        shown = charts.thin_rows(frame, {"step": "first", "step_ns": "median"})
        data = {"step": shown["step"].to_numpy(), "took": charts.ms(shown["step_ns"]), "run": [label] * len(shown)}
        source = ColumnDataSource(data)
        charts.line(drawn, source, x="step", y="took", color=colored[label], title=legend_words(label))
    drawn.y_range.start = 0
    charts.legend(drawn)
    return drawn
