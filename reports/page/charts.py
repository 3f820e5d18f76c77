"""Figures in the page's style, and the charts that sections share.

The page's script redraws a figure for the dark theme: axes, grids, legends and titles by their type, and all else by
tags: "ink:PROPERTY", "muted:PROPERTY" and "surface:PROPERTY" for a colour, "sequential" for a mapper's palette.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import (
    BasicTicker,
    ColorBar,
    ColumnDataSource,
    CustomJSTickFormatter,
    FactorRange,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    PanTool,
    PrintfTickFormatter,
    Range1d,
    ResetTool,
    SaveTool,
    Span,
)
from bokeh.models.tools import BoxZoomTool, WheelZoomTool
from bokeh.plotting import figure as bokeh_figure

from reports.page import theme

_NS_PER_MS = 1e6
# More points than the page has pixels across show nothing more.
POINTS = 2000
# Integers without decimals, and no powers of ten.
_NUMBERS = "0,0.[0000]"
# The ratio of bars from which the smaller one would be invisible.
_SKEWED = 60
# The width of a phone in letters, and that of a legend's mark with its gaps.
_LEGEND_LETTERS, _MARK_LETTERS = 54, 4
_ROW = 24  # px of a bar with its gap
_MARGIN = 26  # px above and below bars
# A name next to a bar is cut in its middle to this many letters; on a phone to fewer, to leave room for the bar.
_NAME, _NAME_ON_PHONE = 44, 20
_CUT = f"""
    const most = innerWidth < 600 ? {_NAME_ON_PHONE} : {_NAME}
    const tail = Math.floor((most - 1) / 2)
    return tick.length <= most ? tick : tick.slice(0, most - 1 - tail) + "\u2026" + tick.slice(tick.length - tail)
"""


def ms(ns: Any) -> Any:
    """Return times in ms, the unit of charts, in which numbers on axes are small."""
    return np.asarray(ns, float) / _NS_PER_MS


def figure(
    *,
    height: int,
    x: str = "",
    y: str = "",
    zooms: str = "",
    tooltips: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> Any:
    """Return an empty figure as wide as the page.

    A drag zooms; the wheel zooms with shift, so that the page still scrolls.

    Args:
        height: the plot's height in px, to which axes, legend and colour bar are added.
        x: the label of the x axis.
        y: the label of the y axis.
        zooms: along "width", "height" or "both"; "" for not at all.
        tooltips: pairs of a title and a value, as Bokeh's.
        options: further options of Bokeh's figure.
    """
    tools: list[Any] = []
    if zooms:
        zoom = BoxZoomTool(dimensions=zooms)
        tools = [zoom, PanTool(dimensions=zooms), WheelZoomTool(dimensions=zooms, modifiers="shift")]
        tools += [ResetTool(), SaveTool()]
    drawn = bokeh_figure(
        frame_height=height,
        sizing_mode="stretch_width",
        min_width=260,
        tools=tools,
        toolbar_location="right" if zooms else None,
        x_axis_label=x or None,
        y_axis_label=y or None,
        **options,
    )
    if zooms:
        drawn.toolbar.active_drag = tools[0]
        drawn.toolbar.active_scroll = tools[2]
        drawn.toolbar.logo = None
        drawn.toolbar.autohide = True
    if tooltips:
        drawn.add_tools(HoverTool(tooltips=list(tooltips)))
    _dress(drawn)
    return drawn


def _dress(drawn: Any) -> None:
    light = theme.LIGHT
    drawn.background_fill_color = drawn.border_fill_color = None
    drawn.outline_line_color = None
    for axis in drawn.axis:
        axis.axis_line_color = light.grid
        axis.major_tick_line_color = axis.minor_tick_line_color = None
        axis.major_label_text_color = axis.axis_label_text_color = light.muted
        axis.major_label_text_font = axis.axis_label_text_font = theme.FONT
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
        axis.axis_label_text_font_style = "normal"
    for grid in drawn.grid:
        grid.grid_line_color = light.grid
    drawn.min_border_right = 16


def legend(drawn: Any) -> None:
    """Style the figure's legend, and move it outside the frame: it covers nothing, and fits a phone."""
    if not drawn.legend:
        return
    made = drawn.legend[0]
    drawn.add_layout(made, "above")
    made.orientation = "horizontal"
    made.ncols = _columns([item.label.value for item in made.items])
    made.background_fill_color = made.border_line_color = None
    made.label_text_color = theme.LIGHT.muted
    made.label_text_font, made.label_text_font_size = theme.FONT, "12px"
    made.glyph_height = made.glyph_width = 12
    made.padding = made.margin = 2
    made.spacing = 10
    made.click_policy = "hide"


