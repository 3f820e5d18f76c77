"""The output in notebooks: reports as HTML without scripts, and drawings of a run's page in a frame of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import escape

from reports.errors import ReportError
from reports.page import render
from reports.page.blocks import Chart, Page, Timeline
from reports.page.sections import draw_section
from reports.run import Run
from reports.sections.model import Bar, Figure, Report, Shown
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView

_HEIGHT = 420  # px, until the frame's script knows


def fragment(report: Report, of: Any) -> str:
    """Return a report without its figures as HTML that can stand in any page, in that page's colours."""
    shown = (section.show(of, "page") for section in report.sections)
    sections = [draw_section(one) for one in map(_without_figures, shown) if one is not None]
    return _inline(report.lines(of), sections)


def _inline(lines: Sequence[str], sections: Sequence[Shown]) -> str:
    return render.template("fragment.html").render(lines=lines, sections=sections)


def _without_figures(section: Shown | None) -> Shown | None:
    if section is None or section.absent:
        return section
    blocks = [block for block in section.blocks if not isinstance(block, Figure)]
    return replace(section, blocks=blocks) if blocks else None


@dataclass(frozen=True, slots=True, repr=False)
class Plot:
    """The drawings of a section of a run's page, which a notebook shows, with their controls."""

    run: str
    section: Shown

    @property
    def figures(self) -> list[Any]:
        """The drawings that are Bokeh's, to be changed, laid out or exported; the others are SVG."""
        return [block.model for block in self.section.blocks if isinstance(block, Chart | Timeline)]

    def __repr__(self) -> str:
        return f"<Plot {self.section.title!r} of {self.run}, which a notebook shows>"

    def _repr_html_(self) -> str:
        if not self.figures:  # SVG needs no script
            return _inline([], [self.section])
        page = render.html(Page(title=self.run, about=(), sections=[self.section], whole=False))
        style = f"width: 100%; height: {_HEIGHT}px; border: 0"
        return f'<iframe title="{escape(self.section.title)}" style="{style}" srcdoc="{escape(page)}"></iframe>'


def plot(run: Run, name: str) -> Plot:
    """Return the drawings of the section of the run's page that has this name.

    Raises:
        ReportError: no section has the name, or there is nothing to draw.
    """
    view = RunView.of(run)
    sections = {one.name: shown for one in RUN.sections if (shown := one.show(view, "page")) is not None}
    drawn = {key: replace(one, blocks=found) for key, one in sections.items() if (found := _figures(one))}
    if name in drawn:
        section = draw_section(replace(drawn[name], folded=False))
        if not section.absent:
            return Plot(run.info.name, section)
        sections[name] = section
    if name in sections and (why := sections[name].absent):
        raise ReportError(f"plot {name!r}: {run.info.name} has none: {why[0].lower()}{why[1:-1]}")
    raise ReportError(f"plot {name!r}: expected one of {', '.join(drawn)}")


def _figures(section: Shown) -> list[Figure | Bar]:
    return [block for block in section.blocks if isinstance(block, Figure | Bar)]
