"""The page of a job of days: a typical job's time row by row, and curves over intervals, cluster sizes and draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from bokeh.models import ColumnDataSource
from markupsafe import Markup

from reports.job.folder import JobRun
from reports.job.real_job import REAL_JOB, RealJob
from reports.page import charts, svg, theme
from reports.page.blocks import Chart, Page, Picture
from reports.page.sections import draw_sections
from reports.sections.job.report import JOB, JOB_SUMMARY
from reports.terminal import text
from reports.terminal.rows import records

_ROWS = (3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0, 28 * 86_400.0, 364 * 86_400.0)  # seconds that a row may have
_MOST_ROWS = 14
_ROW, _BOX, _LABEL = 24, 16, 0.09  # px, px, share of the width
_SEEN = 1 / 800  # least width of a loss, as a share of the row


def page(job: JobRun | RealJob) -> Page:
    """Return the whole page."""
    if isinstance(job, RealJob):
        sections = draw_sections(REAL_JOB, job)
        return Page(title=job.head["name"], about=REAL_JOB.lines(job), sections=sections)
    head = job.head
    count = f"{head['simulated_jobs']:,} jobs were simulated"
    foot = f"{count}; scenario {head['scenario']}; `twinstep docs jobs` describes all."
    return Page(title=head["name"], about=JOB_SUMMARY.lines(job), sections=draw_sections(JOB, job), foot=[foot])


def timeline(job: JobRun) -> list[Picture]:
    """Draw the typical job, a row for each hour, day or week."""
    ends_s = float(job.phases["end_s"].max())
    row_s = next((one for one in _ROWS if ends_s <= _MOST_ROWS * one), ends_s / _MOST_ROWS)
    count = max(math.ceil(ends_s / row_s - 1e-9), 1)
    boxes: list[Markup] = []
    for row in range(count):
        top = _ROW * row
        said = _row_name(row, row_s)
        boxes.append(svg.words(0, top + 13, said, class_="muted", font_size=12))
        boxes += _row(job.phases, row * row_s, row_s, top)
    losses = [name for name in theme.LOSSES if name in set(job.phases["what"])]
    note = "A row is " + text.duration(1e9 * row_s) + ". Losses that are too short to be seen are drawn wider."
    drawn = svg.drawing(_ROW * count, boxes, "what happened in a typical job")
    return [Picture("week", "", drawn, note, [(theme.LOSSES[name], name) for name in losses])]


def _row_name(row: int, row_s: float) -> str:
    if row_s >= 7 * 86_400:
        return f"day {round(row * row_s / 86_400) + 1}"
    return f"day {row + 1}" if row_s == 86_400 else text.duration(1e9 * row * row_s) if row else "begin"


def _row(phases: pd.DataFrame, from_s: float, row_s: float, top: float) -> Iterator[Markup]:
    """Yield the boxes of a row: steps first, then losses over them."""
    inside = phases[(phases["end_s"] > from_s) & (phases["begin_s"] < from_s + row_s)]
    order = inside["what"].ne("steps").to_numpy().argsort(kind="stable")
    for one in records(inside.iloc[order]):
        left = max((one["begin_s"] - from_s) / row_s, 0.0)
        right = min((one["end_s"] - from_s) / row_s, 1.0)
        width = right - left if one["what"] == "steps" else max(right - left, _SEEN)
        hosts = text.count_words(one["hosts"], "host")
        says = f"{one['what']}, {text.duration(1e9 * (one['end_s'] - one['begin_s']))}, on {hosts}"
        says += f": {one['why']}" if one["why"] else ""
        place = _LABEL + (1 - _LABEL) * min(left, 1 - width)
        yield svg.box(place, top, (1 - _LABEL) * width, _BOX, says, fill=theme.LOSSES[one["what"]])


def intervals(job: JobRun) -> list[Chart]:
    """Draw goodput over the checkpoint interval, simulated and by closed form."""
    said = [("steps", "@steps{0,0}"), ("simulated", "@goodput{0.0 %}"), ("closed form", "@closed_form{0.0 %}")]
    drawn, source = _goodput_over(job.intervals, "steps between two checkpoints", said)
    charts.line(drawn, source, x="steps", y="closed_form", color=theme.IDLE, title="closed form")
    charts.line(drawn, source, x="steps", y="goodput", color=theme.PREDICTED, title="simulated")
    charts.rule(drawn, float(job.head["checkpoint"]["interval_steps"]), dashed=True)
    charts.legend(drawn)
    return [Chart("interval", "", drawn, "The dashed line is the job's interval.")]


def sizes(job: JobRun) -> list[Chart]:
    """Draw goodput over the number of hosts."""
    said = [("hosts", "@hosts{0,0}"), ("goodput", "@goodput{0.0 %}"), ("hosts that count", "@useful_hosts{0,0.0}")]
    drawn, source = _goodput_over(job.sizes, "hosts", said)
    charts.line(drawn, source, x="hosts", y="goodput", color=theme.PREDICTED)
    return [Chart("size", "", drawn)]


def _goodput_over(frame: pd.DataFrame, x: str, said: list[tuple[str, str]]) -> tuple[Any, ColumnDataSource]:
    """Return an empty chart of goodput, which shows `said` of a point, with the frame as its source."""
    source = ColumnDataSource({str(name): frame[name].to_numpy() for name in frame})
    drawn = charts.figure(height=240, x=x, y="goodput", x_axis_type="log", tooltips=said)
    charts.percent_axis(drawn.yaxis[0])
    return drawn, source


def draws(job: JobRun) -> list[Chart]:
    """Draw how goodput, or the time to train, spreads over the jobs."""
    if job.head["goal"]["kind"] == "samples":
        values, x = job.draws["seconds"] / 86_400, "days to train"
    else:
        values, x = 100 * job.draws["goodput"], "goodput in %"
    drawn = charts.histogram(values, [1.0] * len(values), x=x, y="jobs", color=theme.PREDICTED)
    return [Chart("spread", "", drawn)]