def _columns(labels: Sequence[str]) -> int:
    """Return how many columns of labels fit a phone, each as wide as its longest label."""
    for columns in range(len(labels), 1, -1):
        widths = [max(map(len, labels[at::columns])) + _MARK_LETTERS for at in range(columns)]
        if sum(widths) <= _LEGEND_LETTERS:
            return columns
    return 1


def distinct(names: Sequence[str]) -> list[str]:
    """Return names made unique with numbers, because a chart identifies its rows by name."""
    found: dict[str, None] = {}
    for name in names:
        candidate, number = name, 2
        while candidate in found:
            candidate, number = f"{name} {number}", number + 1
        found[candidate] = None
    return list(found)


def cut_names(axis: Any) -> None:
    """Cut long names on an axis, to leave room for the drawing."""
    axis.formatter = CustomJSTickFormatter(code=_CUT)


def stacked_bars(names: Sequence[str], layers: Mapping[str, tuple[Sequence[float], str]], *, x: str) -> Any:
    """Draw a bar for each name, the first on top, stacked from `layers`.

    Args:
        names: the names of bars.
        layers: by title, the lengths and the colour of a layer.
        x: the label of the x axis.
    """
    short = distinct(names)
    data: dict[str, Any] = {"row": short, "name": list(names)}
    left = np.zeros(len(names))
    drawn = figure(
        height=_ROW * max(len(names), 1) + _MARGIN,
        x=x,
        y_range=FactorRange(factors=short[::-1]),
        tooltips=[("", "@name"), *((title, f"@{{{title}}}{{0.000}}") for title in layers)],
    )
    for title, (lengths, _) in layers.items():
        data[title] = np.asarray(lengths, float)
        data[f"{title} from"] = left
        left = left + data[title]
        data[f"{title} until"] = left
    source = ColumnDataSource(data)
    for title, (_, color) in layers.items():
        drawn.hbar(
            y="row", left=f"{title} from", right=f"{title} until", height=0.72, source=source,
            fill_color=color, line_color=None, legend_label=title,
        )  # fmt: skip
    drawn.x_range = Range1d(min(0.0, float(left.min(initial=0.0))), float(left.max(initial=0.0)) * 1.04 or 1.0)
    drawn.ygrid.grid_line_color = None
    cut_names(drawn.yaxis[0])
    drawn.xaxis[0].formatter = NumeralTickFormatter(format=_NUMBERS)
    if len(layers) > 1:
        legend(drawn)
    else:
        drawn.legend[0].visible = False
    return drawn


def over_steps(*, height: int, y: str = "", tooltips: Sequence[tuple[str, str]]) -> Any:
    """Return an empty figure with steps along its width."""
    drawn = figure(height=height, x="step", y=y, zooms="width", tooltips=tooltips)
    step_axis(drawn.xaxis[0])
    return drawn


