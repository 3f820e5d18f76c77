"""Sections that compare runs' memory, links and plans, from the frames of `reports.side_by_side.frames`."""

from __future__ import annotations

import numpy as np
import pandas as pd
from bokeh.models import BasicTicker

from reports.analysis.step_breakdown import PARTS
from reports.page import charts, theme
from reports.page.blocks import Chart, PageBlock
from reports.page.side_by_side import charts as run_charts
from reports.sections.model import ReportTable, Shown
from reports.sections.run.tables import MEASURE_WORDS
from reports.side_by_side.frames import SideBySide
from reports.side_by_side.words import labels, marks, placement
from reports.terminal import text
from reports.terminal.rows import cells, records

_ROWS = 200
_LAYERS = 9


def memory(found: SideBySide) -> Shown:
    """Return the section on the memory of each run's fullest rank, by part."""
    frame = found.memory
    if not len(frame):
        return Shown("memory", "Memory of the fullest rank", absent="No run has recorded its memory.")
    table = frame.pivot_table(index="part", columns="run", values="size_bytes", aggfunc="sum", fill_value=0)
    label = labels(found)
    held = [name for name in found.names if name in table.columns]
    table = table.loc[table.max(axis=1) > 0, held]
    table = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    unit, factor = text.size_unit(float(table.sum().max()))
    layers = {str(part): (row / factor).tolist() for part, row in table.head(_LAYERS).iterrows()}
    if len(table) > _LAYERS:
        layers["all else"] = (table.iloc[_LAYERS:].sum() / factor).tolist()
    colored = {part: (sizes, color) for (part, sizes), color in zip(layers.items(), theme.EVERY, strict=False)}
    drawn = charts.stacked_bars([label[name] for name in held], colored, x=unit)
    short = dict(zip(found.names, marks(found.names), strict=True))
    rows = [[str(part), *(text.size(float(one)) for one in row.tolist())] for part, row in table.iterrows()]
    rows.append(["total", *(text.size(float(one)) for one in table.sum().tolist())])
    columns = ["part", *(short[name] for name in held)]
    blocks: list[PageBlock] = [Chart("memory", "By part", drawn), ReportTable("Memory by part", columns, rows)]
    return Shown("memory", "Memory of the fullest rank", blocks)


def links(found: SideBySide) -> Shown:
    """Return the section on the load of each class of links."""
    frame = found.link_classes
    if not len(frame):
        return Shown("links", "Links", absent="Not available: no run has links, as real runs record none.")
    label = labels(found)
    table = frame.pivot(index="link_class", columns="run", values="peak_utilisation")
    table = table[[name for name in found.names if name in table.columns]]
    values = {label[str(name)]: table[name].tolist() for name in table.columns}
    classes = [str(name) for name in table.index]
    drawn = run_charts.dots(classes, values, text.percent, run_charts.colors(found), x="mean load of the hottest link")
    charts.percent_axis(drawn.xaxis[0])
    drawn.xaxis[0].ticker = BasicTicker(min_interval=0.01)
    by_class = frame.assign(run=frame["run"].map(label)).sort_values("link_class", kind="stable")
    numbers = ["links", "bytes_carried", "mean_utilisation", "peak_utilisation", "busy_utilisation"]
    rows = cells(by_class, ["link_class", "run", "hottest_link", *numbers])
    columns = ["class", "run", "hottest", "links", "carried", "mean load", "hottest, mean", "while busy"]
    absent = [label[name] for name in found.names if name not in table.columns]
    note = f"Not available: {', '.join(absent)}." if absent else ""
    title = "Hottest link of each class, over the whole run"
    blocks: list[PageBlock] = [
        Chart("links", title, drawn),
        ReportTable("Links by class", columns, rows, left=3, note=note),
    ]
    return Shown("links", "Links", blocks)


def balance(found: SideBySide) -> Shown:
    """Return the section on how far the most loaded rank is from the mean."""
    loads, label = _loads(found), labels(found)
    if not len(loads):
        return Shown("balance", "Balance of ranks", absent="No run has a plan, or spans of its steady steps.")
    table = loads.pivot(index="load", columns="run", values="ratio").reindex(loads["load"].unique())
    values = {label[name]: table[name].tolist() for name in found.names if name in table}
    names = [str(load) for load in table.index]
    drawn = run_charts.dots(names, values, _ratio, run_charts.colors(found), x="max over mean; 1 is balanced")
    drawn.x_range.start = 0.9
    columns = ["load", "run", "max", "on rank", "mean", "max/mean"]
    rows = [
        [row["load"], label[row["run"]], row["most"], f"{row['rank']:,}", row["mean"], _ratio(row["ratio"])]
        for row in records(loads)
    ]
    note = "Compute is from spans; the others are the plan's expectations."
    blocks: list[PageBlock] = [Chart("balance", "Max over mean by load", drawn, note)]
    return Shown("balance", "Balance of ranks", [*blocks, ReportTable("Balance", columns, rows, left=2)])


def _loads(found: SideBySide) -> pd.DataFrame:
    """Return a row for each load and run; maximum and mean as text."""
    rows = [
        ("compute of a step", row["run"], text.duration(row["max_ns"]), row["rank"], text.duration(row["mean_ns"]),
         row["max_over_mean"])
        for row in records(found.parts[(found.parts["part"] == PARTS["compute_ns"]).to_numpy(bool)])
    ]  # fmt: skip
    for row in records(found.imbalance.sort_values("measure", key=_in_order, kind="stable")):
        words, _, form = MEASURE_WORDS[row["measure"]]
        cells = form(row["worst"]), row["worst_rank"], form(row["mean"]), row["max_over_mean"]
        rows.append((words, row["run"], *cells))
    return pd.DataFrame(rows, columns=["load", "run", "most", "rank", "mean", "ratio"])


def _in_order(measures: pd.Series) -> pd.Series:
    return measures.map(list(MEASURE_WORDS).index)


def _ratio(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"


def plans(found: SideBySide) -> Shown:
    """Return the section on tables that are placed differently."""
    frame, short = found.plans, dict(zip(found.names, marks(found.names), strict=True))
    alike = f"{text.counted(found.same_tables, 'table')} {'is' if found.same_tables == 1 else 'are'} placed identically"
    if not len(frame):
        two = sum(len(run.plan) > 0 for _, run in found.runs) > 1
        return Shown("plan", "Plan", absent=f"No differences; {alike}." if two else "Fewer than two runs have a plan.")
    each = list(frame.groupby("table", sort=False))
    rows = [[str(table), *(_placed(row) for row in records(own))] for table, own in each[:_ROWS]]
    left_out = f"; {len(each) - _ROWS} more are in plans.csv" if len(each) > _ROWS else ""
    columns = ["table", *(short[name] for name in each[0][1]["run"])]
    note = f"How a table is sharded, on which ranks, and its storage there in total. {alike}{left_out}."
    return Shown(
        "plan", "Plan", [ReportTable("Tables placed differently", columns, rows, left=len(columns), note=note)]
    )


def _placed(row: dict[str, object]) -> str:
    where = placement(str(row["sharding_type"]), text.shortened(str(row["ranks"]), 24))
    return where if where == "-" else f"{where}, {text.size(float(str(row['storage_bytes'])))}"
