"""The page of a study: tables of its named and best points, and all points to filter, by a script."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from bokeh.core.properties import value
from bokeh.models import CDSView, ColumnDataSource, CustomJSTickFormatter, HoverTool, IndexFilter, Scatter, TapTool

from reports.page import charts, theme
from reports.page.blocks import Chart, Own, Page
from reports.page.sections import draw_sections
from reports.page.study.payload import links, payload
from reports.sections.study import STUDY, StudyView
from reports.study.rows import COPY

_SCRIPTS = ("study/points.js", "study/parallel.js", "study/levels.js", "study/table.js", "study/study.js")
_FRONT = "Line: the Pareto front of the points shown. Click a point to select it. Faint points are filtered out."


def page(frame: pd.DataFrame, about: Mapping[str, Any], folder: Path, away: str = "") -> Page:
    """Return the whole page; `folder` is the study's, and `away` the way to it from the page's folder."""
    hrefs = [away + href if href else "" for href in links(frame, folder)]
    view = StudyView(frame, about, hrefs=hrefs)
    lines = [*_description(folder), *STUDY.lines(view), f"Variations of {about['scenario']}."]
    foot = ["All numbers are those of the data set in rows/; `twinstep docs studies` describes every column."]
    own = Own(["study/study.css"], _SCRIPTS, payload(frame, about, folder, away)) if len(frame) else Own()
    return Page(title=Path(about["study"]).stem, about=lines, sections=draw_sections(STUDY, view), foot=foot, own=own)


def _description(folder: Path) -> list[str]:
    """Return the description of the study's file; [] if it has none, or cannot be read."""
    with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        described = tomllib.loads((folder / COPY).read_text(encoding="utf-8")).get("description")
        return [str(described)] if described else []
    return []


def front(view: StudyView) -> list[Chart]:
    """Draw the axes of the Pareto front, which the page's script fills."""
    return [Chart("front", "", _front(), _FRONT)]


def _front() -> Any:
    """Return the front as an empty figure; points that are filtered out stay faint, a click chooses one."""
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
