"""The timeline of a page: spans of some ranks and steps as bars.

A page cannot hold all spans of a long run: those of typical and of slow steps and ranks are shown, and the page states
which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import (
    CDSView,
    ColumnDataSource,
    CustomJSHover,
    HoverTool,
    IndexFilter,
    LinearColorMapper,
    Range1d,
)

from reports.analysis.frames import COMPUTE, KEYS, ints
from reports.analysis.intervals import Ints
from reports.page import charts, theme
from reports.page.blocks import ShownOperation, Timeline, TimelinePlace
from reports.page.run.shown_spans import ShownSpans, choose
from reports.run import Run
from reports.sections.address import NAME
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import operation_names

# Pixels of a row; fewer where very many spans overlap.
_LANE, _LEAST_LANE, _HEIGHT = 13, 3, 1800
_STEPS_NAMED = 12


def timeline(view: RunView) -> list[Timeline] | str:
    """Draw spans of operations, with the critical path of the view's step; return the reason where a run has none."""
    run, step = view.run, view.step
    shown = choose(run, step, view.also)
    spans = shown.spans
    if not len(spans):
        outside = "No operation has ended inside a step."
        return "This run has not kept spans of operations." if run.info.thinned else outside
    operations, numbers = _operations(run, spans)
    lanes = _Lanes.of(spans)
    origin = run.outline.first_ns
    names, colors = [one.name for one in operations], [one.color for one in operations]
    source = ColumnDataSource(
        {
            "left": charts.ms(ints(spans, "start_ns") - origin),
            "right": charts.ms(ints(spans, "end_ns") - origin),
            "lane": lanes.of_span.astype(np.float32),
            "operation": numbers.astype(np.uint16),
            "step": ints(spans, "step").astype(np.int32),
            "bytes": spans["bytes_sent"].to_numpy(np.float32),
        },
        name="spans",
    )
    drawn = _frame(source, lanes)
    mapper = LinearColorMapper(palette=colors, low=-0.5, high=len(colors) - 0.5)
    bars = drawn.hbar(
        y="lane", left="left", right="right", height=0.8, source=source, line_color=None,
        fill_color={"field": "operation", "transform": mapper},
        nonselection_fill_alpha=0.25,
        view=CDSView(filter=IndexFilter(name="shown", indices=[])),
    )  # fmt: skip
    drawn.add_tools(_hover(bars, source, names, lanes.names))
    places = _places(run, step, shown)
    if step is not None and step in shown.steps:
        _draw_path(drawn, run.critical_path_of(step), lanes, origin)
    begun = run.steps.loc[run.steps["step"].isin([place.step for place in places]).to_numpy(bool), "start_ns"]
    for begin in charts.ms(begun - origin):
        charts.rule(drawn, float(begin), dashed=True)
    title = f"{text.steps(shown.steps)}, {text.count_words(len(shown.ranks), 'rank')}".capitalize()
    return [Timeline(NAME, title, drawn, operations, places, _note(run, shown))]


