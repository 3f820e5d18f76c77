"""Compare the planner's estimate of each table with the time that a step spends on it, and plans by their ranks' loads.

A rank looks up all its tables of a sharding type in one pass, and exchanges their rows in one call: only that pass and
that call are measured. A table's share of a pass is in proportion to the bytes that its shard moves by the law by which
the simulator prices the pass, its share of a call to the planner's estimate, which is linear in bytes. A plan's loads
take an exchange at its time times the rank's share of the bottleneck's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, STEP, is_collective
from reports.store.columns import frame_of_columns, frame_of_rows
from reports.store.parts import Bools
from scenarios.seam import roles

# The parts of a step that a table takes part in; exchanges are those of rows and of gradients, without ids.
PARTS = ("look_up", "update", "exchange")
COSTS_COLUMNS = ["kind", "role", "sharding", "step", "rank", "start_ns", "end_ns", "group", "call"]
LOAD_COLUMNS = [*COSTS_COLUMNS, "label", "rank_count", "bytes_in", "bytes_out"]
# The time of each phase of a plan's loads: ids are those exchanged, rows those and their gradients.
PHASES = ("lookup_ns", "fill_ns", "update_ns", "ids_ns", "rows_ns")
TABLE_LOADS = {**dict.fromkeys(["table", "sharding_type"], "str"), "rank": "int", **dict.fromkeys(PHASES, "float")}
SLOWEST_RANK = {"rank": "int", "excess_ns": "float", **dict.fromkeys(PHASES, "float")}
_PLACE = ["sharding_type", "compute_kernel", "rank", "row_offset", "column_offset", "rows", "columns"]
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
_UPDATES = [roles.UPDATE, roles.OPTIMIZER, roles.TABLE_REDUCTION]
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
    shards = _share_out(shards, spent, _SHARES).rename(columns={part: f"step_{part}_ns" for part in PARTS})
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
    is_pass, is_call = _passes_and_calls(spans)
    kinds = zip(PARTS, (is_pass, is_pass, is_call), ([roles.LOOKUP], _UPDATES, _EXCHANGES), strict=True)
    return _sum_by_part(spans, {part: kept & _has_role(spans, own) for part, kept, own in kinds})


def rank_loads(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the load (ns) of each rank that has spans, [rank and sharding type, phase]."""
    is_pass, is_call = _passes_and_calls(spans)
    of_roles = [[roles.LOOKUP], [roles.CACHING], _UPDATES, [roles.IDS], [roles.ROWS, roles.GRADIENTS]]
    kinds = zip(PHASES, (is_pass, is_pass, is_pass, is_call, is_call), of_roles, strict=True)
    size = spans[["bytes_in", "bytes_out"]].max(axis=1)
    most = spans.assign(size=size).groupby(["group", "call"])["size"].transform("max").clip(lower=1)
    share = (size / most).where(is_call, 1.0)
    return _sum_by_part(spans, {phase: kept & _has_role(spans, own) for phase, kept, own in kinds}, share)


def _passes_and_calls(spans: pd.DataFrame) -> tuple[Bools, Bools]:
    is_call: Bools = is_collective(spans) & (spans["kind"] != STEP).to_numpy(bool)
    return (spans["kind"] == COMPUTE).to_numpy(bool), is_call


def _has_role(spans: pd.DataFrame, of: Sequence[str]) -> Bools:
    return spans["role"].isin(of).to_numpy(bool)


def _sum_by_part(spans: pd.DataFrame, of_parts: Mapping[str, Bools], share: pd.Series | float = 1.0) -> pd.DataFrame:
    """Return the time (ns) of each part's spans, [rank and sharding type, part]; calls begin with their last member."""
    _, is_call = _passes_and_calls(spans)
    begin = spans["start_ns"].where(~is_call, spans.groupby(["group", "call"])["start_ns"].transform("max"))
    part, ns = np.select(list(of_parts.values()), list(of_parts), default=""), (spans["end_ns"] - begin) * share
    found = spans[["rank"]].assign(sharding_type=spans["sharding"], part=part, ns=ns.astype("float64"))
    kept = found[((part != "") & (spans["sharding"] != "").to_numpy(bool))]
    spent: pd.DataFrame = kept.pivot_table(index=_KEYS, columns="part", values="ns", aggfunc="sum", fill_value=0.0)
    return spent.reindex(columns=list(of_parts), fill_value=0.0)


def _share_out(shards: pd.DataFrame, spent: pd.DataFrame, shares: Mapping[str, str]) -> pd.DataFrame:
    """Return the shards of ranks with a time in `spent`, with their parts of it, by columns that they share it by."""
    shards = shards.merge(spent.reset_index(), on=_KEYS, how="inner")
    for part, column in shares.items():
        total = shards.groupby(_KEYS)[column].transform("sum").to_numpy(float)
        own = shards[column].to_numpy(float)
        shards[part] = np.divide(own, total, out=np.zeros(len(own)), where=total > 0) * shards[part]
    return shards


def table_loads(plan: pd.DataFrame, loads: pd.DataFrame) -> pd.DataFrame:
    """Return each table's load (ns) on each rank, by phase: its share of `rank_loads`."""
    shares = ["look_up_bytes", "filled", "update_bytes", "ids_per_step", "exchanged"]
    shards = plan.assign(
        exchanged=plan["perf_ms"] - plan["forward_ms"] - plan["backward_ms"],
        filled=plan["look_up_bytes"].where(plan["compute_kernel"].str.endswith("caching"), 0.0),
    )
    shards = _share_out(shards, loads, dict(zip(PHASES, shares, strict=True)))
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
