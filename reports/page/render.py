"""Render a page as one HTML file, which opens from disk and loads nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from bokeh import __version__ as bokeh_version
from bokeh.embed import json_item
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from reports.page import theme
from reports.page.blocks import Chart, Page, Timeline
from reports.page.sections import sentences
from reports.sections.model import PageLink, ReportTable
from reports.store.replace import replace_file


def write(page: Page, path: Path) -> None:
    """Write the page, in place of an older one.

    Raises:
        ReportError: the disk refuses.
    """
    words = html(page)
    with replace_file(path) as draft:
        draft.write_text(words, encoding="utf-8", errors="backslashreplace")  # labels may hold half a surrogate pair


def html(page: Page) -> str:
    """Return the whole document."""
    return template("page.html").render(page=page, bokeh_version=bokeh_version)


def template(name: str) -> Template:
    """Return a template of this package."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("reports.page", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined, extensions=["jinja2.ext.do"],
    )  # fmt: skip
    found.globals |= {
        "style": _text("style.css"),
        "script": _text("page.js"),
        "text": _text,
        "bokeh": Markup(_bokeh()),
        "schemes": {"light": asdict(theme.LIGHT), "dark": asdict(theme.DARK)},
        "light": theme.LIGHT,
        "dark": theme.DARK,
    }
    found.filters |= {"item": _item, "embedded": _embed, "kind": lambda block: type(block).__name__.lower()}
    found.filters |= {"sentences": sentences, "grid": lambda table: table.grid("page")}
    found.filters |= {"note": _note, "loads": theme.loads}
    found.tests["link"] = lambda cell: isinstance(cell, PageLink)
    return found


def _note(table: ReportTable) -> str:
    """Return how to read a table, and where the rows are that it leaves out."""
    left_out = table.grid("page").left_out
    more = f"{left_out:,} more are in {table.file}." if table.file else f"{left_out:,} more are not shown."
    return " ".join(filter(None, [table.note, more if left_out else ""]))


def _text(name: str) -> Markup:
    return Markup(files("reports.page").joinpath(name).read_text(encoding="utf-8"))


def _bokeh() -> str:
    """Return Bokeh's own script, without its widgets, because the page has its own controls."""
    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


def _item(chart: Chart | Timeline) -> Markup:
    """Return a chart as Bokeh's script reads it."""
    return _embed(json_item(chart.model, target=None))


def _embed(value: Any) -> Markup:
    """Return JSON for a script element, with the characters escaped that could end it."""
    words = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(words.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
