"""The sections on tables: balance of the plan, placement and cost of each table, and a script's plan next to ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd

from reports.analysis.imbalance import MEASURES
from reports.analysis.table_costs import PARTS
from reports.run import Run
from reports.sections import model
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import records

_PLAN_ROWS = 400
# The title of a measure, a short title, and how a value is written.
MEASURE_WORDS: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "ids_per_step": ("planner's ids per step", "ids", text.number),
    "perf_ms": ("planner's time", "time", lambda ms: text.duration(ms * 1e6)),
    "storage_bytes": ("storage", "storage", text.size),
}
# The ratio to the mean up to which loads count as even.
_EVEN = 1.001
_BALANCE_COLUMNS = ["load (plan)", "max", "on rank", "mean", "max/mean"]
_CAUSE_COLUMNS: model.Columns = [
    model.Column("table", kept=24),
    model.Column("sharding", kept=14),
    model.Column("load", kept=7),
    *("on that rank", "mean", "excess"),
]
_COSTS_COLUMNS: model.Columns = [
    model.Column("table", kept=24),
    model.Column("sharding", kept=17),
    *("rank", "lookup", "update", "exchange"),
]
_COSTS_NOTE = (
    "Each table is shown for the rank where step {step} spends most time on it. A rank looks up, updates and exchanges"
    " all its tables of a sharding type in one span; a table's part of the span is its share of the bytes moved."
)
_BESIDE_COLUMNS = ["table", "TorchRec's sharding", "on ranks", "our sharding", "on ranks", "its time", "ours"]


_absent = model.lacking(lambda view: view.run.plan, "The scenario has no embedding tables.")


def _balance(view: RunView) -> Iterator[model.ReportTable]:
    rows = []
    for row in records(view.run.imbalance):
        title, _, form = MEASURE_WORDS[row["measure"]]
        rows.append([title, form(row["worst"]), str(row["worst_rank"]), form(row["mean"]), _ratio(row)])
    raw = {str(row["measure"]): float(row["max_over_mean"]) for row in records(view.run.imbalance)}
    yield model.ReportTable("Balance of tables", _BALANCE_COLUMNS, rows, raw=raw)


def _ratio(row: dict[str, float]) -> str:
    return f"{row['max_over_mean']:.2f}"


def _causes(most: int, view: RunView) -> Iterator[model.ReportTable]:
    """Yield up to `most` tables that make each load uneven."""
    causes, rows = view.run.imbalance_causes, []
    for row in records(view.run.imbalance):
        _, word, form = MEASURE_WORDS[row["measure"]]
        own = causes[((causes["measure"] == row["measure"]) & (causes["excess"] > 0)).to_numpy(bool)]
        for cause in records(own.head(most if row["max_over_mean"] > _EVEN else 0)):
            here, mean = form(cause["on_worst_rank"]), form(cause["mean"])
            rows.append([cause["table"], cause["sharding_type"], word, here, mean, f"+{form(cause['excess'])}"])
    if rows:
        yield model.ReportTable("Tables that cause imbalance", _CAUSE_COLUMNS, rows, left=3, folded=True)


BALANCE = model.ReportSection(
    "tables",
    "Balance of tables",
    [model.figure("run.plan.plan"), _balance, partial(_causes, 5)],
    absent=_absent,
    data=lambda view: {"imbalance": view.run.imbalance, "imbalance_causes": view.run.imbalance_causes},
)


def _show_placement(view: RunView) -> Iterator[model.ReportTable]:
    """Yield where the planner placed each table."""
    keys, run = ["table", "sharding_type", "compute_kernel"], view.run
    by_cost = run.plan.groupby(keys, sort=False)["perf_ms"].sum().sort_values(ascending=False, kind="stable")
    first = by_cost.head(_PLAN_ROWS).index.to_frame(index=False)
    grouped = first.merge(run.plan, on=keys, how="left").groupby(keys, sort=False)
    added = {"shard": "size", **dict.fromkeys(["rows", "columns"], "max"), **dict.fromkeys(MEASURES, "sum")}
    frame = grouped.agg(added).reset_index()
    frame = frame.assign(
        on=[on_ranks(sorted(own.tolist()), run.info.world_size) for own in grouped["rank"].unique()],
        largest=[f"{row['rows']:,} x {row['columns']:,}" for row in records(frame)],
        time_ns=frame["perf_ms"] * 1e6,
    )
    titles = ["table", "sharding", "kernel", "on ranks", "shards", "largest shard", "storage"]
    names = [*keys, "on", "shard", "largest", "storage_bytes", "ids_per_step", "time_ns"]
    columns = dict(zip(names, [*titles, "planner's ids per step", "time"], strict=True))
    note = "Storage, ids and the planner's time are sums over all shards."
    count = len(run.plan.drop_duplicates(keys))
    if count > _PLAN_ROWS:
        note += f" The {_PLAN_ROWS} most expensive of {count:,} tables; all shards are in plan.csv."
    raw = {"storage_bytes": float(run.plan["storage_bytes"].sum())}
    yield model.table_of("Placement of tables", frame, columns, left=4, note=note, raw=raw, folded=True)


def _costs(view: RunView) -> Iterator[model.Block]:
    """Yield the planner's estimates of tables compared with the simulated or measured step."""
    if view.step is None or not len(view.run.table_costs_of(view.step)):
        return
    frame = view.run.table_costs_of(view.step)

    def rows(most: int) -> list[list[str]]:
        return [
            [
                *(row["table"], row["sharding_type"], str(row["rank"])),
                *(" / ".join(text.duration(row[f"{who}_{part}_ns"]) for who in ("planner", "step")) for part in PARTS),
            ]
            for row in records(frame.head(most))
        ]

    title, name = f"Tables: planned / in the step{view.phrase_on_ranks}", "Tables: planned / in the step"
    raw, most = {"look_up": float(frame["step_look_up_ns"].sum())}, model.Most(16, _PLAN_ROWS)
    yield model.ReportTable(
        title,
        _COSTS_COLUMNS,
        rows,
        left=2,
        raw=raw,
        name=name,
        most=most,
        count=len(frame),
        others="that take less",
        folded=True,
    )
    yield model.Words("\n".join([_COSTS_NOTE.format(step=view.step), f"{busiest_sentence(view.run, view.step)}."]))


