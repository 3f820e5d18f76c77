"""The page of several runs, and its charts: each run in its colour, the first one as a ring that no other hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import BasicTicker, ColumnDataSource, FactorRange, Range1d

from reports.analysis.step_breakdown import PARTS
from reports.page import charts, theme
from reports.page.blocks import Chart, Page
from reports.page.sections import draw_sections
from reports.sections.side_by_side import BESIDE, BesideView, lines, loads, memory_by_part, steps_of
from reports.side_by_side.frames import SideBySide
from reports.side_by_side.words import DIFFERENT_BATCHES, labels, operations_by_change
from reports.terminal import text
from reports.terminal.rows import ratio

_DRAWN = 16
_LAYERS = 9


def page(found: SideBySide, hrefs: Sequence[str], tables: str = "") -> Page:
    """Return the whole page; `hrefs` lead to each run's own ("": it has none), `tables` is the path of the tables."""
    where = f"All numbers are those of the tables in {tables}; `twinstep docs runs` describes every column."
    view = BesideView(found, hrefs)
    title = f"{text.count_words(len(found.names), 'run')} side by side"
    return Page(title=title, about=lines(view), sections=draw_sections(BESIDE, view), foot=[where] if tables else [])


def parts(view: BesideView) -> list[Chart] | str:
    """Draw the parts of a step of each run that has kept its spans."""
    frame = view.found.results
    if not frame["step_ns"].notna().any():
        return "No rank of any run completed a step."
    has = frame["compute_ns"].notna()
    if not has.any():
        return []
    names = [label for label, own in zip(view.labels.values(), has, strict=True) if own]
    layers = {PARTS[name]: (charts.ms(frame.loc[has, name]), color) for name, color in theme.PARTS.items()}
    note = "Means over ranks and steady steps; the parts add up to the mean step."
    note += f" {DIFFERENT_BATCHES}." if view.found.batches_differ else ""
    return [Chart("parts", "Parts of a step", charts.stacked_bars(names, layers, x="ms per step"), note)]


def steps(view: BesideView) -> list[Chart]:
    """Draw the time of each step, a line for each run."""
    kept = steps_of(view)
    if all(len(own) < 2 for own in kept.values()):
        return []
    note = "From the first rank's start to the last rank's end."
    return [Chart("steps", "Time of each step", over_steps(kept, colors(view.found)), note)]


def operations(view: BesideView) -> list[Chart]:
    """Draw the medians of the operations that change most."""
    held = list(dict.fromkeys(view.found.operations["run"].tolist()))
    pairs = [pair for pair, _ in zip(operations_by_change(view.found), range(_DRAWN), strict=False)]
    values = {
        view.labels[name]: [float(rows["median_ns"].iloc[at]) for _, rows in pairs] for at, name in enumerate(held)
    }
    names = [name for name, _ in pairs]
    drawing = dots(names, values, text.duration, colors(view.found), x="ms per step", scale=1e-6)
    note = "The largest changes first; medians over ranks and steady steps. The ring is the first run."
    title = "Operations that change most" if len(held) > 1 else "Operations"
    return [Chart("operations", title, drawing, note)]


def memory(view: BesideView) -> list[Chart]:
    """Draw the memory of each run's fullest rank, by part."""
    table = memory_by_part(view)
    unit, factor = text.size_unit(float(table.sum().max()))
    layers = {str(part): (row / factor).tolist() for part, row in table.head(_LAYERS).iterrows()}
    if len(table) > _LAYERS:
        layers["all else"] = (table.iloc[_LAYERS:].sum() / factor).tolist()
    colored = {part: (sizes, color) for (part, sizes), color in zip(layers.items(), theme.EVERY, strict=False)}
    drawing = charts.stacked_bars([view.labels[str(name)] for name in table.columns], colored, x=unit)
    return [Chart("memory", "By part", drawing)]


def links(view: BesideView) -> list[Chart]:
    """Draw, for each class of links and run, the utilisation of the most loaded link over the whole run."""
    table = view.found.link_classes.pivot(index="link_class", columns="run", values="peak_utilisation")
    values = {label: table[name].tolist() for name, label in view.labels.items() if name in table.columns}
    classes, x = [str(name) for name in table.index], "mean load of the hottest link"
    drawing = dots(classes, values, text.percent, colors(view.found), x=x)
    charts.percent_axis(drawing.xaxis[0])
    drawing.xaxis[0].ticker = BasicTicker(min_interval=0.01)
    return [Chart("links", "Hottest link of each class, over the whole run", drawing)]


def balance(view: BesideView) -> list[Chart]:
    """Draw how far the most loaded rank is from the mean."""
    frame = loads(view)
    table = frame.pivot(index="load", columns="run", values="max_over_mean").reindex(frame["load"].unique())
    values = {label: table[name].tolist() for name, label in view.labels.items() if name in table.columns}
    names, x = [str(load) for load in table.index], "max over mean; 1 is balanced"
    drawing = dots(names, values, ratio, colors(view.found), x=x)
    drawing.x_range.start = 0.9
    note = "Compute is from spans; the others are the plan's expectations."
    return [Chart("balance", "Max over mean by load", drawing, note)]


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
