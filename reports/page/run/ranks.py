"""Sections on ranks: their times, the tables' loads, memory, the plan.

Few ranks have a bar each; of many the distribution is shown, and the worst of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import memory_at_peak
from reports.analysis.imbalance import MEASURES, rank_load
from reports.analysis.step_breakdown import steady_kept
from reports.page import charts, theme
from reports.page.blocks import Block, Chart, Section, Table, Words
from reports.page.run.times import why_absent
from reports.run import Run
from reports.terminal import headline as about
from reports.terminal import rank_classes, text
from reports.terminal.plans import (
    COSTS_COLUMNS,
    COSTS_NOTE,
    COSTS_TITLE,
    PLANS_COLUMNS,
    busiest_sentence,
    costs_rows,
    on_ranks,
    plan_sentence,
    plans_rows,
)
from reports.terminal.rows import cells, records, represented
from reports.terminal.run_tables import (
    BALANCE_COLUMNS,
    CAUSE_COLUMNS,
    MEASURE_WORDS,
    MEMORY_COLUMNS,
    balance_rows,
    memory_rows,
)

_RANKS = 48
_WORST = 16
_LAYERS = 9
_PLAN_ROWS = 400
_PARTS = {
    "compute_ns": ("compute", theme.COMPUTE),
    "transfer_ns": ("exposed transfer", theme.EXPOSED),
    "wait_ns": ("waiting for other ranks", theme.WAIT),
    "idle_ns": ("idle", theme.IDLE),
}
# As axes have them: what one of it is, and its name.
_UNITS = {
    "ids_per_step": (1.0, "ids per step by the planner"),
    "perf_ms": (1.0, "ms by the planner"),
    "storage_bytes": (2.0**30, "GiB"),
}
_SPENT = ["compute_ns", "transfer_ns", "wait_ns", "hidden_ns", "idle_ns", "step_ns"]


def ranks(run: Run) -> Section:
    """How ranks differ in what they spend their steps on."""
    kept = steady_kept(run)
    frame = run.ranks_of(kept) if kept else run.ranks.iloc[:0]
    if not len(frame):
        return Section("ranks", "Balance of ranks", absent=why_absent(run))
    each = frame[_SPENT].div(frame["steps"].clip(lower=1), axis=0)
    each = each.assign(rank=frame["rank"], rank_count=frame["rank_count"], over=frame["compute_over_mean"])
    of = f"{text.steps(kept)}{about.only(run)}"
    blocks: list[Block] = []
    if len(each) <= _RANKS:
        blocks.append(Chart("ranks", f"Step breakdown by rank, mean of {of}", _rank_bars(each)))
    else:
        blocks += _rank_histograms(each, of)
    blocks.append(_rank_table(each, frame))
    if run.info.rank_classes:
        blocks.append(Table(rank_classes.TITLE, rank_classes.COLUMNS, rank_classes.table_rows(run)))
    return Section("ranks", "Balance of ranks", blocks)


def _rank_histograms(each: pd.DataFrame, of: str) -> list[Block]:
    """A histogram over ranks for each part of a step that any rank has."""
    found: list[Block] = []
    for column, (words, color) in _PARTS.items():
        if each[column].any():
            took, x = charts.ms(each[column]), f"ms per step: {words}"
            drawn = charts.histogram(took, each["rank_count"], x=x, y="ranks", color=color)
            found.append(Chart(f"ranks-{column[:-3]}", f"Ranks by {words}, mean of {of}", drawn))
    return found


def _rank_bars(each: pd.DataFrame) -> Any:
    layers = {words: (charts.ms(each[column]), color) for column, (words, color) in _PARTS.items()}
    return charts.stacked_bars(_rank_names(each), layers, x="ms per step")


def _rank_names(frame: pd.DataFrame) -> list[str]:
    return [f"rank {name}" for name in represented(frame)]


def _rank_table(each: pd.DataFrame, frame: pd.DataFrame) -> Table:
    worst = each.sort_values(["over", "rank"], ascending=[False, True]).head(_WORST)
    named = worst.assign(rank=_rank_names(worst), over=worst["over"].map("{:.3f}".format))
    rows = cells(named, ["rank", *_SPENT, "over"])
    columns = ["rank", "compute", "exposed transfer", "waiting", "hidden", "idle", "its step", "compute/mean"]
    more = f"The {_WORST} of {len(each):,} with the longest compute; all are in steady_ranks.csv."
    total = float((each["compute_ns"] * frame["rank_count"]).sum())
    note = more if len(each) > _WORST else ""
    return Table("Ranks with the longest compute", columns, rows, note=note, raw={"compute_ns": total})


def tables(run: Run) -> Section:
    """How the plan loads ranks, and by which tables."""
    if not len(run.plan):
        return Section("tables", "Balance of tables", absent="The scenario has no embedding tables.")
    blocks: list[Block] = []
    load = rank_load(run.plan, run.info.world_size)
    for measure in MEASURES:
        title, _, form = MEASURE_WORDS[measure]
        if not float(load[measure].max()):
            continue
        heading = f"By the plan: {title} of each rank"
        if run.info.world_size <= _RANKS:
            blocks.append(Chart(f"tables-{measure}", heading, _table_bars(run.plan, measure, run.info.world_size)))
        else:
            factor, unit = _UNITS[measure]
            values, weights = load[measure] / factor, np.ones(len(load))
            drawn = charts.histogram(values, weights, x=unit, y="ranks", color=theme.COMPUTE)
            note = f"The most is {form(float(load[measure].max()))}."
            blocks.append(Chart(f"tables-{measure}", heading, drawn, note))
    rows, causes = balance_rows(run, 5)
    raw = {str(row["measure"]): float(row["max_over_mean"]) for row in records(run.imbalance)}
    blocks.append(Table("Balance", BALANCE_COLUMNS, rows, raw=raw))
    if causes:
        blocks.append(Table("Tables that cause imbalance", CAUSE_COLUMNS, causes, left=3))
    return Section("tables", "Balance of tables", blocks)


def _table_bars(plan: pd.DataFrame, measure: str, world_size: int) -> Any:
    """A bar for each rank, of the tables that load it most and all others."""
    loads = plan.pivot_table(index="rank", columns="table", values=measure, aggfunc="sum", fill_value=0)
    loads = loads.reindex(range(world_size), fill_value=0)
    factor, unit = _UNITS[measure]
    return charts.stacked_bars([f"rank {rank}" for rank in range(world_size)], _layers(loads / factor), x=unit)


def _layers(loads: pd.DataFrame) -> dict[str, tuple[Any, str]]:
    """The columns that are most in all, and the others together."""
    order = loads.sum().sort_values(ascending=False, kind="stable").index.tolist()
    shown, rest = order[:_LAYERS], order[_LAYERS:]
    layers = {str(name): (loads[name].to_numpy(float), color) for name, color in zip(shown, theme.EVERY, strict=False)}
    if rest:
        layers[f"{len(rest)} others"] = (loads[rest].sum(axis=1).to_numpy(float), theme.IDLE)
    return layers


def memory(run: Run) -> Section:
    """What fills the device memory of ranks."""
    frame = run.rank_memory
    if not len(frame):
        why = "A real run does not tell its parts." if run.info.world == "real" else "Nothing was recorded."
        return Section("memory", "Memory", absent=why)
    blocks: list[Block] = [Words(about.fits(run))]
    if len(frame) <= _RANKS:
        blocks.append(Chart("memory", "Device memory of each rank", _memory_bars(run)))
    else:
        drawn = charts.histogram(
            100 * frame["used_share"], frame["rank_count"], x="% of the capacity used", y="ranks", color=theme.COMPUTE
        )  # fmt: skip
        blocks.append(Chart("memory", "Ranks by how full their memory is", drawn))
    fullest = frame.head(_WORST)
    fullest = fullest.assign(rank=_rank_names(fullest))
    rows = cells(fullest, ["rank", "used_bytes", "capacity_bytes", "used_share", "phase"])
    more = f"The fullest {_WORST} of {len(frame):,}; all of them are in rank_memory.csv." if len(frame) > _WORST else ""
    used = float((frame["used_bytes"] * frame["rank_count"]).sum())
    columns = ["rank", "used", "capacity", "share", "fullest in"]
    blocks.append(Table("Fullest ranks", columns, rows, note=more, folded=True, raw={"bytes": used}))
    title, parts = memory_rows(run)
    blocks.append(Table(title, MEMORY_COLUMNS, parts))
    return Section("memory", "Memory", blocks)


def _memory_bars(run: Run) -> Any:
    frame = run.rank_memory.sort_values("rank")
    there = memory_at_peak(run.memory, frame)
    parts = there.pivot_table(index="rank", columns="part", values="size_bytes", aggfunc="sum", fill_value=0)
    parts = parts.reindex(frame["rank"])
    drawn = charts.stacked_bars(_rank_names(frame), _layers(parts / 2**30), x="GiB")
    capacity = float(frame["capacity_bytes"].max()) / 2**30
    if capacity:
        charts.rule(drawn, capacity, dashed=True)
        drawn.x_range.end = max(drawn.x_range.end, capacity * 1.04)
    return drawn


def plan(run: Run, step: int | None) -> Section:
    """Show where the planner put which table, and what `step` spends on each."""
    if not len(run.plan):
        return Section("plan", "Plan", absent="The scenario has no embedding tables.")
    keys = ["table", "sharding_type", "compute_kernel"]
    first = run.plan[keys].drop_duplicates().head(_PLAN_ROWS)
    count = len(run.plan.drop_duplicates(keys))
    grouped = run.plan.merge(first, on=keys, how="inner").groupby(keys, sort=False)
    added = {"shard": "size", **dict.fromkeys(["rows", "columns"], "max"), **dict.fromkeys(MEASURES, "sum")}
    frame = grouped.agg(added).reset_index()
    frame = frame.assign(
        on=[on_ranks(sorted(own.tolist()), run.info.world_size) for own in grouped["rank"].unique()],
        largest=[f"{row['rows']:,} x {row['columns']:,}" for row in records(frame)],
        time_ns=frame["perf_ms"] * 1e6,
    )
    rows = cells(frame, [*keys, "on", "shard", "largest", "storage_bytes", "ids_per_step", "time_ns"])
    columns = [
        "table",
        "sharding",
        "kernel",
        "on ranks",
        "shards",
        "largest shard",
        "storage",
        "planner's ids per step",
        "time",
    ]
    note = "Storage, ids and time, which is the planner's, are of all shards together."
    if count > _PLAN_ROWS:
        note += f" The first {_PLAN_ROWS} of {count:,} tables; all shards are in plan.csv."
    raw = {"storage_bytes": float(run.plan["storage_bytes"].sum())}
    placed = Table("Tables and where they are", columns, rows, left=4, note=note, raw=raw)
    return Section("plan", "Plan", [placed, *_costs(run, step), *_beside_ours(run)])


def _costs(run: Run, step: int | None) -> list[Block]:
    """What the planner said of tables beside what a step says."""
    rows = [] if step is None else costs_rows(run, step, _PLAN_ROWS)
    if step is None or not rows:
        return []
    note = f"{COSTS_NOTE.format(step=step)} {busiest_sentence(run, step)}."
    frame = run.table_costs_of(step)
    if len(frame) > len(rows):
        note += f" The first {len(rows)} of {len(frame):,} tables."
    return [
        Table(
            COSTS_TITLE, COSTS_COLUMNS, rows, left=2, note=note, raw={"look_up": float(frame["step_look_up_ns"].sum())}
        )
    ]


def _beside_ours(run: Run) -> list[Block]:
    """A script's plan and ours, where there is one."""
    said = [f"{words}." for words in (plan_sentence(run), *run.info.plan_notes) if words]
    if not said:
        return []
    blocks: list[Block] = [Words("The script's plan, which is TorchRec's, beside ours:", said)]
    if len(run.own_plan):
        rows = plans_rows(run, _PLAN_ROWS)
        blocks.append(Table("TorchRec's plan and ours, time of all shards together", PLANS_COLUMNS, rows, left=5))
    return blocks
