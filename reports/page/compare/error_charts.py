"""Charts of predictions against measurements: scatter, errors as bars and by size.

Errors lie on an axis of ratios, on which half and twice are equally far off, and are read as percentages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, FactorRange, HoverTool, Range1d

from reports.analysis.intervals import Floats
from reports.compare.tables import size_of_power, size_range
from reports.page import charts, theme
from reports.terminal import text

COLORS = {"compute": theme.COMPUTE, "communication": theme.EXPOSED, "host": theme.IDLE}
TITLES = {"compute": "computation", "communication": "communication", "host": "neither"}
_BANDS = (0.25, 0.1)
# Beyond a factor of 1,000 an error is drawn as one of that.
_FURTHEST = float(np.log2(1000))
_RATIOS = (
    0.001,
    0.01,
    0.05,
    0.1,
    0.25,
    0.5,
    0.75,
    0.9,
    0.95,
    0.98,
    0.99,
    1.01,
    1.02,
    1.05,
    1.1,
    1.25,
    1.5,
    2,
    4,
    10,
    30,
)
_TICKS = np.log2(np.array([*_RATIOS, 30, 100, 1000]))
_ROW = 22  # px of a bar with its gap
# On a narrow screen only these few have room.
_PERCENT = """
    const share = 100 * (2 ** tick - 1)
    const hasRoom = innerWidth >= 600 || few.some((one) => Math.abs(one - tick) < 1e-9)
    return hasRoom ? `${share > 0.5 ? "+" : ""}${Number(share.toPrecision(3))} %` : ""
"""
# In a narrow range Bokeh's ticks are evenly spaced, which crowds them at the upper end: 1, 2 and 5 are named there.
_DURATION = """
    const isRound = (one) => [1, 2, 5].includes(Number((one / 10 ** Math.floor(Math.log10(one) + 1e-9)).toPrecision(6)))
    if (!isRound(tick) && ticks.filter(isRound).length > 1) return ""
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
        if (tick >= size) return Number((tick / size).toPrecision(3)) + " " + unit
    }
    return tick + " ns"
"""


@dataclass(frozen=True, slots=True)
class Points:
    """What a scatter shows: a name and a group each, a time on either side and where 80 % of such times lie, in ns."""

    names: Sequence[str]
    groups: Sequence[str]
    predicted: Floats
    predicted_low: Floats
    predicted_high: Floats
    measured: Floats
    measured_low: Floats
    measured_high: Floats


def scatter(points: Points, colors: Mapping[str, str]) -> Any:
    """Predicted against measured times on logarithmic axes, over bands of 10 % and 25 % around the diagonal.

    Points must be above 0; `colors` are by group, in the legend's order.
    """
    low, high = _bounds(points)
    drawn = charts.figure(
        height=460, x="measured", y="predicted", zooms="both", x_axis_type="log", y_axis_type="log",
        x_range=Range1d(low, high), y_range=Range1d(low, high),
    )  # fmt: skip
    _draw_bands(drawn, low / 1e3, high * 1e3)
    for axis in drawn.axis:
        axis.formatter = CustomJSTickFormatter(code=_DURATION)
        axis.ticker.desired_num_ticks = 5
    dots = []
    for group, color in colors.items():
        kept = np.array([one == group for one in points.groups], bool)
        if kept.any():
            dots.append(_draw_points(drawn, _source(points, kept, low), color, group))
    charts.legend(drawn)
    _add_hover(drawn, dots, [("predicted", "@predicted_words"), ("measured", "@measured_words"), ("error", "@error")])
    return drawn


def _bounds(points: Points) -> tuple[float, float]:
    """Bounds of both axes: all dots, and the bars up to a factor of ten beyond them."""
    dots = np.concatenate([points.predicted, points.measured])
    bars = [points.predicted_low, points.predicted_high, points.measured_low, points.measured_high]
    every = np.clip(np.concatenate([dots, *bars]), dots.min() / 10, dots.max() * 10)
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


def _source(points: Points, kept: np.ndarray, low: float) -> ColumnDataSource:
    """A bar that begins at 0 begins at the axis."""
    numbers = {
        name: np.maximum(getattr(points, name)[kept], low / 100)
        for name in ("predicted", "predicted_low", "predicted_high", "measured", "measured_low", "measured_high")
    }
    words = {
        f"{side}_words": [
            f"{text.duration(middle)} ({text.duration(first)} to {text.duration(last)})"
            for middle, first, last in zip(
                *(getattr(points, f"{side}{end}")[kept] for end in ("", "_low", "_high")), strict=True
            )
        ]
        for side in ("predicted", "measured")
    }
    error = points.predicted[kept] / points.measured[kept] - 1
    names = [name for name, is_kept in zip(points.names, kept, strict=True) if is_kept]
    return ColumnDataSource({**numbers, **words, "name": names, "error": [text.signed_percent(one) for one in error]})


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
    """Where errors lie on an axis of ratios, which is one of logarithms to base 2."""
    with np.errstate(divide="ignore"):
        ratios: Floats = np.clip(np.log2(1 + np.asarray(errors, float)), -_FURTHEST, _FURTHEST)
    return ratios


def error_axis(axis: Any, ratios: Floats, most: int = 12, most_narrow: int = 12) -> tuple[float, float]:
    """Percentages on an axis of ratios that holds these and 0; gives where it begins and ends.

    At most so many are named, on a narrow screen fewer.
    """
    low = min(float(np.nanmin(ratios, initial=0.0)), -0.07)
    high = max(float(np.nanmax(ratios, initial=0.0)), 0.07)
    low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)
    ticks = _apart([tick for tick in _TICKS.tolist() if low <= tick <= high], (high - low) / most)
    axis.ticker = ticks
    axis.formatter = CustomJSTickFormatter(args={"few": _apart(ticks, (high - low) / most_narrow)}, code=_PERCENT)
    return low, high


def _apart(ticks: Sequence[float], gap: float) -> list[float]:
    """0, and of the others those that have room, from 0 on."""
    kept = [0.0]
    for tick in sorted(ticks, key=abs):
        if tick and all(abs(tick - other) >= gap for other in kept):
            kept.append(tick)
    return sorted(kept)


def error_bars(names: Sequence[str], errors: Any, colors: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Any:
    """A bar for each name, the first on top, to the left of zero for what was predicted too fast.

    SideBySide the bars stand names without their streams: their ends tell them apart where there is little room.
    `columns` are further words for the tooltips, by title.
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
    drawn = charts.figure(height=_ROW * max(len(names), 1) + 60, x="error", y_range=FactorRange(factors=short[::-1]))
    bars = drawn.hbar(y="row", left=0, right="ratio", height=0.7, source=source, fill_color="color", line_color=None)
    drawn.x_range = Range1d(*error_axis(drawn.xaxis[0], ratios, most=8, most_narrow=4))
    charts.cut_names(drawn.yaxis[0])
    drawn.ygrid.grid_line_color = None
    charts.rule(drawn, 0.0)
    _add_hover(drawn, [bars], [("error", "@error"), *((title, f"@{{{title}}}") for title in columns)])
    return drawn


