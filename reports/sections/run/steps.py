"""The sections on a run's time: its steps, their parts, the critical path of one, and recorded metrics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from reports.analysis.step_breakdown import PARTS, parts_of_step, why_no_step
from reports.sections import model
from reports.sections.model import PAGE, Column, Columns, Most, ReportSection, ReportTable, figure, on_page, on_terminal
from reports.sections.run.causes import with_launching
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import cells, name_rows, records, represent_rows, write_cell

# If there are more steps, each phase is a row.
_STEPS_SHOWN = 12
_METRICS_SHOWN, _METRIC_ROWS = 3, 200
_PARTS_NOTE = (
    "Compute, exposed transfer, waiting for other ranks, idle and step skew add up to the step. A rank waits in a"
    " collective until the last member has entered. In step skew a rank waits for others to start or finish the step."
    " Hidden communication overlaps compute."
)


def _steps(view: RunView) -> Iterator[ReportTable]:
    steps = view.run.steps
    by, has_phases = ["step"] if len(steps) <= _STEPS_SHOWN else ["phase", "warm_up"], steps["phase"].nunique() > 1
    groups = [group for _, group in steps.groupby(by, sort=False)]
    rows = [[*_step_row(group), note] for group, note in zip(groups, _phase_notes(groups), strict=True)]
    columns = ["steps", "count", "median", "min", "max", "samples/s", "operations"]
    if by == ["step"]:  # a row of one step has no count and no median
        columns = ["step", "time", "fastest rank", "slowest rank", "samples/s", "operations"]
        rows = [[number, *others] for number, _, *others in rows]
    note = "A phase is a stretch of steps that use the same operations." if has_phases else ""
    yield ReportTable("Steps", columns, rows, note=note, folded=True, raw={"sum": float(steps["step_ns"].sum())})


def _step_row(group: pd.DataFrame) -> list[str]:
    single = len(group) == 1
    low = group["fastest_rank_ns"].min() if single else group["step_ns"].min()
    high = group["slowest_rank_ns"].max() if single else group["step_ns"].max()
    rate = text.number(float(group["samples_per_s"].median()))
    times = [float(group["step_ns"].median()), float(low), float(high)]
    return [text.ranges(group["step"].tolist()), f"{len(group):,}", *map(text.duration, times), rate]


def _phase_notes(groups: list[pd.DataFrame]) -> Iterator[str]:
    previous = None
    for group in groups:
        phase = int(group["phase"].iloc[0])
        changed = "first" if previous is None else "same" if phase == previous else "changed"
        changed = "warm-up" if bool(group["warm_up"].any()) else changed
        yield changed if bool(group["complete"].all()) else "incomplete"
        previous = phase


STEPS = ReportSection(
    "steps",
    "Step times",
    [figure("run.times.steps"), _steps],
    absent=lambda view: "" if len(view.run.steps) else f"No rank completed a step{why_no_step(view.run)}.",
    data=lambda view: {"steps": view.run.steps, "unrecorded_steps": view.run.unrecorded_steps},
)


def _breakdown(view: RunView) -> Iterator[ReportTable]:
    """Yield shares of the whole step that are not 0; exposed communication is split into its two parts."""
    spent = parts_of_step(view.run, view.kept_steps)
    raw = dict(zip((name.removesuffix("_ns") for name in PARTS), spent["mean_ns"], strict=True))
    shown = spent[((spent["part"] != PARTS["exposed_ns"]) & (spent["max_ns"] > 0)).to_numpy(bool)]
    columns = {"part": "part", "mean_ns": "mean", "share": "share", "max_ns": "max", "rank": "on rank"}
    columns["max_over_mean"] = "max/mean"
    compute = f"{PARTS['compute_ns']}{with_launching(view.run, view.step)}"
    names = shown["part"].replace(PARTS["compute_ns"], compute)
    frame, title = shown.assign(rank=represent_rows(shown), part=names), f"Step breakdown over ranks, {view.which}"
    yield model.table_of(title, frame, columns, note=_PARTS_NOTE, raw=raw, name="Breakdown over ranks")


def _no_breakdown(view: RunView) -> str:
    return view.why_absent() or ("" if len(parts_of_step(view.run, view.kept_steps)) else "No rank completed a step.")


PARTS_OF_STEP = ReportSection(
    "parts",
    "Parts of a step",
    [figure("run.times.parts"), _breakdown],
    absent=_no_breakdown,
    absent_in=PAGE,
    folded=True,
)


def _path(view: RunView) -> Iterator[ReportTable]:
    assert view.step is not None
    own = view.run.waited_for_of(view.step)

    def rows(most: int) -> list[list[str]]:
        """Return the longest segments, in order, then all others together, and the sum."""
        kept = own.sort_values("duration_ns", ascending=False, kind="stable").head(most).sort_values("order")
        found = cells(name_rows(kept), ["name", "kind", "part", "segments", "duration_ns", "share"])
        rest = own.drop(kept.index)
        others = {f"({len(rest)} others)": rest} if len(rest) else {}
        for name, frame in {**others, "total": own}.items():
            sums = (write_cell(column, float(frame[column].sum())) for column in ("duration_ns", "share"))
            found.append([name, "", "", f"{int(frame['segments'].sum()):,}", *sums])
        return found

    columns: Columns = ["operation", "kind", Column("part", PAGE), Column("segments", PAGE), "time", "share"]
    title, raw = (
        f"Critical path of step {view.step}, in order{view.phrase_on_ranks}",
        {"sum": float(own["duration_ns"].sum())},
    )
    yield ReportTable(title, columns, rows, left=3, folded=True, raw=raw, name="The whole path", most=Most(16, 200))


def _no_path(view: RunView) -> str:
    if view.step is None:
        return view.why_absent() or "No rank completed a step."
    return "" if len(view.run.waited_for_of(view.step)) else f"Step {view.step} took no time."


CRITICAL_PATH = ReportSection(
    "critical-path",
    "Critical path",
    [figure("run.times.critical_path"), _path],
    absent=_no_path,
    absent_in=PAGE,
    data=lambda view: {"waited_for": view.run.waited_for},
    folded=True,
)


def _by_step(view: RunView) -> Iterator[ReportTable]:
    frame = view.run.metrics_by_step
    names = list(dict.fromkeys(frame["name"].tolist()))
    shown, half = names[:_METRICS_SHOWN], _STEPS_SHOWN // 2
    values = {(row["step"], row["name"]): row["mean"] for row in records(frame)}
    steps = sorted(set(frame["step"].tolist()))
    kept = steps if len(steps) <= _STEPS_SHOWN else [*steps[:half], *steps[-half:]]
    rows = [[str(step), *(_exact(values.get((step, name), float("nan"))) for name in shown)] for step in kept]
    if len(kept) < len(steps):
        rows.insert(half, ["...", *("" for _ in shown)])
    more = f"; {len(names) - len(shown)} more names left out" if len(names) > len(shown) else ""
    yield ReportTable(f"Recorded metrics, mean over ranks{more}", ["step", *shown], rows)


def _exact(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.7g}"


def _by_name(view: RunView) -> Iterator[ReportTable]:
    rows = []
    for name, own in view.run.metrics_by_step.groupby("name", sort=False):
        numbers = own["mean"].iloc[0], own["mean"].iloc[-1], own["min"].min(), own["max"].max()
        rows.append([str(name), f"{len(own):,}", *(f"{value:.7g}" for value in numbers)])
    columns, most = ["number", "steps", "first", "last", "min", "max"], Most(_METRIC_ROWS, _METRIC_ROWS)
    yield ReportTable("Recorded metrics, mean over ranks", columns, rows, most=most, file="metrics_by_step.csv")


METRICS = ReportSection(
    "numbers",
    "Recorded metrics",
    [figure("run.times.metrics"), on_terminal(_by_step), on_page(_by_name)],
    absent=lambda view: "" if len(view.run.metrics_by_step) else "The program recorded no metrics.",
    data=lambda view: {"metrics": view.run.metrics},
    folded=True,
)
