"""Draw predictions against measurements: scatter, errors as bars and by size.

Errors are drawn on an axis of ratios, on which half and twice are equally far from zero, and labelled as percentages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, FactorRange, HoverTool, Range1d

from reports.analysis.intervals import Floats
from reports.compare.calls import size_of_power, size_ranges
from reports.page import charts, theme
from reports.sections.comparison import SIDES, TIMES, TITLES
from reports.terminal import text
from reports.terminal.rows import cells

COLORS = {"compute": theme.COMPUTE, "communication": theme.EXPOSED, "host": theme.IDLE}
_BANDS = (0.25, 0.1)
# Errors beyond a factor of 1,000 are drawn at that factor.
_FURTHEST = float(np.log2(1000))
_TOO_FAST = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99)
_TOO_SLOW = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 4, 10, 30, 100, 1000)
_TICKS = np.log2(np.array([*_TOO_FAST, *_TOO_SLOW]))
_ROW = 22  # px of a bar with its gap
# A narrow screen shows only the labels in `few`.
_PERCENT = """
    const share = 100 * (2 ** tick - 1)
    const hasRoom = innerWidth >= 600 || few.some((one) => Math.abs(one - tick) < 1e-9)
    return hasRoom ? `${share > 0.5 ? "+" : ""}${Number(share.toPrecision(3))} %` : ""
"""
# Bokeh's ticks are evenly spaced in a narrow range, which crowds them at the upper end: only 1, 2 and 5 are labelled.
_DURATION = """
    const isRound = (one) => [1, 2, 5].includes(Number((one / 10 ** Math.floor(Math.log10(one) + 1e-9)).toPrecision(6)))
    if (!isRound(tick) && ticks.filter(isRound).length > 1) return ""
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
        if (tick >= size) return Number((tick / size).toPrecision(3)) + " " + unit
    }
    return tick + " ns"