def _note(run: Run, shown: ShownSpans) -> str:
    words = "Drag over a stretch to zoom, shift and wheel zoom too; hover for numbers. The thin line is the"
    words += " critical path of the first step named. Communication has its own rows under each stream's computation."
    is_all = len(shown.ranks) == len(run.outline.own["rank"].unique())
    if is_all and len(shown.steps) == len(run.kept_steps):
        return words + (
            f" {text.count_words(shown.left_out, 'span')} outside of steps not shown." if shown.left_out else ""
        )
    of = "all ranks" if is_all else f"ranks {text.ranges(shown.ranks)}"
    words += f" Of {shown.left_out + len(shown.spans):,} spans {len(shown.spans):,} are shown, those of {of} in"
    words += f" {text.steps(shown.steps)}: typical, slow and quick ones; all of them are in spans.parquet."
    if shown.in_part:
        words += f" Of {text.steps(shown.in_part)} only the ranks that comparisons link to are shown."
    return words


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The rows of the chart, from the top: one for a rank's computations on a stream, one or more for communication."""

    names: Sequence[str]
    of_span: Ints
    firsts: dict[tuple[int, str, bool], int]

    @classmethod
    def of(cls, spans: pd.DataFrame) -> _Lanes:
        """Return the rows for these spans; spans that overlap on one stream get further rows."""
        is_compute = (spans["kind"] == COMPUTE).to_numpy(bool)
        columns = (spans["rank"].tolist(), spans["stream"].tolist(), (~is_compute).tolist())
        keys = list(zip(*columns, strict=True))
        free: dict[tuple[int, str, bool], list[int]] = {}
        sub = np.zeros(len(spans), np.int64)
        starts, finishes = ints(spans, "start_ns"), ints(spans, "end_ns")
        for row in np.argsort(starts, kind="stable").tolist():
            start, end = int(starts[row]), int(finishes[row])
            ends = free.setdefault(keys[row], [])
            place = next((at for at, until in enumerate(ends) if until <= start), len(ends))
            if place == len(ends):
                ends.append(end)
            ends[place] = end
            sub[row] = place
        counts = dict(zip(spans["rank"].tolist(), spans["rank_count"].tolist(), strict=True))
        names: list[str] = []
        firsts: dict[tuple[int, str, bool], int] = {}
        for key in sorted(free, key=lambda key: (key[0], key[1] != "main", key[1], key[2])):
            firsts[key] = len(names)
            rank, stream, is_communication = key
            name = f"{text.representative(rank, counts[rank])} {stream}{' comm.' if is_communication else ''}"
            names += [name, *("" for _ in free[key][1:])]
        return cls(names, np.array([firsts[key] for key in keys], np.int64) + sub, firsts)


