"""The section on the device memory of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from reports.sections.model import Most, ReportSection, ReportTable, Words, figure, lacking, on_page, table_of
from reports.sections.run.headline import fits
from reports.sections.run.ranks import rank_names
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import represent_rows
from scenarios.seam.trace import ALWAYS

_FULLEST = 16


def _ranks(view: RunView) -> Iterator[ReportTable]:
    frame = view.run.rank_memory
    columns = {"rank": "rank", "used_bytes": "used", "capacity_bytes": "capacity", "used_share": "share"}
    columns["phase"] = "fullest in"
    raw = {"bytes": float((frame["used_bytes"] * frame["rank_count"]).sum())}
    named, most = frame.assign(rank=rank_names(frame)), Most(_FULLEST, _FULLEST)
    yield table_of("Fullest ranks", named, columns, folded=True, raw=raw, most=most, file="rank_memory.csv")


def _parts(view: RunView) -> Iterator[ReportTable]:
    """Yield the fullest rank's memory: parts held in all phases of a step, and at the peak, whose sum is the total."""
    fullest, memory = view.run.rank_memory.head(1), view.run.memory
    own = memory[(memory["rank"].isin(fullest["rank"]) & (memory["size_bytes"] > 0)).to_numpy(bool)]
    own = own.sort_values("size_bytes", ascending=False, kind="stable")
    peak = fullest["phase"].iloc[0]
    total = fullest.rename(columns={"used_bytes": "size_bytes"}).assign(
        part="total" if peak == ALWAYS else f"total, at the peak in {peak}", phases=peak
    )
    parts, capacity = pd.concat([own, total]), float(fullest["capacity_bytes"].iloc[0])
    parts["share"] = parts["size_bytes"] / parts["capacity_bytes"].where(parts["capacity_bytes"] > 0)
    title = f"Memory of the fullest rank, {represent_rows(fullest)[0]}, capacity {text.size(capacity)}"
    columns = {"part": "part", "size_bytes": "size", "share": "of capacity", "phases": "in phase"}
    yield table_of(title, parts, columns)


def _absent(view: RunView) -> str:
    return "A measured run does not know its parts." if view.run.info.world == "real" else "Nothing was recorded."


MEMORY = ReportSection(
    "memory",
    "Memory",
    [on_page(lambda view: [Words(fits(view.run))]), figure("run.ranks.memory"), on_page(_ranks), _parts],
    absent=lacking(lambda view: view.run.rank_memory, _absent),
    data=lambda view: {"rank_memory": view.run.rank_memory, "memory": view.run.memory},
    folded=True,
)
