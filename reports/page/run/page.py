"""The page of one run."""

from __future__ import annotations

from collections.abc import Sequence

from reports.page.blocks import Page
from reports.page.sections import draw_sections
from reports.run import Run
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.sections.run.summary import SUMMARY


def page(run: Run, asked: int | None = None, also: Sequence[tuple[int, int]] = (), tables: str = "") -> Page:
    """Return the page of a run.

    Args:
        run: the run.
        asked: the step whose critical path is shown, by default a typical one.
        also: steps and ranks that the timeline must show.
        tables: the path of the tables, for the page's foot.

    Raises:
        ReportError: the run has no such step.
    """
    view = RunView.of(run, asked, also=also)
    where = f"All numbers are those of the tables in {tables}; `twinstep docs runs` describes every column."
    foot = [where] if tables else []
    return Page(title=run.info.name, about=SUMMARY.lines(view), sections=draw_sections(RUN, view), foot=foot)
