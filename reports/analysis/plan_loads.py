"""Compute from spans how a plan loads the phases of a step on each rank, by table, and which tables another plan moves.

Lookups and updates take a rank's own time. An exchange takes as long as its bottleneck rank needs, so a rank's load is
the exchange's time times its share of the bottleneck's bytes. Tables share a rank's load as in `table_costs`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, STEP, is_collective
from reports.analysis.table_costs import UPDATES
from reports.store.columns import frame_of_columns
from scenarios.seam import roles

# The time of each phase: ids are those exchanged, rows those and their gradients.
PHASES = ("lookup_ns", "fill_ns", "update_ns", "ids_ns", "rows_ns")
LOAD_COLUMNS = ["kind", "label", "role", "step", "rank", "rank_count", "start_ns", "end_ns", "group", "call"]
LOAD_COLUMNS += ["sharding", "bytes_in", "bytes_out"]
TABLE_LOADS = {**dict.fromkeys(["table", "sharding_type"], "str"), "rank": "int", **dict.fromkeys(PHASES, "float")}
SLOWEST_RANK = {"rank": "int", "excess_ns": "float", **dict.fromkeys(PHASES, "float")}
_PLACE = ["sharding_type", "compute_kernel", "rank", "row_offset", "column_offset", "rows", "columns"]


def rank_loads(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the load (ns) of each rank that has spans, [rank and sharding type, phase]."""
    is_pass = (spans["kind"] == COMPUTE).to_numpy(bool)
    is_call = is_collective(spans) & (spans["kind"] != STEP).to_numpy(bool)
    of_phases = [
        is_pass & (spans["role"] == roles.LOOKUP).to_numpy(bool),
        is_pass & (spans["role"] == roles.CACHING).to_numpy(bool),
        is_pass & spans["role"].isin(UPDATES).to_numpy(bool),
        is_call & (spans["role"] == roles.IDS).to_numpy(bool),
        is_call & spans["role"].isin([roles.ROWS, roles.GRADIENTS]).to_numpy(bool),
    ]
    calls = spans.assign(size=spans[["bytes_in", "bytes_out"]].max(axis=1)).groupby(["group", "call"])
    begin = spans["start_ns"].where(~is_call, calls["start_ns"].transform("max"))
    most = calls["size"].transform("max").clip(lower=1)
    share = (spans[["bytes_in", "bytes_out"]].max(axis=1) / most).where(is_call, 1.0)
    phase, ns = np.select(of_phases, PHASES, default=""), (spans["end_ns"] - begin) * share
    frame = spans[["rank"]].assign(sharding_type=spans["sharding"], phase=phase, ns=ns)
    kept = frame[((frame["phase"] != "") & (frame["sharding_type"] != "")).to_numpy(bool)]
    loads: pd.DataFrame = kept.pivot_table(
        index=["rank", "sharding_type"], columns="phase", values="ns", aggfunc="sum", fill_value=0.0
    )
    return loads.reindex(columns=list(PHASES), fill_value=0.0)


def table_loads(plan: pd.DataFrame, loads: pd.DataFrame) -> pd.DataFrame:
    """Return each table's load (ns) on each rank, by phase: its share of `rank_loads`."""
    keys, shares = ["rank", "sharding_type"], ["look_up_bytes", "filled", "update_bytes", "ids_per_step", "exchanged"]
    shards = plan.assign(
        exchanged=plan["perf_ms"] - plan["forward_ms"] - plan["backward_ms"],
        filled=plan["look_up_bytes"].where(plan["compute_kernel"].str.endswith("caching"), 0.0),
    ).merge(loads.reset_index(), on=keys, how="inner")
    for phase, column in zip(PHASES, shares, strict=True):
        total = shards.groupby(keys)[column].transform("sum").to_numpy(float)
        own = shards[column].to_numpy(float)
        shards[phase] *= np.divide(own, total, out=np.zeros(len(own)), where=total > 0)
    summed = shards.groupby(["table", "sharding_type", "rank"], sort=False)[list(PHASES)].sum().reset_index()
    return frame_of_columns(summed, TABLE_LOADS)


def by_rank(loads: pd.DataFrame) -> pd.DataFrame:
    """Return the sum of `rank_loads` over sharding types, [rank, phase]."""
    summed: pd.DataFrame = loads.groupby("rank").sum()
    return summed


def slowest_rank(loads: pd.DataFrame, rank_counts: pd.Series) -> pd.DataFrame:
    """Return the rank whose phases exceed the mean rank's most, and by how much (ns); empty without loads.

    `rank_counts` are the ranks that each rank represents. A phase that is shorter than the mean rank's makes up for
    none that is longer, because ranks wait for each other between phases.
    """
    ranks = by_rank(loads)
    counts = rank_counts.reindex(ranks.index, fill_value=1)
    excess = (ranks - ranks.mul(counts, axis=0).sum() / max(counts.sum(), 1)).clip(lower=0.0)
    excess = excess.assign(excess_ns=excess.sum(axis=1)).sort_values("excess_ns", ascending=False, kind="stable")
    first = excess.head(1).reset_index()
    return frame_of_columns(first, SLOWEST_RANK)


def moved_tables(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Return the names of the tables that lie elsewhere in `after`, in the order of `before`."""
    places = [
        {str(name): frozenset(map(tuple, own[_PLACE].to_numpy().tolist())) for name, own in plan.groupby("table")}
        for plan in (before, after)
    ]
    return [name for name in before["table"].drop_duplicates() if places[0][name] != places[1].get(name)]