def errors_over_sizes(rows: Sequence[Mapping[str, Any]], medians: Mapping[str, Sequence[tuple[int, float]]]) -> Any:
    """A dot for each row of name, kind, size and error, and a line through the medians of each part by its sizes."""
    kinds = list(dict.fromkeys(str(row["kind"]) for row in rows))
    places = {at: _place(at) for at in sorted({int(row["size_from_bytes"]) for row in rows})}
    drawn = charts.figure(height=400, x="size of one call", y="error", x_range=_size_range(places))
    ratios = log_ratio([row["error"] for row in rows])
    drawn.y_range = Range1d(*error_axis(drawn.yaxis[0], ratios))
    _name_sizes(drawn.xaxis[0], places)
    charts.rule(drawn, 0.0, across="width")
    dots = []
    for kind, color in zip(kinds, _colors(kinds), strict=True):
        kept = [at for at, row in enumerate(rows) if row["kind"] == kind]
        source = _size_source([rows[at] for at in kept], ratios[kept])
        dots.append(
            drawn.scatter(
                x="x",
                y="ratio",
                source=source,
                size=8,
                fill_color=color,
                fill_alpha=0.7,
                line_color=None,
                legend_label=kind,
            )
        )
    for part, points in medians.items():
        middle = ColumnDataSource(
            {"x": [_place(at) for at, _ in points], "y": log_ratio([error for _, error in points])}
        )
        title = f"median of {TITLES[part]}"
        drawn.line(x="x", y="y", source=middle, line_color=COLORS[part], line_width=2, legend_label=title)
    charts.legend(drawn)
    drawn.legend[0].ncols = 2  # kinds have long names
    _add_hover(
        drawn, dots, [("size", "@size"), ("predicted", "@predicted"), ("measured", "@measured"), ("error", "@error")]
    )
    return drawn


def _size_source(rows: Sequence[Mapping[str, Any]], ratios: Floats) -> ColumnDataSource:
    """Rows of one size stand beside each other by name, so that few hide another."""
    return ColumnDataSource(
        {
            "x": [_place(int(row["size_from_bytes"])) for row in rows],
            "ratio": ratios,
            "name": [row["name"] for row in rows],
            "size": [size_range(row["size_from_bytes"], row["size_until_bytes"]) for row in rows],
            "predicted": [text.duration(row["predicted_ns"]) for row in rows],
            "measured": [text.duration(row["measured_ns"]) for row in rows],
            "error": [text.signed_percent(row["error"]) for row in rows],
        }
    )


def _colors(kinds: Sequence[str]) -> list[str]:
    return theme.colors(["compute" if kind == "compute" else "communication" for kind in kinds])


def _place(from_bytes: int) -> float:
    """The middle of a power of two's size class on a logarithmic axis; 0 bytes are left of all."""
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
