"""Says in sentences what a step's time goes into, and for whom ranks wait."""

from __future__ import annotations

from reports.analysis.step_breakdown import PARTS, parts_of_step
from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import records, why_late

# Less than this share of a step is not worth a word.
_LEAST_WAIT = 0.02
_UNEVEN = 1.05


def waiting(run: Run, steps: list[int]) -> str:
    """How long ranks wait for others, for whom, and why that rank is late; "" where they hardly wait."""
    parts = parts_of_step(run, steps).set_index("part")
    if not len(parts):
        return ""
    wait_ns, share = (float(parts[name][PARTS["wait_ns"]]) for name in ("mean_ns", "share"))
    late = latest(run, steps)
    if not share >= _LEAST_WAIT or not late:
        return ""
    return f"ranks wait {text.duration(wait_ns)} of it ({text.percent(share)}) for others to arrive, {late}"


def latest(run: Run, steps: list[int]) -> str:
    """For which rank others wait most, and why it is late; "" where nobody waits."""
    late = records(run.late_ranks_of(steps).head(1))
    if not late:
        return ""
    name = text.representative(f"rank {late[0]['rank']}", late[0]["rank_count"])
    return f"{text.percent(late[0]['share'])} of that for {name}{_because(run, steps, late[0]['rank'])}"


def _because(run: Run, steps: list[int], rank: int) -> str:
    found = run.stragglers_of(steps)
    known = [row for row in records(found[(found["rank"] == rank).to_numpy(bool)]) if row["kind"] == "gpu"]
    if known:
        return f": {why_late(known[0])}"
    ranks = run.ranks_of(steps)
    ratio = float(ranks.loc[(ranks["rank"] == rank).to_numpy(bool), "compute_over_mean"].max())
    return f", which computes {ratio:.2f} times as long as the mean rank" if ratio > _UNEVEN else ""
