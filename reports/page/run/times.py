"""Draw the time of a run: steps, their parts, hidden communication, the critical path, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.operations import fold_layers
from reports.analysis.step_breakdown import PARTS, ranks_of_step
from reports.page import charts, theme
from reports.page.blocks import Chart
from reports.run import Run
from reports.sections.model import Words
from reports.sections.run.operations import shown_layers
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import operation_name, operation_names, records, represent_rows

_BARS = 24
_METRICS = 6
_FLAT = 0.01  # the range of step times, as a share of the median, up to which they are not drawn
# Layers of the bars of operations, by part: the column and colour of each name.
_LAYERS = {
    "communication": {
        "hidden": ("hidden_ns", theme.HIDDEN),
        "exposed transfer": ("transfer_ns", theme.EXPOSED),
        "waiting for other ranks": ("wait_ns", theme.WAIT),
    },
    "compute": {"compute": ("mean_ns", theme.COMPUTE)},
}
# The bars of a layer.
_PHASES = {
    "forward": ("forward_ns", theme.COOL[0]),
    "backward": ("backward_ns", theme.COOL[1]),
    "launching": ("launch_ns", theme.SKEW),
}


def steps(view: RunView) -> list[Chart | Words]:
    """Draw the time of each step, or state that all take the same; nothing for a single step."""
    frame = view.run.steps
    low, high, median = (float(getattr(frame["step_ns"], name)()) for name in ("min", "max", "median"))
    if len(frame) > 1 and high - low <= _FLAT * median:
        return [Words(f"All {len(frame):,} steps take {text.duration(median)}, within {text.percent(_FLAT)}.")]
    return [Chart("steps", "Time of each step", _over_steps(frame), _steps_note(frame))] if len(frame) > 1 else []


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


def parts(view: RunView) -> list[Chart]:
    """Draw the parts of a rank's step."""
    return [Chart("parts", f"Step breakdown, mean of {view.which}", _parts_bars(view.run, view.kept_steps))]


def _parts_bars(run: Run, kept: list[int]) -> Any:
    """Return bars of the mean rank, and of the ranks with the maximum of each part."""
    each = ranks_of_step(run, kept)
    mean = {name: float(np.average(each[name], weights=each["rank_count"])) for name in PARTS}
    names, rows = ["the mean rank"], [mean]
    for column in ("compute_ns", "transfer_ns", "wait_ns", "idle_ns"):
        worst = each.iloc[[int(each[column].to_numpy().argmax())]]
        if worst[column].any():
            names.append(f"max {PARTS[column]}: rank {represent_rows(worst)[0]}")
            rows += records(worst)
    layers = {PARTS[name]: ([row[name] / 1e6 for row in rows], color) for name, color in theme.PARTS.items()}
    return charts.stacked_bars(names, layers, x="ms per step")


def draw_layers(view: RunView) -> list[Chart]:
    """Draw the forward and backward time of each layer."""
    found = shown_layers(view)
    top = found.head(_BARS)
    bars = {word: (charts.ms(top[column]), color) for word, (column, color) in _PHASES.items() if top[column].any()}
    drawn = charts.stacked_bars(top["layer"].tolist(), bars, x="ms per step")
    return [Chart("layers", f"Layers, per rank and step, over {view.which}", drawn, _more(found, "layers").strip())]


def draw_hidden(view: RunView) -> Iterator[Chart]:
    """Draw the communication that compute hides, the exposed rest, and the computations."""
    frame = fold_layers(view.run.operations_of(view.kept_steps))
    frame = frame.sort_values(["mean_ns", "label", "kind"], ascending=[False, True, True])
    frame = frame.assign(name=operation_names(frame), transfer_ns=frame["exposed_ns"] - frame["wait_ns"])
    of = f"per rank and step, over {view.which}"
    overlaps = "; hidden: overlapped by this rank's compute; waiting: other members have not arrived"
    for part, name, title, note in (
        ("communication", "hidden", "Communication", overlaps),
        ("compute", "computed", "Computation", ""),
    ):
        own = frame[(frame["part"] == part).to_numpy(bool)]
        if len(own):
            top = own.head(_BARS)
            bars = {word: (charts.ms(top[column]), color) for word, (column, color) in _LAYERS[part].items()}
            drawn = charts.stacked_bars(top["name"].tolist(), bars, x="ms per step")
            yield Chart(name, title, drawn, f"Mean times {of}{note}.{_more(own, f'{title.lower()}s')}")


def _more(frame: pd.DataFrame, noun: str) -> str:
    return f" {len(frame) - _BARS} shorter {noun} are in the table." if len(frame) > _BARS else ""


def critical_path(view: RunView) -> list[Chart]:
    """Draw the critical path of one step."""
    assert view.step is not None
    waited, title = view.run.waited_for_of(view.step), f"Critical path of step {view.step}, in order"
    kept = waited.sort_values("duration_ns", ascending=False, kind="stable").head(_BARS).sort_values("order")
    names = [operation_name(row) for row in records(kept)]
    layers = {
        part: (charts.ms(np.where(kept["part"] == part, kept["duration_ns"], 0)), color)
        for part, color in (("compute", theme.COMPUTE), ("communication", theme.EXPOSED), ("host", theme.IDLE))
    }
    took = float(waited["duration_ns"].sum())
    note = (
        f"Step {view.step} takes {text.duration(took)}: the sum of these segments over all ranks{view.phrase_on_ranks};"
        " shortening one shortens the step until another path becomes critical. Host is the program's own time, and"
        " whatever no span accounts for."
    )
    rest = waited.drop(kept.index)
    if len(rest):
        note += f" {len(rest)} shorter segments, {text.duration(float(rest['duration_ns'].sum()))}, are in the table."
    return [Chart("critical-path", title, charts.stacked_bars(names, layers, x="ms"), note)]


def metrics(view: RunView) -> Iterator[Chart]:
    """Draw the first recorded metrics that have several steps."""
    for at, (name, own) in enumerate(view.run.metrics_by_step.groupby("name", sort=False)):
        if at < _METRICS and len(own) > 1:
            yield Chart(f"number-{at}", str(name), _over_time(own), "Mean over ranks; band: min to max.")


def _over_time(own: pd.DataFrame) -> Any:
    tooltips = [("step", "@step"), ("mean", "@mean{0.000000}"), ("ranks", "@min{0.000000} to @max{0.000000}")]
    drawn = charts.over_steps(height=150, tooltips=tooltips)
    charts.line_and_band(drawn, own, ("mean", "min", "max"), theme.MEASURED)
    return drawn
