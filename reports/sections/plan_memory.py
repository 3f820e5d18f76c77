"""The section on memory of a choice of a plan: what fills the fullest rank, and what the planner keeps from tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from reports.analysis.frames import memory_at_peak
from reports.run import Run
from reports.sections.model import Block, ReportSection, Words, lacking, table_of
from reports.terminal import text
from reports.terminal.rows import records
from scenarios.seam import memory

# What a part of a rank's memory is for, by its kind; parts of other kinds keep their names.
_OF_TABLES, _EXCHANGED = "tables: ", "tables: ids and rows of exchanges (KJT)"
_KINDS = {
    memory.TABLES: f"{_OF_TABLES}rows",
    memory.CACHED_ROWS: f"{_OF_TABLES}cached rows",
    memory.TABLE_STATE: f"{_OF_TABLES}optimizer state",
    **dict.fromkeys((memory.SPARSE_BUFFERS, memory.IDS, memory.ROWS_AHEAD), _EXCHANGED),
    memory.OPTIMIZER: "dense part: optimizer state",
    memory.WEIGHTS: "dense part: parameters",
    **dict.fromkeys((memory.GRADIENTS, memory.REDUCED), "dense part: gradients"),
    **dict.fromkeys((memory.ACTIVATIONS, memory.BATCH), "dense part: activations"),
    memory.COMMUNICATION: "NCCL's buffers",
}


def memory_by_part(run: Run) -> pd.DataFrame:
    """Return what the fullest rank's memory holds at its peak: `part` and `size_bytes`, largest first."""
    fullest = run.rank_memory.head(1)
    held = memory_at_peak(run.memory, run.rank_memory)
    held = held[held["rank"].isin(fullest["rank"]).to_numpy(bool)]
    part = held["kind"].map(_KINDS).fillna(held["part"])
    summed = held["size_bytes"].groupby(part).sum().sort_values(ascending=False, kind="stable")
    return summed[summed > 0].rename_axis("part").reset_index()


def _memory(view: Any) -> Iterator[Block]:  # a PlansView, whose module imports this one
    fullest, parts = records(view.best.run.rank_memory.head(1))[0], memory_by_part(view.best.run)
    capacity_bytes = float(fullest["capacity_bytes"])
    title = f"Memory of the fullest rank, {fullest['rank']}: {text.size(fullest['used_bytes'])}"
    yield table_of(f"{title} of {text.size(capacity_bytes)}", parts, {"part": "part", "size_bytes": "size"})
    if view.reserved_share is not None:
        yield _reserve(view.reserved_share * capacity_bytes, view.reserved_share, parts)
    used = [f"{one.name} {text.size(float(one.run.rank_memory['used_bytes'].max()))}" for one in view.distinct]
    yield Words(f"The fullest rank: {', '.join(used)}.")


def _reserve(reserved_bytes: float, share: float, parts: pd.DataFrame) -> Words:
    """Say whether the memory that the planner keeps free of tables is enough for everything else."""
    rest_bytes = float(parts.loc[~parts["part"].str.startswith(_OF_TABLES).to_numpy(bool), "size_bytes"].sum())
    reserved = f"{text.size(reserved_bytes)} ({100 * share:g} %, sharding.reserved_share)"
    return Words(
        f"The planner keeps {reserved} free of tables and their exchanges; everything else takes"
        f" {text.size(rest_bytes)} in the simulated step"
        + ("." if rest_bytes <= reserved_bytes else ", which is more: reserve more, or a plan may fill a GPU.")
    )


MEMORY = ReportSection(
    "memory",
    "Memory",
    [_memory],
    absent=lacking(lambda view: view.best.run.rank_memory, "Nothing was recorded."),
    data=lambda view: {
        "memory": {} if view.best.run.rank_memory.empty else memory_by_part(view.best.run),
        "reserved_share": view.reserved_share,
    },
)
