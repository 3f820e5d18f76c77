"""Render sections for a page, whose figures are drawn here; this renderer knows no particular section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from reports.page import svg
from reports.page.blocks import Chart, Picture, Timeline
from reports.sections.model import Bar, Figure, Report, Shown, Words

# The result of a figure's function: drawings, words in their place, or the reason why there are none.
Drawn = Iterable[Chart | Picture | Timeline | Words] | str


def draw_sections(report: Report, of: Any) -> list[Shown]:
    """Return the sections of a page, with their figures."""
    shown = (section.show(of, "page") for section in report.sections)
    return [draw_section(one) for one in shown if one is not None]


def draw_section(section: Shown) -> Shown:
    """Return a section with its figures and bars as drawings."""
    blocks: list[Any] = []
    absent = section.absent
    for block in section.blocks:
        found = drawing(block) if isinstance(block, Figure) else [svg.bar(block) if isinstance(block, Bar) else block]
        absent = found if isinstance(found, str) else absent
        blocks += [] if isinstance(found, str) else found
    return replace(section, blocks=blocks, absent="" if blocks else absent)


def drawing(figure: Figure) -> Drawn:
    """Return the drawings of the figure's function."""
    module, _, name = figure.draw.rpartition(".")
    draw: Callable[[Any], Drawn] = getattr(import_module(f"reports.page.{module}"), name)
    return draw(figure.of)


def sentences(words: Words) -> Iterator[str]:
    """Yield each line of a section's text as a sentence, which ends with a colon if the section also has a list."""
    for line in words.text.split("\n") if words.text else []:
        if line.endswith((".", ":", "!", "?")):
            yield line
        else:
            yield f"{line[:1].upper()}{line[1:]}{':' if words.items else '.'}"
