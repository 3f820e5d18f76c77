"""Draw ranks: their times, memory.

Few ranks have a bar each; of many the distribution is drawn, and the worst of them.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.analysis.frames import memory_at_peak
from reports.page import charts, theme
from reports.page.blocks import Chart
from reports.run import Run
from reports.sections.run.ranks import of_one_step, rank_names
from reports.sections.run.subject import RunView

_RANKS = 48
_LAYERS = 9
_PARTS = {
    "compute_ns": ("compute", theme.COMPUTE),
    "transfer_ns": ("exposed transfer", theme.EXPOSED),
    "wait_ns": ("waiting for other ranks", theme.WAIT),
    "idle_ns": ("idle", theme.IDLE),
}


def ranks(view: RunView) -> list[Chart]:
    """Draw each rank's step breakdown."""
    each = of_one_step(view)
    if len(each) > _RANKS:
        return _rank_histograms(each, view.which)
    return [Chart("ranks", f"Step breakdown by rank, mean of {view.which}", _rank_bars(each))] if len(each) else []


def _rank_histograms(each: pd.DataFrame, of: str) -> list[Chart]:
    """Return a histogram over ranks for each part of a step that any rank has."""
    found: list[Chart] = []
    for column, (words, color) in _PARTS.items():
        if each[column].any():
            took, x = charts.ms(each[column]), f"ms per step: {words}"
            drawn = charts.histogram(took, each["rank_count"], x=x, y="ranks", color=color)
            found.append(Chart(f"ranks-{column[:-3]}", f"Ranks by {words}, mean of {of}", drawn))
    return found


def _rank_bars(each: pd.DataFrame) -> Any:
    layers = {words: (charts.ms(each[column]), color) for column, (words, color) in _PARTS.items()}
    return charts.stacked_bars(rank_names(each), layers, x="ms per step")


def _layers(loads: pd.DataFrame) -> dict[str, tuple[Any, str]]:
    """Return the columns with the largest sums, and the others summed up."""
    order = loads.sum().sort_values(ascending=False, kind="stable").index.tolist()
    shown, rest = order[:_LAYERS], order[_LAYERS:]
    layers = {str(name): (loads[name].to_numpy(float), color) for name, color in zip(shown, theme.EVERY, strict=False)}
    if rest:
        layers[f"{len(rest)} others"] = (loads[rest].sum(axis=1).to_numpy(float), theme.IDLE)
    return layers


def memory(view: RunView) -> list[Chart]:
    """Draw the device memory of ranks, by part."""
    frame = view.run.rank_memory
    if len(frame) <= _RANKS:
        return [Chart("memory", "Device memory of each rank", _memory_bars(view.run))]
    drawn = charts.histogram(
        100 * frame["used_share"], frame["rank_count"], x="% of the capacity used", y="ranks", color=theme.COMPUTE
    )  # fmt: skip
    return [Chart("memory", "Ranks by how full their memory is", drawn)]


def _memory_bars(run: Run) -> Any:
    frame = run.rank_memory.sort_values("rank")
    there = memory_at_peak(run.memory, frame)
    parts = there.pivot_table(index="rank", columns="part", values="size_bytes", aggfunc="sum", fill_value=0)
    parts = parts.reindex(frame["rank"])
    drawn = charts.stacked_bars(rank_names(frame), _layers(parts / 2**30), x="GiB")
    capacity = float(frame["capacity_bytes"].max()) / 2**30
    if capacity:
        charts.rule(drawn, capacity, dashed=True)
        drawn.x_range.end = max(drawn.x_range.end, capacity * 1.04)
    return drawn
