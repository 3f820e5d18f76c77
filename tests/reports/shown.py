"""The report of a run, for tests that look at what it says."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from reports.json_document import document
from reports.run import Run
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.terminal.render import render_report


def summarize(run: Run, step: int | None = None) -> RenderableType:
    """Return what a terminal shows; `step` as for `RunView.of`."""
    return render_report(RUN, RunView.of(run, step))


def as_json(run: Run) -> dict[str, Any]:
    """Return what a script reads."""
    return document(RUN, RunView.of(run))