"""


# The number of steps that a wide screen can show.
_MOST = 1000
# Dots of more steps would hide each other.
_MOST_DOTS = 200


def scatter(points: pd.DataFrame, colors: Mapping[str, str]) -> Any:
    """Draw predicted against measured times on logarithmic axes, over bands of 10 % and 25 % around the diagonal.

    A point has `name` and `group`, and for both sides `SIDE`, `SIDE_low` and `SIDE_high` (10th and 90th percentile) in
    ns, above 0; `colors` are by group, in the legend's order.
    """
    low, high = _bounds(points)
    drawn = charts.figure(
        height=400, x="measured", y="predicted", zooms="both", x_axis_type="log", y_axis_type="log",
        x_range=Range1d(low, high), y_range=Range1d(low, high),
    )  # fmt: skip
    _draw_bands(drawn, low / 1e3, high * 1e3)
    for axis in drawn.axis:
        axis.formatter = CustomJSTickFormatter(code=_DURATION)
        axis.ticker.desired_num_ticks = 5
    dots = []
    for group, color in colors.items():
        kept = points[(points["group"] == group).to_numpy(bool)]
        if len(kept):
            dots.append(_draw_points(drawn, _source(kept, low), color, group))
    charts.legend(drawn)
    _add_hover(drawn, dots, [("predicted", "@predicted_words"), ("measured", "@measured_words"), ("error", "@error")])
    return drawn


def _bounds(points: pd.DataFrame) -> tuple[float, float]:
    """Return the bounds of both axes: all dots, and the bars up to a factor of ten beyond them."""
    dots = points[[*SIDES]].to_numpy(float)
    bars = points[[f"{side}_{end}" for side in SIDES for end in ("low", "high")]].to_numpy(float)
    every = np.clip(np.concatenate([dots, bars], axis=1), dots.min() / 10, dots.max() * 10)
    return float(every.min()) / 1.3, float(every.max()) * 1.3


def _draw_bands(drawn: Any, low: float, high: float) -> None:
    for width in _BANDS:
        corners = [low * (1 - width), low * (1 + width), high * (1 + width), high * (1 - width)]
        drawn.patch(
            x=[low, low, high, high], y=corners, line_color=None, fill_color=theme.LIGHT.muted, fill_alpha=0.13,
            tags=["muted:fill_color"],
        )  # fmt: skip
    muted = theme.LIGHT.muted
    drawn.line(x=[low, high], y=[low, high], line_color=muted, line_width=1, tags=["muted:line_color"])


def _source(points: pd.DataFrame, low: float) -> ColumnDataSource:
    """Return the columns of points; a bar from 0 is drawn from the axis."""
    columns: dict[str, Any] = {"name": points["name"].tolist()}
    for side in SIDES:
        times = points[[side, f"{side}_low", f"{side}_high"]]
        columns |= {name: np.maximum(times[name].to_numpy(float), low / 100) for name in map(str, times)}
        words = times.map(text.duration).itertuples(index=False, name=None)
        columns[f"{side}_words"] = [f"{middle} ({first} to {last})" for middle, first, last in words]
    error = points["predicted"] / points["measured"] - 1
    return ColumnDataSource({**columns, "error": [text.signed_percent(one) for one in error]})


def _draw_points(drawn: Any, source: ColumnDataSource, color: str, title: str) -> Any:
    bars: dict[str, Any] = {"source": source, "line_color": color, "line_alpha": 0.35, "legend_label": title}
    drawn.segment(x0="measured_low", x1="measured_high", y0="predicted", y1="predicted", **bars)
    drawn.segment(y0="predicted_low", y1="predicted_high", x0="measured", x1="measured", **bars)
    return drawn.scatter(
        x="measured", y="predicted", source=source, size=8, fill_color=color, fill_alpha=0.85,
        line_color=None, legend_label=title,
    )  # fmt: skip


def _add_hover(drawn: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]]) -> None:
    drawn.add_tools(HoverTool(renderers=list(renderers), tooltips=[("", "@name"), *tooltips]))


def log_ratio(errors: Any) -> Floats:
    """Return the positions of errors on an axis of ratios: logarithms to base 2."""
    with np.errstate(divide="ignore"):
        ratios: Floats = np.clip(np.log2(1 + np.asarray(errors, float)), -_FURTHEST, _FURTHEST)
    return ratios


def error_axis(axis: Any, ratios: Floats, most: int = 12, most_narrow: int = 12) -> tuple[float, float]:
    """Label an axis of ratios, which holds these and 0, with percentages; return its begin and end.

    The number of labelled ticks is at most `most`, on a narrow screen `most_narrow`.
    """
    low = min(float(np.nanmin(ratios, initial=0.0)), -0.07)
    high = max(float(np.nanmax(ratios, initial=0.0)), 0.07)
    low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)
    ticks = _apart([tick for tick in _TICKS.tolist() if low <= tick <= high], (high - low) / most)
    axis.ticker = ticks
    axis.formatter = CustomJSTickFormatter(args={"few": _apart(ticks, (high - low) / most_narrow)}, code=_PERCENT)
    return low, high


def _apart(ticks: Sequence[float], gap: float) -> list[float]:
    """Return 0 and the ticks that have room next to those already chosen, from 0 on."""
    kept = [0.0]
    for tick in sorted(ticks, key=abs):
        if tick and all(abs(tick - other) >= gap for other in kept):
            kept.append(tick)
    return sorted(kept)


def error_bars(names: Sequence[str], errors: Any, colors: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Any:
    """Draw a bar for each name, the first on top; predictions that are too fast point left of zero.

    Names next to bars lack their streams, because a cut name must keep its distinctive end.

    Args:
        names: the operations.
        errors: signed errors.
        colors: the bars' colours.
        columns: further words for the tooltips, by title.
    """
    short, ratios = charts.distinct([name.split(" @")[0] for name in names]), log_ratio(errors)
    source = ColumnDataSource(
        {
            "row": short,
            "name": list(names),
            "ratio": ratios,
            "color": list(colors),
            "error": [text.signed_percent(one) for one in np.asarray(errors, float)],
            **{title: list(words) for title, words in columns.items()},
        }
    )
    drawn = charts.figure(height=_ROW * max(len(names), 1) + 10, x="error", y_range=FactorRange(factors=short[::-1]))
    bars = drawn.hbar(y="row", left=0, right="ratio", height=0.7, source=source, fill_color="color", line_color=None)
    drawn.x_range = Range1d(*error_axis(drawn.xaxis[0], ratios, most=8, most_narrow=4))
    charts.cut_names(drawn.yaxis[0])
    drawn.ygrid.grid_line_color = None
    charts.rule(drawn, 0.0)
    _add_hover(drawn, [bars], [("error", "@error"), *((title, f"@{{{title}}}") for title in columns)])
    return drawn


def errors_over_sizes(calls: pd.DataFrame, medians: Mapping[str, Sequence[tuple[int, float]]]) -> Any:
    """Draw a dot for each call's name, kind, size and error, and lines through each part's medians by size."""
    kinds = list(dict.fromkeys(calls["kind"].tolist()))
    places = {at: _place(at) for at in sorted(set(calls["size_from_bytes"].tolist()))}
    drawn = charts.figure(height=330, x="size of one call", y="error", x_range=_size_range(places))
    calls = calls.assign(ratio=log_ratio(calls["error"]))
    drawn.y_range = Range1d(*error_axis(drawn.yaxis[0], calls["ratio"].to_numpy(float)))
    _name_sizes(drawn.xaxis[0], places)
    charts.rule(drawn, 0.0, across="width")
    dots = []
    for kind, color in zip(kinds, _colors(kinds), strict=True):
        source = _size_source(calls[(calls["kind"] == kind).to_numpy(bool)])
        dots.append(
            drawn.scatter(
                x="x", y="ratio", source=source, size=8, fill_color=color, fill_alpha=0.7, line_color=None,
                legend_label=kind,
            )
        )  # fmt: skip
    for part, points in medians.items():
        middle = {"x": [_place(at) for at, _ in points], "y": log_ratio([error for _, error in points])}
        drawn.line(
            x="x", y="y", source=ColumnDataSource(middle), line_color=COLORS[part], line_width=2,
            legend_label=f"median of {TITLES[part]}",
        )  # fmt: skip
    charts.legend(drawn)
    drawn.legend[0].ncols = 2  # kinds have long names
    names = ("size", "predicted", "measured", "error")
    _add_hover(drawn, dots, [(name, f"@{name}") for name in names])
    return drawn


def _size_source(calls: pd.DataFrame) -> ColumnDataSource:
    """Return the columns of calls; calls of one size are spread by name, so that few hide another."""
    times = dict(zip(TIMES.values(), zip(*cells(calls, list(TIMES)), strict=True), strict=True))
    places = [_place(at) for at in calls["size_from_bytes"].tolist()]
    return ColumnDataSource(
        {"x": places, "ratio": calls["ratio"].to_numpy(float), "name": calls["name"].tolist(),
         "size": size_ranges(calls), **{name: list(words) for name, words in times.items()}}
    )  # fmt: skip


def _colors(kinds: Sequence[str]) -> list[str]:
    return theme.colors(["compute" if kind == "compute" else "communication" for kind in kinds])


def _place(from_bytes: int) -> float:
    """Return the middle of a power of two's size class on a logarithmic axis; 0 bytes are leftmost."""
    return from_bytes.bit_length() - 0.5 if from_bytes else -0.5


