"""The Pareto front as an empty figure, which the page's script fills: points, the front's line, the named points."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import value
from bokeh.models import CDSView, ColumnDataSource, CustomJSTickFormatter, HoverTool, IndexFilter, Scatter, TapTool

from reports.page import charts, theme


def figure() -> Any:
    """Return the figure; points that are filtered out stay faint, a click on one of the others chooses it."""
    drawn = charts.figure(height=360, x=" ", y=" ", zooms="both")
    points = ColumnDataSource({"x": [], "y": [], "words": []}, name="front-points")
    out, shown = (CDSView(filter=IndexFilter(indices=[], name=f"front-{name}")) for name in ("faint", "shown"))
    faint = drawn.scatter(
        "x", "y", source=points, view=out, size=4, fill_color=theme.LIGHT.muted, fill_alpha=0.15, line_color=None
    )
    faint.glyph.tags = ["muted:fill_color"]
    bold = drawn.scatter(
        "x", "y", source=points, view=shown, size=6, fill_color=theme.COMPUTE, fill_alpha=0.6, line_color=None
    )
    chosen = Scatter(x="x", y="y", size=13, fill_color=theme.COMPUTE, line_color=theme.LIGHT.ink, line_width=2)
    chosen.tags = ["ink:line_color"]
    bold.selection_glyph, bold.nonselection_glyph = chosen, None
    faint.selection_glyph = faint.nonselection_glyph = None
    charts.line(drawn, ColumnDataSource({"x": [], "y": []}, name="front-line"), x="x", y="y", color=theme.EXPOSED)
    _draw_names(drawn)
    drawn.add_tools(
        HoverTool(renderers=[bold], tooltips='<div style="max-width: 320px">@words</div>', point_policy="snap_to_data"),
        TapTool(renderers=[bold]),
    )
    for name, axis in (("x", drawn.xaxis[0]), ("y", drawn.yaxis[0])):
        axis.name = f"front-{name}"
        axis.formatter = CustomJSTickFormatter(code=f"return window.study?.front?.tick('{name}', tick) ?? ''")
    return drawn


def _draw_names(drawn: Any) -> None:
    """Draw rings with a name next to each, at the side and line that `align`, `dx` and `dy` set."""
    fields = ("x", "y", "words", "align", "dx", "dy")
    source = ColumnDataSource({name: [] for name in fields}, name="front-named")
    ink = theme.LIGHT.ink
    rings = drawn.scatter("x", "y", source=source, size=11, fill_color=None, line_color=ink, line_width=2)
    words = drawn.text(
        "x", "y", "words", source=source, x_offset="dx", y_offset="dy", text_align="align", text_color=ink,
        text_font=value(theme.FONT),
        text_font_size="13px", text_font_style="bold",
    )  # fmt: skip
    rings.glyph.tags, words.glyph.tags = ["ink:line_color"], ["ink:text_color"]