def _sentences(view: RunView) -> Iterator[model.Words]:
    if said := [words for words in (plan_sentence(view.run), *view.run.info.plan_notes) if words]:
        yield model.Words("\n".join(said))


def plan_sentence(run: Run) -> str:
    """Return a line with the bottleneck rank's expected time under TorchRec's plan and ours; "" without these plans."""
    names = {"TorchRec": "TorchRec's", "ours": "ours"}
    said = [
        f"{names[row['planner']]} {_ms(row['worst'])} (rank {row['worst_rank']}; mean {_ms(row['mean'])})"
        for row in records(run.plan_costs)
    ]
    return f"Plan, expected time of the bottleneck rank: {', '.join(said)}" if said else ""


def busiest_sentence(run: Run, step: int) -> str:
    """Return bottleneck rank and mean, by the planner and in the step; "" if unknown."""
    said = [
        f"{row['busiest_over_mean']:.2f} {'by the planner' if row['by'] == 'planner' else f'in step {step}'}"
        f" (rank {row['rank']}, {text.duration(row['busiest_ns'])})"
        for row in records(run.busiest_of(step))
    ]
    return f"Lookups and updates, bottleneck rank / mean: {', '.join(said)}" if said else ""


def _beside_ours(view: RunView) -> Iterator[model.ReportTable]:
    """Yield a script's plan and ours, where there is one."""
    if len(view.run.own_plan):
        title, rows = "TorchRec's plan and ours, time of all shards together", plans_rows(view.run, _PLAN_ROWS)
        yield model.ReportTable(title, _BESIDE_COLUMNS, rows, left=5, folded=True)


def plans_rows(run: Run, most: int) -> list[list[str]]:
    """Return where both plans place the first `most` tables; ours is empty where it lacks a table."""
    theirs, own = _by_table(run.plan, most), _by_table(run.own_plan, most)
    ranks = run.info.world_size
    found = []
    for name, each in theirs.items():
        other = own.get(name, run.own_plan.iloc[:0])
        times = [_ms(float(rows["perf_ms"].sum())) if rows["perf_ms"].any() else "-" for rows in (each, other)]
        found.append([name, *_place(each, ranks), *_place(other, ranks), *times])
    return found


def on_ranks(ranks: list[int], world_size: int) -> str:
    """Return sorted ranks in few words."""
    if len(ranks) == world_size:
        return "all"
    words = text.ranges(ranks)
    return words if len(words) <= 28 else f"{len(ranks):,} ranks from {ranks[0]} to {ranks[-1]}"


def _by_table(plan: pd.DataFrame, most: int) -> dict[str, pd.DataFrame]:
    kept = plan[plan["table"].isin(plan["table"].drop_duplicates().head(most)).to_numpy(bool)]
    return {str(name): rows for name, rows in kept.groupby("table", sort=False)}


def _place(rows: pd.DataFrame, world_size: int) -> list[str]:
    if not len(rows):
        return ["-", "-"]
    return [str(rows["sharding_type"].iloc[0]), on_ranks(sorted(set(rows["rank"].tolist())), world_size)]


def _ms(ms: float) -> str:
    return text.duration(ms * 1e6)


PLAN = model.ReportSection(
    "plan",
    "Plan",
    [model.on_page(_show_placement), _costs, _sentences, model.on_page(_beside_ours)],
    absent=_absent,
    absent_in=model.PAGE,
    data=lambda view: {
        "plan_costs": view.run.plan_costs,
        "table_costs": [] if view.step is None else view.run.table_costs_of(view.step),
    },
    folded=True,
)