def thin_rows(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return at most `POINTS` rows: neighbours merged, each column by "first", "median", "min" or "max"."""
    return frame.groupby(np.arange(len(frame)) // max(1, -(-len(frame) // POINTS))).agg(columns)


def line_and_band(drawn: Any, frame: pd.DataFrame, columns: tuple[str, str, str], color: str) -> None:
    """Draw a line over `step` by the first of these columns, in a band from the second to the third."""
    middle, low, high = columns
    shown = thin_rows(frame, {"step": "first", middle: "median", low: "min", high: "max"})
    source = ColumnDataSource({str(name): shown[name].to_numpy() for name in shown})
    drawn.varea(x="step", y1=low, y2=high, source=source, fill_color=color, fill_alpha=0.2)
    line(drawn, source, x="step", y=middle, color=color)


def line(drawn: Any, source: ColumnDataSource, *, x: str, y: str, color: str, title: str = "") -> None:
    """Draw a line with a dot at each of its points."""
    labelled = {"legend_label": title} if title else {}
    drawn.line(x=x, y=y, source=source, line_color=color, line_width=2, **labelled)
    drawn.scatter(x=x, y=y, source=source, size=5, fill_color=color, line_color=None, **labelled)


def histogram(values: Any, weights: Any, *, x: str, y: str, color: str, bins: int = 40) -> Any:
    """Draw a histogram of weighted values; its counts have a logarithmic axis where they are skewed."""
    values = np.asarray(values, float)
    low, high = float(values.min()), float(values.max())
    if high <= low:
        # Equal values need a range around them, or the bins have no width.
        low, high = (low - 0.5, high + 0.5) if not low else (low * 0.95, low * 1.05)
    counts, edges = np.histogram(values, bins=bins, range=(low, high), weights=np.asarray(weights, float))
    filled = counts > 0
    data = {"count": counts[filled], "left": edges[:-1][filled], "right": edges[1:][filled]}
    is_skewed = counts.max() > _SKEWED * counts[filled].min()
    source = ColumnDataSource(data)
    tooltips = [("", "@left{0.000} to @right{0.000}"), (y, "@count{0,0}")]
    drawn = figure(height=170, x=x, y=y, tooltips=tooltips, y_axis_type="log" if is_skewed else "auto")
    bars = drawn.quad(
        left="left", right="right", top="count", bottom=0.5 if is_skewed else 0, source=source, fill_color=color,
        line_color=theme.LIGHT.surface,
    )  # fmt: skip
    bars.glyph.tags = ["surface:line_color"]
    # A logarithmic axis has no 0: a bar of one count begins half a count below it.
    drawn.y_range.start = 0.5 if is_skewed else 0
    for axis in drawn.axis:
        axis.formatter = NumeralTickFormatter(format=_NUMBERS)
    return drawn


def heat_map(values: Any, rows: Sequence[str], columns: Sequence[str], words: Any, *, x: str, y: str, unit: str) -> Any:
    """Draw a square for each pair, [rows, columns]; nan is left out.

    Args:
        values: numbers that set the colours.
        rows: the names of rows.
        columns: the names of columns.
        words: the values as text for tooltips, [rows, columns].
        x: the label of the x axis.
        y: the label of the y axis.
        unit: the unit of values.
    """
    row, column = np.nonzero(~np.isnan(np.asarray(values, float)))
    source = ColumnDataSource(
        {
            "x": column + 0.5,
            "y": row + 0.5,
            "value": np.asarray(values, float)[row, column],
            "words": [str(words[at][to]) for at, to in zip(row.tolist(), column.tolist(), strict=True)],
            "from": [rows[at] for at in row.tolist()],
            "to": [columns[at] for at in column.tolist()],
        }
    )
    most = float(np.nanmax(values)) if len(row) else 0.0
    mapper = LinearColorMapper(palette=list(theme.LIGHT.sequential), low=0.0, high=most or 1.0, tags=["sequential"])
    drawn = figure(
        height=min(max(14 * len(rows), 180), 560),
        x=x,
        y=y,
        x_range=Range1d(0, len(columns)),
        y_range=Range1d(len(rows), 0),
        tooltips=[(y, "@from"), (x, "@to"), (unit, "@words")],
    )
    squares = drawn.rect(
        x="x", y="y", width=1, height=1, source=source, fill_color={"field": "value", "transform": mapper},
        line_color=theme.LIGHT.surface, line_width=1 if max(len(rows), len(columns)) <= 32 else 0,
    )  # fmt: skip
    squares.glyph.tags = ["surface:line_color"]
    for axis, names in ((drawn.xaxis[0], columns), (drawn.yaxis[0], rows)):
        _name_places(axis, names)
    drawn.xaxis[0].major_label_orientation = 0.8 if any(len(name) > 4 for name in columns) else "horizontal"
    drawn.grid.visible = False
    bar = ColorBar(
        color_mapper=mapper, ticker=BasicTicker(desired_num_ticks=5), width=10, bar_line_color=None, title=unit,
        background_fill_color=None, major_label_text_color=theme.LIGHT.muted, title_text_color=theme.LIGHT.muted,
        major_label_text_font=theme.FONT, title_text_font=theme.FONT, title_text_font_style="normal",
        major_tick_line_color=None, tags=["muted:major_label_text_color", "muted:title_text_color"],
    )  # fmt: skip
    drawn.add_layout(bar, "right")
    return drawn


def _name_places(axis: Any, names: Sequence[str]) -> None:
    """Name at most twelve or so places, each at the middle of its square."""
    every = max(1, -(-len(names) // 12))
    shown = range(0, len(names), every)
    axis.ticker = [at + 0.5 for at in shown]
    axis.major_label_overrides = {at + 0.5: names[at] for at in shown}


def rule(drawn: Any, at: float, *, across: str = "height", dashed: bool = False) -> None:
    """Draw a straight line at a value: along the "height" at an x, along the "width" at a y."""
    dash = "dashed" if dashed else "solid"
    color, tags = theme.LIGHT.ink, ["ink:line_color"]
    drawn.add_layout(Span(location=at, dimension=across, line_color=color, line_width=1, line_dash=dash, tags=tags))


def percent_axis(axis: Any) -> None:
    """Show shares as percentages."""
    axis.formatter = CustomJSTickFormatter(code="return (100 * tick).toFixed(0) + ' %'")


def step_axis(axis: Any) -> None:
    """Show whole numbers, as steps are counted."""
    axis.ticker = BasicTicker(min_interval=1)
    axis.formatter = PrintfTickFormatter(format="%d")
