"""A script's plan, which is TorchRec's, beside ours: in sentences, and table by table."""

from __future__ import annotations

import pandas as pd

from reports.analysis.table_costs import PARTS
from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import records

COSTS_TITLE = "Tables: the planner said / the step says"
COSTS_COLUMNS = ["table", "sharding", "rank", "look-up", "update", "exchange"]
COSTS_NOTE = (
    "Each table is on the rank where step {step} spends most on it. A rank looks up, updates and exchanges all its"
    " tables of a sharding type at once: that is in the spans, a table's part of it is by the bytes that it moves."
)
PLANS_COLUMNS = ["table", "TorchRec's sharding", "on ranks", "our sharding", "on ranks", "its time", "ours"]


def plan_sentence(run: Run) -> str:
    """What both plans load the busiest rank with; "" where there is no plan of ours."""
    names = {"TorchRec": "TorchRec's", "ours": "ours"}
    said = [
        f"{names[row['planner']]} {_ms(row['worst'])} (rank {row['worst_rank']}; mean {_ms(row['mean'])})"
        for row in records(run.plan_costs)
    ]
    return f"Plan, expected time of the busiest rank: {', '.join(said)}" if said else ""


def plan_notes(run: Run) -> str:
    """On what that rests, or why there is no such plan; "" of runs that are no scripts."""
    return "; ".join(run.info.plan_notes)


def costs_rows(run: Run, step: int, most: int) -> list[list[str]]:
    """So many tables on which the step spends most, under `COSTS_COLUMNS`."""
    return [
        [
            *(row["table"], row["sharding_type"], str(row["rank"])),
            *(" / ".join(text.duration(row[f"{who}_{part}_ns"]) for who in ("planner", "step")) for part in PARTS),
        ]
        for row in records(run.table_costs_of(step).head(most))
    ]


def busiest_sentence(run: Run, step: int) -> str:
    """Busiest rank and mean, by the planner and in the step; "" where that is not known."""
    said = [
        f"{row['busiest_over_mean']:.2f} {'by the planner' if row['by'] == 'planner' else f'in step {step}'}"
        f" (rank {row['rank']}, {text.duration(row['busiest_ns'])})"
        for row in records(run.busiest_of(step))
    ]
    return f"Look-ups and updates, busiest rank / mean: {', '.join(said)}" if said else ""


def plans_rows(run: Run, most: int) -> list[list[str]]:
    """Where both have so many of the tables, under `PLANS_COLUMNS`; ours is empty where there is none."""
    theirs, own = _by_table(run.plan, most), _by_table(run.own_plan, most)
    ranks = run.info.world_size
    found = []
    for name, each in theirs.items():
        other = own.get(name, run.own_plan.iloc[:0])
        times = [_ms(float(rows["perf_ms"].sum())) if rows["perf_ms"].any() else "-" for rows in (each, other)]
        found.append([name, *_place(each, ranks), *_place(other, ranks), *times])
    return found


def on_ranks(ranks: list[int], world_size: int) -> str:
    """Sorted ranks in few words."""
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