def _frame(source: ColumnDataSource, lanes: _Lanes) -> Any:
    left, right = float(np.min(source.data["left"])), float(np.max(source.data["right"]))
    margin = (right - left) * 0.005 or 0.001
    drawn = charts.figure(
        height=min(_LANE, max(_LEAST_LANE, _HEIGHT // len(lanes.names))) * len(lanes.names) + 20,
        x="ms from the beginning of the run",
        y="rank and stream",
        zooms="width",
        x_range=Range1d(left - margin, right + margin),
        y_range=Range1d(len(lanes.names) - 0.5, -0.5),
    )
    drawn.x_range.min_interval = 1e-6
    named = [at for at, name in enumerate(lanes.names) if name]
    every = max(1, len(named) // 48)
    drawn.yaxis[0].ticker = named[::every]
    drawn.yaxis[0].major_label_overrides = {at: text.shorten(lanes.names[at], 24) for at in named[::every]}
    drawn.yaxis[0].major_label_text_font_size = "11px"
    drawn.ygrid.grid_line_color = None
    return drawn


def _hover(bars: Any, source: ColumnDataSource, names: Sequence[str], lanes: Sequence[str]) -> HoverTool:
    """Return the tooltip; a row without a name of its own shows the last name above it."""
    above: list[str] = []
    for name in lanes:
        above.append(name or above[-1])
    look_up = "return names[value]"
    took = """
        const ns = 1e6 * (source.data.right[special_vars.index] - source.data.left[special_vars.index])
        for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
            if (ns >= size) return (ns / size).toPrecision(3) + " " + unit
        }
        return ns.toFixed(0) + " ns"
    """
    sent = """
        if (value < 0) return "not stated"
        for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
            if (value >= size) return (value / size).toPrecision(3) + " " + unit
        }
        return value.toFixed(0) + " B"
    """
    return HoverTool(
        renderers=[bars],
        tooltips=[
            ("", "@operation{custom}"),
            ("rank", "@lane{custom}"),
            ("step", "@step"),
            ("took", "@right{custom}"),
            ("from", "@left{0,0.0000} ms"),
            ("sent", "@bytes{custom}"),
        ],
        formatters={
            "@operation": CustomJSHover(args={"names": list(names)}, code=look_up),
            "@lane": CustomJSHover(args={"names": above}, code=look_up),
            "@right": CustomJSHover(args={"source": source}, code=took),
            "@bytes": CustomJSHover(code=sent),
        },
        point_policy="follow_mouse",
    )


def _operations(run: Run, spans: pd.DataFrame) -> tuple[list[ShownOperation], Ints]:
    """Return the shown operations, computations first, longest total first, and the index of each span's operation.

    An operation has the name that it has among all operations of the run, as links name it.
    """
    known = run.outline.used[KEYS].drop_duplicates().sort_values(KEYS, ignore_index=True)
    name_of = dict(zip(known.itertuples(index=False, name=None), operation_names(known), strict=True))
    grouped = spans.assign(took=spans["end_ns"] - spans["start_ns"]).groupby(KEYS, sort=True)
    summed = grouped["took"].agg(["sum", "size"]).reset_index()
    summed = summed.assign(
        part=np.where(summed["kind"] == COMPUTE, "compute", "communication"), at=np.arange(len(summed))
    )
    ordered = summed.sort_values(["part", "sum"], ascending=[False, False], ignore_index=True)
    names = [name_of[key] for key in ordered[KEYS].itertuples(index=False, name=None)]
    parts = ordered["part"].tolist()
    found = [
        ShownOperation(name, part, color, int(count), text.duration(float(took)))
        for name, part, color, count, took in zip(
            names, parts, theme.colors(parts), ordered["size"], ordered["sum"], strict=True
        )
    ]
    place = np.empty(len(ordered), np.int64)
    place[ordered["at"].to_numpy(np.int64)] = np.arange(len(ordered))
    return found, place[np.asarray(grouped.ngroup(), np.int64)]


def _places(run: Run, typical: int | None, shown: ShownSpans) -> list[TimelinePlace]:
    """Return the shown steps, the typical one first."""
    origin = run.outline.first_ns
    steps = run.steps[run.steps["step"].isin(shown.steps).to_numpy(bool)]
    slowest = int(ints(steps, "step")[ints(steps, "step_ns").argmax()]) if len(steps) else -1
    found = []
    for row in steps.to_dict("records"):
        step = int(row["step"])
        word = " (typical)" if step == typical else " (slowest)" if step == slowest and len(steps) > 1 else ""
        from_ms, until_ms = ((row[name] - origin) / 1e6 for name in ("start_ns", "end_ns"))
        margin = 0.01 * (until_ms - from_ms)
        found.append(TimelinePlace(f"step {step}{word}", from_ms - margin, until_ms + margin, step))
    found.sort(key=lambda place: (place.step != typical, "slowest" not in place.name, place.step))
    return found[:_STEPS_NAMED]


def _draw_path(drawn: Any, path: pd.DataFrame, lanes: _Lanes, origin: int) -> None:
    """Draw a critical path as a line from lane to lane; `origin` is the 0 of the axis, in ns."""
    keys = zip(path["rank"].tolist(), path["stream"].tolist(), (path["part"] == "communication").tolist(), strict=True)
    at = np.array([lanes.firsts.get(key, -1) for key in keys], np.int64)
    known = path[at >= 0].assign(lane=at[at >= 0])
    if not len(known):
        return
    left, right = (charts.ms(ints(known, name) - origin) for name in ("from_ns", "to_ns"))
    lane = known["lane"].to_numpy(float) + 0.44
    x = np.stack([left, right], 1).ravel()
    y = np.repeat(lane, 2)
    drawn.line(x=x, y=y, line_color=theme.LIGHT.ink, line_width=1.5, name="critical path", tags=["path"])
    drawn.renderers[-1].glyph.tags = ["ink:line_color"]
