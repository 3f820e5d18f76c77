"""The page of a study: tables of its named and best points, and all points to filter, by a script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.page.blocks import Chart, Own, Page
from reports.page.sections import draw_sections
from reports.page.study.front import figure
from reports.page.study.payload import links, payload
from reports.sections.study import STUDY, StudyView

_SCRIPTS = ("study/points.js", "study/parallel.js", "study/levels.js", "study/table.js", "study/study.js")
_FRONT = "Line: the Pareto front of the points shown. Click a point to select it. Faint points are filtered out."


def page(frame: pd.DataFrame, about: Mapping[str, Any], folder: Path, away: str = "") -> Page:
    """Return the whole page; `folder` is the study's, and `away` the way to it from the page's folder."""
    hrefs = [away + href if href else "" for href in links(frame, folder)]
    view = StudyView(frame, about, hrefs=hrefs)
    lines = [*STUDY.lines(view), f"Variations of {about['scenario']}."]
    foot = ["All numbers are those of the data set in rows/; `twinstep docs studies` describes every column."]
    own = Own(["study/study.css"], _SCRIPTS, payload(frame, about, folder, away)) if len(frame) else Own()
    return Page(title=Path(about["study"]).stem, about=lines, sections=draw_sections(STUDY, view), foot=foot, own=own)


def front(view: StudyView) -> list[Chart]:
    """Draw the axes of the Pareto front, which the page's script fills."""
    return [Chart("front", "", figure(), _FRONT)]
