"""The sections on ranks: how they differ in the parts of their steps, classes of a script's ranks, device memory."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from reports.sections.model import PAGE, Most, ReportSection, ReportTable, Words, figure, lacking, on_page, table_of
from reports.sections.run.headline import fits
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import represent_rows
from scenarios.seam.trace import ALWAYS

SPENT = ["compute_ns", "transfer_ns", "wait_ns", "hidden_ns", "idle_ns", "step_ns"]
_WORST, _CLASSES = 16, 16
_CLASS_KEYS = ("rank", "count", "ranks")


def of_one_step(view: RunView) -> pd.DataFrame:
    """Return a row for each rank: the mean time of a step by part (columns `SPENT`), `rank`, `rank_count` and `over`.

    `over` is the rank's compute time over the ranks' mean. The frame is empty if the run has no steady steps.
    """
    frame = view.run.ranks_of(view.kept_steps) if view.kept_steps else view.run.ranks.iloc[:0]
    each = frame[SPENT].div(frame["steps"].clip(lower=1), axis=0)
    return each.assign(rank=frame["rank"], rank_count=frame["rank_count"], over=frame["compute_over_mean"])


def rank_names(frame: pd.DataFrame) -> list[str]:
    """Return each row's rank, as a representative of its peers: "rank 4139 & 15 more"."""
    return [f"rank {name}" for name in represent_rows(frame)]


def _worst(view: RunView) -> Iterator[ReportTable]:
    each = of_one_step(view)
    if not len(each):
        return
    worst = each.sort_values(["over", "rank"], ascending=[False, True])
    named = worst.assign(rank=rank_names(worst), over=worst["over"].map("{:.3f}".format))
    titles = ["rank", "compute", "exposed transfer", "waiting", "hidden", "idle", "its step", "compute/mean"]
    columns = dict(zip(["rank", *SPENT, "over"], titles, strict=True))
    raw = {"compute_ns": float((each["compute_ns"] * each["rank_count"]).sum())}
    most = Most(_WORST, _WORST)
    yield table_of("Ranks with the longest compute", named, columns, raw=raw, most=most, file="steady_ranks.csv")


def _classes(view: RunView) -> Iterator[ReportTable]:
    found = sorted(view.run.info.rank_classes, key=lambda each: (-each[1], each[0]))
    rows = [[f"rank {rank}", f"{count:,}", ranks] for rank, count, ranks in found[:_CLASSES]]
    if len(found) > _CLASSES:
        rows.append(["", "", f"{len(found) - _CLASSES} smaller classes not shown"])
    if rows:
        yield ReportTable("Classes of ranks, one rank of each simulated", ["simulated", "for", "ranks"], rows)


def _absent(view: RunView) -> str:
    if view.run.info.rank_classes or len(of_one_step(view)):
        return ""
    return view.why_absent() or "No rank completed a step."


def _rank_classes(view: RunView) -> list[dict[str, object]]:
    return [dict(zip(_CLASS_KEYS, each, strict=True)) for each in view.run.info.rank_classes]


RANKS = ReportSection(
    "ranks",
    "Balance of ranks",
    [figure("run.ranks.ranks"), on_page(_worst), _classes],
    absent=_absent,
    absent_in=PAGE,
    data=lambda view: {
        "ranks": view.run.ranks,
        "late_ranks": view.run.late_ranks_of(view.kept_steps),
        "rank_classes": _rank_classes(view),
    },
    folded=True,
)


def _ranks(view: RunView) -> Iterator[ReportTable]:
    frame = view.run.rank_memory
    columns = {"rank": "rank", "used_bytes": "used", "capacity_bytes": "capacity", "used_share": "share"}
    columns["phase"] = "fullest in"
    raw = {"bytes": float((frame["used_bytes"] * frame["rank_count"]).sum())}
    named, most = frame.assign(rank=rank_names(frame)), Most(_WORST, _WORST)
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


def _no_memory(view: RunView) -> str:
    return "A measured run does not know its parts." if view.run.info.world == "real" else "Nothing was recorded."


MEMORY = ReportSection(
    "memory",
    "Memory",
    [on_page(lambda view: [Words(fits(view.run))]), figure("run.ranks.memory"), on_page(_ranks), _parts],
    absent=lacking(lambda view: view.run.rank_memory, _no_memory),
    data=lambda view: {"rank_memory": view.run.rank_memory, "memory": view.run.memory},
    folded=True,
)
