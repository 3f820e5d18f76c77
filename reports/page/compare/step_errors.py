"""The chart of step times on both sides with their errors below."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, Range1d

from reports.page import charts, theme
from reports.page.compare.error_charts import error_axis, log_ratio
from reports.terminal import text

# As many as a wide screen has room for.
_MOST = 1000
# Of more, dots would hide each other.
_MOST_DOTS = 200


def chart(steps: pd.DataFrame) -> tuple[Any, str]:
    """The chart of the steps that both runs completed, at most `_MOST` evenly spaced ones, and its note."""
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
    times = charts.figure(height=260, y="ms", zooms="width", tooltips=tooltips)
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
    drawn = charts.figure(height=180, x="step", y="error", x_range=steps, tooltips=tooltips)
    drawn.y_range = Range1d(*error_axis(drawn.yaxis[0], source.data["ratio"], most=5, most_narrow=5))
    charts.rule(drawn, 0.0, across="width")
    if is_dotted:
        drawn.segment(x0="step", x1="step", y0=0, y1="ratio", source=source, line_color=theme.EXPOSED, line_alpha=0.5)
        drawn.scatter(x="step", y="ratio", source=source, size=6, fill_color=theme.EXPOSED, line_color=None)
    else:
        drawn.line(x="step", y="ratio", source=source, line_color=theme.EXPOSED)
    return drawn