def _size_range(places: Mapping[int, float]) -> Range1d:
    return Range1d(min(places.values()) - 1, max(places.values()) + 1)


def _name_sizes(axis: Any, places: Mapping[int, float]) -> None:
    first, last = min(places), max(places)
    exponents = range(max(first.bit_length() - 1, 0), last.bit_length() + 1)
    step = next(step for step in (1, 2, 4, 5, 10, 20) if len(exponents) / step <= 5)
    named = {float(at): size_of_power(1 << at) for at in exponents if at % step == 0}
    axis.ticker = [*([-0.5] if not first else []), *named]
    axis.major_label_overrides = {-0.5: "0 B", **named}


def step_errors(steps: pd.DataFrame) -> tuple[Any, str]:
    """Draw the steps that both runs completed, at most `_MOST` evenly spaced ones; return the chart and its note."""
    # Single steps, not means of neighbours: a mean would hide the steps that stand out.
    shown = steps if len(steps) <= _MOST else steps.iloc[np.linspace(0, len(steps) - 1, _MOST).astype(int)]
    ratios = log_ratio(shown["error"])
    source = ColumnDataSource(
        {
            "step": shown["step"].to_numpy(np.int64),
            "predicted": charts.ms(shown["predicted_ns"]),
            "measured": charts.ms(shown["measured_ns"]),
            "ratio": ratios,
            "predicted_words": [text.duration(ns) for ns in shown["predicted_ns"]],
            "measured_words": [text.duration(ns) for ns in shown["measured_ns"]],
            "error": [text.signed_percent(one) for one in shown["error"]],
        }
    )
    tooltips = [
        ("step", "@step"),
        ("predicted", "@predicted_words"),
        ("measured", "@measured_words"),
        ("error", "@error"),
    ]
    times = charts.figure(height=210, y="ms", zooms="width", tooltips=tooltips)
    is_dotted = len(shown) <= _MOST_DOTS
    for side, color in (("measured", theme.MEASURED), ("predicted", theme.PREDICTED)):
        if is_dotted:
            charts.line(times, source, x="step", y=side, color=color, title=side)
        else:
            times.line(x="step", y=side, source=source, line_color=color, legend_label=side)
    times.y_range.start = 0
    charts.legend(times)
    errors = _errors(source, times.x_range, is_dotted, tooltips)
    for drawn in (times, errors):
        drawn.xaxis[0].ticker.min_interval = 1
    few = "" if len(shown) == len(steps) else f" {len(shown):,} of {len(steps):,} steps, evenly spaced."
    return column(times, errors, sizing_mode="stretch_width"), f"Below zero the prediction is too fast.{few}"


def _errors(source: ColumnDataSource, steps: Any, is_dotted: bool, tooltips: Any) -> Any:
    drawn = charts.figure(height=130, x="step", y="error", x_range=steps, tooltips=tooltips)
    drawn.y_range = Range1d(*error_axis(drawn.yaxis[0], source.data["ratio"], most=5, most_narrow=5))
    charts.rule(drawn, 0.0, across="width")
    if is_dotted:
        drawn.segment(x0="step", x1="step", y0=0, y1="ratio", source=source, line_color=theme.EXPOSED, line_alpha=0.5)
        drawn.scatter(x="step", y="ratio", source=source, size=6, fill_color=theme.EXPOSED, line_color=None)
    else:
        drawn.line(x="step", y="ratio", source=source, line_color=theme.EXPOSED)
    return drawn
