"""Where the time of a run went: its steps, their parts, what was hidden, the critical path, recorded metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.step_breakdown import PARTS, parts_of_step, ranks_of_step, steady_kept
from reports.page import charts, theme
from reports.page.blocks import Block, Chart, Section, Table
from reports.run import Run
from reports.terminal import headline as about
from reports.terminal import text
from reports.terminal.rows import cells, operation_name, operation_names, records, represented
from reports.terminal.run_tables import PART_COLUMNS, part_rows

_BARS = 24
_ROWS = 200
_METRICS = 6
_BANDWIDTH = ["algbw_bytes_per_s", "busbw_bytes_per_s"]
_BANDWIDTH_NOTE = " algbw and busbw as nccl-tests has them, since a call's last rank entered."
# Bars of operations by their part: which column is a layer of what name and colour.
_LAYERS = {
    "communication": {
        "hidden": ("hidden_ns", theme.HIDDEN),
        "exposed transfer": ("transfer_ns", theme.EXPOSED),
        "waiting for other ranks": ("wait_ns", theme.WAIT),
    },
    "compute": {"compute": ("mean_ns", theme.COMPUTE)},
}


def why_absent(run: Run) -> str:
    """Why a run shows nothing of its steady steps."""
    return "This run has not kept spans of these steps." if len(run.steps) else "No rank completed a step."


def steps(run: Run) -> Section:
    """Draw how long each step took."""
    frame = run.steps
    if not len(frame):
        return Section("steps", "Step times", absent=why_absent(run))
    blocks: list[Block] = []
    if len(frame) > 1:
        blocks.append(Chart("steps", "Time of each step", _over_steps(frame), _steps_note(frame)))
    rows = [_phase(group) for _, group in frame.groupby(["phase", "warm_up"], sort=False)]
    columns = ["steps", "count", "median", "min", "max", "samples/s"]
    has_phases = frame["phase"].nunique() > 1
    title = "Steps by phase" if has_phases else "Steps"
    note = "A phase is a stretch of steps that use the same operations." if has_phases else ""
    blocks.append(Table(title, columns, rows, note=note, raw={"sum": float(frame["step_ns"].sum())}))
    return Section("steps", "Step times", blocks)


def _phase(group: pd.DataFrame) -> list[str]:
    times = group["step_ns"].agg(["median", "min", "max"])
    rate = text.number(float(group["samples_per_s"].median()))
    numbers = text.ranges(group["step"].tolist())
    early = ", warm-up" if bool(group["warm_up"].any()) else ""
    early += "" if bool(group["complete"].all()) else ", not all complete"
    return [numbers + early, f"{len(group):,}", *map(text.duration, times), rate]


def _steps_note(frame: pd.DataFrame) -> str:
    words = "Line: first rank's start to last rank's end. Band: range of per-rank step times."
    if len(frame) > charts.POINTS:
        words += f" Each point is the median of {-(-len(frame) // charts.POINTS)} steps, the band their range."
    return words


def _over_steps(frame: pd.DataFrame) -> Any:
    columns = {"step_ns": "took", "fastest_rank_ns": "low", "slowest_rank_ns": "high"}
    times = frame.assign(**{name: charts.ms(frame[column]) for column, name in columns.items()})
    tooltips = [("step", "@step"), ("took", "@took{0.000} ms"), ("ranks", "@low{0.000} to @high{0.000} ms")]
    drawn = charts.over_steps(height=190, y="ms", tooltips=tooltips)
    charts.line_and_band(drawn, times, ("took", "low", "high"), theme.COMPUTE)
    drawn.y_range.start = 0
    return drawn


def parts(run: Run) -> Section:
    """What a step is made of, for a rank."""
    kept = steady_kept(run)
    spent = parts_of_step(run, kept) if kept else None
    if spent is None or not len(spent):
        return Section("parts", "Parts of a step", absent=why_absent(run))
    blocks: list[Block] = [
        Chart("parts", f"Step breakdown, mean of {text.steps(kept)}{about.only(run)}", _parts_bars(run, kept))
    ]
    note = (
        "Compute, exposed transfer, waiting for other ranks, idle and step skew add up to the step. A rank that has"
        " entered a collective waits until the last member has; in step skew it waits for others to start or finish"
        " the step. Hidden communication overlaps compute."
    )
    raw = dict(zip((name.removesuffix("_ns") for name in PARTS), spent["mean_ns"], strict=True))
    blocks.append(Table("Breakdown over ranks", PART_COLUMNS, part_rows(spent), note=note, raw=raw))
    return Section("parts", "Parts of a step", blocks)


def _parts_bars(run: Run, kept: list[int]) -> Any:
    """The mean rank, and those that have most of something."""
    each = ranks_of_step(run, kept)
    mean = {name: float(np.average(each[name], weights=each["rank_count"])) for name in PARTS}
    names, rows = ["the mean rank"], [mean]
    for column in ("compute_ns", "transfer_ns", "wait_ns", "idle_ns"):
        worst = each.iloc[[int(each[column].to_numpy().argmax())]]
        if worst[column].any():
            names.append(f"max {PARTS[column]}: rank {represented(worst)[0]}")
            rows += records(worst)
    layers = {PARTS[name]: ([row[name] / 1e6 for row in rows], color) for name, color in theme.PARTS.items()}
    return charts.stacked_bars(names, layers, x="ms per step")


def hidden(run: Run) -> Section:
    """What of communication ran beside compute, and what did not."""
    kept = steady_kept(run)
    if not kept:
        return Section("hidden", "Hidden and exposed", absent=why_absent(run))
    frame = run.operations_of(kept).sort_values(["mean_ns", "label", "kind"], ascending=[False, True, True])
    frame = frame.assign(name=operation_names(frame), transfer_ns=frame["exposed_ns"] - frame["wait_ns"])
    blocks: list[Block] = []
    of = f"of one rank in one of {text.steps(kept)}{about.only(run)}"
    overlaps = "; hidden overlaps with computation of the same rank, in waiting others have not entered yet"
    for part, name, title, note in (
        ("communication", "hidden", "Communication", overlaps),
        ("compute", "computed", "Computation", ""),
    ):
        own = frame[(frame["part"] == part).to_numpy(bool)]
        if len(own):
            top = own.head(_BARS)
            bars = {word: (charts.ms(top[column]), color) for word, (column, color) in _LAYERS[part].items()}
            drawn = charts.stacked_bars(top["name"].tolist(), bars, x="ms per step")
            blocks.append(Chart(name, title, drawn, f"Mean times {of}{note}.{_more(own, f'{title.lower()}s')}"))
    blocks.append(_operations(frame, of))
    return Section("hidden", "Hidden and exposed", blocks)


def _more(frame: pd.DataFrame, noun: str) -> str:
    return f" {len(frame) - _BARS} shorter {noun} are in the table." if len(frame) > _BARS else ""


def _operations(frame: pd.DataFrame, of: str) -> Table:
    columns = ["name", "kind", "calls_per_step", "mean_ns", "median_ns", "max_ns"]
    sent = ["bytes_sent", "transfer_ns", "wait_ns", "hidden_share", *_BANDWIDTH]
    shown = frame.head(_ROWS)
    rows = [
        [*row, *(own if part == "communication" else [""] * len(sent))]
        for row, own, part in zip(cells(shown, columns), cells(shown, sent), shown["part"], strict=True)
    ]
    columns = [
        "operation",
        "kind",
        "calls",
        "mean",
        "median",
        "max",
        "payload",
        "exposed transfer",
        "waiting",
        "hidden",
        "algbw",
        "busbw",
    ]
    more = f" {len(frame) - _ROWS} more are in steady_operations.csv." if len(frame) > _ROWS else ""
    raw = {name: float(frame[name].sum()) for name in ("mean_ns", "exposed_ns", "wait_ns", "hidden_ns")}
    return Table(
        "All operations", columns, rows, left=2, note=f"Times {of}.{_BANDWIDTH_NOTE}{more}", folded=True, raw=raw
    )


def critical_path(run: Run, step: int | None) -> Section:
    """What one step waited for."""
    title = "Critical path"
    if step is None:
        return Section("critical-path", title, absent=why_absent(run))
    waited = run.waited_for_of(step)
    if not len(waited):
        return Section("critical-path", title, absent=f"Step {step} took no time.")
    kept = waited.sort_values("duration_ns", ascending=False, kind="stable").head(_BARS).sort_values("order")
    names = [operation_name(row) for row in records(kept)]
    layers = {
        part: (charts.ms(np.where(kept["part"] == part, kept["duration_ns"], 0)), color)
        for part, color in (("compute", theme.COMPUTE), ("communication", theme.EXPOSED), ("host", theme.IDLE))
    }
    took = float(waited["duration_ns"].sum())
    note = (
        f"Step {step} takes {text.duration(took)}: the sum of these segments over all ranks{about.only(run)};"
        " shortening one shortens the step until another path becomes critical. Host is the program's own time, and"
        " whatever no span accounts for."
    )
    rest = waited.drop(kept.index)
    if len(rest):
        note += f" {len(rest)} shorter segments, {text.duration(float(rest['duration_ns'].sum()))}, are in the table."
    shown = waited.head(_ROWS)
    shown = shown.assign(name=[operation_name(row) for row in records(shown)])
    rows = cells(shown, ["name", "part", "segments", "duration_ns", "share"])
    columns = ["operation", "part", "segments", "time", "share"]
    drawn = charts.stacked_bars(names, layers, x="ms")
    blocks: list[Block] = [
        Chart("critical-path", f"Critical path of step {step}, in order", drawn, note),
        Table("The whole path", columns, rows, left=2, folded=True, raw={"sum": took}),
    ]
    return Section("critical-path", title, blocks)


def metrics(run: Run) -> Section:
    """Numbers that the program recorded."""
    frame = run.metrics_by_step
    if not len(frame):
        return Section("numbers", "Recorded metrics", absent="The program recorded no metrics.")
    blocks: list[Block] = []
    names = list(dict.fromkeys(frame["name"].tolist()))
    rows = []
    for at, name in enumerate(names):
        own = frame[(frame["name"] == name).to_numpy(bool)]
        if at < _METRICS and len(own) > 1:
            blocks.append(Chart(f"number-{at}", name, _over_time(own), "Mean over ranks; band: min to max."))
        numbers = own["mean"].iloc[0], own["mean"].iloc[-1], own["min"].min(), own["max"].max()
        rows.append([name, f"{len(own):,}", *(f"{value:.7g}" for value in numbers)])
    columns = ["number", "steps", "first", "last", "min", "max"]
    more = f"{len(rows) - _ROWS} more are in metrics_by_step.csv." if len(rows) > _ROWS else ""
    blocks.append(Table("Recorded metrics, mean over ranks", columns, rows[:_ROWS], note=more))
    return Section("numbers", "Recorded metrics", blocks)


def _over_time(own: pd.DataFrame) -> Any:
    tooltips = [("step", "@step"), ("mean", "@mean{0.000000}"), ("ranks", "@min{0.000000} to @max{0.000000}")]
    drawn = charts.over_steps(height=150, tooltips=tooltips)
    charts.line_and_band(drawn, own, ("mean", "min", "max"), theme.MEASURED)
    return drawn
