"""A script's plan, which is TorchRec's, beside ours: in sentences, and table by table."""

from __future__ import annotations

import pandas as pd

from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import records

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
