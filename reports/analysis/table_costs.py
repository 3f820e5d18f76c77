"""Compare the planner's estimate of each table with the time that a step spends on it, from plan and spans.

A rank looks up all its tables of a sharding type in one pass, and exchanges their rows in one call: only that pass and
that call are measured. A table's share of a pass is in proportion to the bytes that its shard moves by the law by which
the simulator prices the pass, its share of a call to the planner's estimate, which is linear in bytes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, STEP, is_collective
from reports.store.columns import frame_of_columns, frame_of_rows
from scenarios.seam import roles

# The parts of a step that a table takes part in; exchanges are those of rows and of gradients, without ids.
PARTS = ("look_up", "update", "exchange")
COSTS_COLUMNS = ["kind", "role", "sharding", "step", "rank", "start_ns", "end_ns", "group", "call"]
TABLE_COSTS = {
    **dict.fromkeys(["table", "sharding_type"], "str"),
    "rank": "int",
    **dict.fromkeys([f"{who}_{part}_ns" for part in PARTS for who in ("planner", "step")], "float"),
}
RANK_COSTS = {**TABLE_COSTS, "total_ns": "float"}
BUSIEST = {
    "by": "str",
    "rank": "int",
    **dict.fromkeys(["busiest_ns", "mean_ns", "busiest_over_mean"], "float"),
}
_KEYS = ["rank", "sharding_type"]
# Gradients of replicated tables are made and divided before they are reduced.
UPDATES = [roles.UPDATE, roles.OPTIMIZER, roles.TABLE_REDUCTION]
_EXCHANGES = [roles.ROWS, roles.GRADIENTS, roles.TABLE_REDUCTION]
_SHARES = {"look_up": "look_up_bytes", "update": "update_bytes", "exchange": "planner_exchange_ns"}


def table_costs(plan: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Return the row of each table in `rank_costs` on the rank that spends most on it, most expensive first."""
    dearest = rank_costs(plan, spans).drop_duplicates("table")
    return frame_of_columns(dearest, TABLE_COSTS)


def rank_costs(plan: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per table and rank that has shards of it, with the time that the rank spends on it in a step.

    `step_*` is apportioned as the module's docstring states, `planner_*` the planner's estimate of the same shards;
    `total_ns` sums `step_*`, and rows with most come first. The frame is empty where the plan does not state what
    shards move, or the spans have no lookup.
    """
    shards = plan.assign(
        planner_look_up_ns=plan["forward_ms"] * 1e6,
        planner_update_ns=plan["backward_ms"] * 1e6,
        planner_exchange_ns=(plan["perf_ms"] - plan["forward_ms"] - plan["backward_ms"]) * 1e6,
    )
    spent = _sum_times(spans)
    if not len(spent) or not plan["look_up_bytes"].any():
        return frame_of_rows([], RANK_COSTS)
    shards = shards.merge(spent.reset_index(), on=_KEYS, how="inner")
    for part, column in _SHARES.items():
        total = shards.groupby(_KEYS)[column].transform("sum").to_numpy(float)
        own = shards[column].to_numpy(float)
        shards[f"step_{part}_ns"] = np.divide(own, total, out=np.zeros(len(own)), where=total > 0) * shards[part]
    sums = [name for name in TABLE_COSTS if name.endswith("_ns")]
    tables = shards.groupby(["table", "sharding_type", "rank"], sort=False)[sums].sum().reset_index()
    tables["total_ns"] = sum(tables[f"step_{part}_ns"] for part in PARTS)
    dearest = tables.sort_values(["total_ns", "table", "rank"], ascending=[False, True, True], kind="stable")
    return frame_of_columns(dearest, RANK_COSTS)


def busiest(plan: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Return the cost of tables for the bottleneck rank and the mean rank, by the planner and by a step's spans.

    Lookups and updates count, on the ranks that have spans in the step.
    """
    spent = _sum_times(spans)
    ranks = sorted(set(spans["rank"].tolist()))
    said = (plan["forward_ms"] + plan["backward_ms"]).groupby(plan["rank"]).sum() * 1e6
    says = (spent["look_up"] + spent["update"]).groupby("rank").sum()
    both = {"planner": said, "step": says} if len(spent) and said.any() else {}
    loads = {by: load.reindex(ranks, fill_value=0.0).to_numpy(float) for by, load in both.items()}
    columns = {
        "by": list(loads),
        "rank": [ranks[int(load.argmax())] for load in loads.values()],
        "busiest_ns": [float(load.max()) for load in loads.values()],
        "mean_ns": [float(load.mean()) for load in loads.values()],
        "busiest_over_mean": [float(load.max() / load.mean()) if load.any() else 1.0 for load in loads.values()],
    }
    return frame_of_columns(columns, BUSIEST)


def _sum_times(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the time (ns) that ranks spend, [rank and sharding type, part]; exchanges without waiting for others."""
    is_pass = (spans["kind"] == COMPUTE).to_numpy(bool)
    is_call = is_collective(spans) & (spans["kind"] != STEP).to_numpy(bool)
    of_parts = [
        is_done & spans["role"].isin(own).to_numpy(bool)
        for is_done, own in ((is_pass, [roles.LOOKUP]), (is_pass, UPDATES), (is_call, _EXCHANGES))
    ]
    part = np.select(of_parts, PARTS, default="")
    begin = spans["start_ns"].where(~is_call, spans.groupby(["group", "call"])["start_ns"].transform("max"))
    found = pd.DataFrame(
        {
            "rank": spans["rank"],
            "sharding_type": spans["sharding"],
            "part": part,
            "ns": (spans["end_ns"] - begin).astype("float64"),
        }
    )
    kept = found[((part != "") & (spans["sharding"] != "").to_numpy(bool))]
    spent: pd.DataFrame = kept.pivot_table(index=_KEYS, columns="part", values="ns", aggfunc="sum", fill_value=0.0)
    return spent.reindex(columns=list(PARTS), fill_value=0.0)
