"""Compute how unevenly a plan loads the ranks, and which tables cause it; pure functions of the plan's rows.

A replicated table is on every rank, even if the plan lists it for the simulated ranks only.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.store.columns import frame_of_columns, frame_of_rows
from scenarios.sharding_kind import COPIED_TYPES

MEASURES = ("ids_per_step", "perf_ms", "storage_bytes")
IMBALANCE = {
    "measure": "str",
    "worst_rank": "int",
    **dict.fromkeys(["worst", "mean", "max_over_mean"], "float"),
}
CAUSES = {
    "measure": "str",
    "table": "str",
    "sharding_type": "str",
    **dict.fromkeys(["on_worst_rank", "mean", "excess", "excess_share"], "float"),
}
PLAN_COSTS = {"planner": "str", **{name: kind for name, kind in IMBALANCE.items() if name != "measure"}}


def rank_load(plan: pd.DataFrame, world_size: int) -> pd.DataFrame:
    """Return `ids_per_step`, `perf_ms` and `storage_bytes` of every rank 0..world_size-1, also without shards."""
    measures = list(MEASURES)
    summed = plan.groupby("rank")[measures].sum()
    load = summed.reindex(np.arange(world_size), fill_value=0).astype("float64").rename_axis("rank")
    replicated = plan[plan["sharding_type"].isin(COPIED_TYPES)]
    # A folded run lists copies on representatives only; all other ranks hold them, too.
    unlisted = ~np.isin(np.arange(world_size), replicated["rank"])
    load.loc[unlisted] += replicated.drop_duplicates("table")[measures].sum().to_numpy(float)
    return load


def imbalance(plan: pd.DataFrame, world_size: int) -> pd.DataFrame:
    """Return one row per measure: its most loaded rank (the lowest in ties) compared with the mean of all ranks.

    `max_over_mean` is 1 when all ranks carry equal loads. A measure that the plan does not state has no row.
    """
    load = rank_load(plan, world_size)
    measures = [name for name in MEASURES if load[name].mean()]
    worst = np.array([load[name].max() for name in measures])
    mean = np.array([load[name].mean() for name in measures])
    columns = {
        "measure": measures,
        "worst_rank": [int(load[name].to_numpy().argmax()) for name in measures],
        "worst": worst,
        "mean": mean,
        "max_over_mean": worst / mean,
    }
    return frame_of_columns(columns, IMBALANCE)


def plan_costs(plan: pd.DataFrame, own: pd.DataFrame, world_size: int) -> pd.DataFrame:
    """Return the expected time (ms) of the bottleneck rank and the mean rank, under a script's plan and under ours.

    The frame is empty without a plan of ours, and has no row for a plan without expected times.
    """
    both = {"TorchRec": plan, "ours": own} if len(own) else {}
    found = [imbalance(each, world_size).assign(planner=name) for name, each in both.items()]
    if not found:
        return frame_of_rows([], PLAN_COSTS)
    return frame_of_columns(pd.concat(found).query("measure == 'perf_ms'"), PLAN_COSTS)


def causes(plan: pd.DataFrame, world_size: int) -> pd.DataFrame:
    """Return the tables of each measure by their excess: the load on the worst rank minus the mean of all ranks.

    `excess_share` is the part of the worst rank's whole excess; shares add up to 1, negative for relieving tables.
    """
    worst = imbalance(plan, world_size)
    parts = [
        _causes_of(plan, str(measure), int(rank), world_size)
        for measure, rank in zip(worst["measure"], worst["worst_rank"], strict=True)
    ]
    return pd.concat(parts, ignore_index=True) if parts else frame_of_rows([], CAUSES)


def _causes_of(plan: pd.DataFrame, measure: str, worst_rank: int, world_size: int) -> pd.DataFrame:
    grouped = plan.assign(here=plan[measure].where(plan["rank"] == worst_rank, 0)).groupby(["table", "sharding_type"])
    here, mean = grouped["here"].sum().astype("float64"), grouped[measure].sum() / world_size
    is_copied = here.index.get_level_values("sharding_type").isin(COPIED_TYPES)
    everywhere = (grouped["rank"].nunique() < world_size) & is_copied
    here, mean = here.mask(everywhere, grouped[measure].first()), mean.mask(everywhere, grouped[measure].first())
    excess = here - mean
    total = float(excess.sum())
    columns = {
        "measure": [measure] * len(here),
        "table": here.index.get_level_values("table"),
        "sharding_type": here.index.get_level_values("sharding_type"),
        "on_worst_rank": here,
        "mean": mean,
        "excess": excess,
        "excess_share": excess / total if total > 0 else excess * 0.0,
    }
    return frame_of_columns(columns, CAUSES).sort_values(
        ["excess", "table"], ascending=[False, True], ignore_index=True
    )
