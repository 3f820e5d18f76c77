"""Sentences on what a step's time goes into, and for which ranks others wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.analysis import critical_path
from reports.analysis.by_role import HOST
from reports.analysis.frames import COMPUTE
from reports.analysis.step_breakdown import PARTS, parts_of_step, steady_kept
from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import records, why_late

# The number of sentences on what dominates, the least share of the step for one, and the operations named in each.
_DOMINANT, _LEAST_SHARE, _NAMED = 3, 0.1, 3
# A smaller share of a step is not reported.
_LEAST_WAIT = _LEAST_LAYER = 0.02
_UNEVEN = 1.05


def largest_part(run: Run, step: int) -> str:
    """Return the largest part of a step's critical path with its share; "" if none is large."""
    found = records(critical_path.dominant(run.critical_path_of(step)).head(1))
    large = (row for row in found if row["share"] >= _LEAST_SHARE)
    return "".join(f"{group_name(row)}: {text.percent(row['share'])} of the step{_largest(run, row)}" for row in large)


def _largest(run: Run, row: dict[str, Any]) -> str:
    """Return the layers of a row of `critical_path.dominant`, with their shares of the step; "" if unknown."""
    shares = _divide(run, dict(zip(row["operations"], row["times_ns"], strict=True)), with_phase=False)
    if not shares.keys() - set(row["operations"]):
        return ""
    of_step = {name: row["share"] * ns / row["duration_ns"] for name, ns in [*shares.items()][:_NAMED]}
    named = [f"{text.printable(name)} {text.percent(own)}" for name, own in of_step.items() if own >= _LEAST_LAYER]
    return f": {', '.join(named)}" if named else ""


def _divide(run: Run, times_ns: Mapping[str, float], *, with_phase: bool) -> dict[str, float]:
    """Return times of operations by layer where they have layers, the longest first."""
    found, times = dict[str, float](), run.layer_times_of(steady_kept(run))
    named = times["name"] + (" " + times["phase"] if with_phase else "")
    shares = times["share"].groupby([times["label"], named], sort=False).sum()
    for label, ns in times_ns.items():
        for name, share in shares.get(label, {label: 1.0}).items():
            found[str(name)] = found.get(str(name), 0.0) + ns * share
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def dominant(run: Run, step: int) -> list[str]:
    """Return a sentence, without a full stop, for each main part of a step's critical path, longest first."""
    path = run.critical_path_of(step)
    whole, said = text.duration(float(path["duration_ns"].sum())), []
    for row in records(critical_path.dominant(path).head(_DOMINANT)):
        if row["share"] >= _LEAST_SHARE:
            took = f"{text.duration(row['duration_ns'])} of the {whole} step ({text.percent(row['share'])})"
            by_layer = _divide(run, dict(zip(row["operations"], row["times_ns"], strict=True)), with_phase=True)
            pairs = list(by_layer.items())
            named = [f"{text.printable(name)} {text.duration(ns)}" for name, ns in pairs[:_NAMED] if name]
            more = [f"{len(pairs) - _NAMED} more"] if len(pairs) > _NAMED else []
            said.append(f"{group_name(row)}: {took}{': ' if named else ''}{' and '.join([', '.join(named), *more])}")
    return said


def group_name(row: dict[str, Any]) -> str:
    """Return the name of a row of `critical_path.dominant`: "gemm (matrix products) in float32", "send of int64"."""
    if row["part"] == HOST:
        return "the program's own time"
    if row["part"] == COMPUTE:
        kernel = {"gemm": "gemm (matrix products)", "": "computation"}.get(row["kernel"], row["kernel"])
        return f"{kernel} in {row['dtype']}" if row["dtype"] else kernel
    name = f"{row['kind']} of {row['dtype']}" if row["dtype"] else str(row["kind"])
    return name if row["stream"] in ("main", "") else f"{name} @{row['stream']}"


def waiting(run: Run, steps: list[int], least: float = _LEAST_WAIT) -> str:
    """Return how long ranks wait for others, for which rank, and why that rank is late.

    The result is "" where they wait for a smaller share of a step than `least`.
    """
    parts = parts_of_step(run, steps).set_index("part")
    if not len(parts):
        return ""
    wait_ns, share = (float(parts[name][PARTS["wait_ns"]]) for name in ("mean_ns", "share"))
    late = latest(run, steps)
    if not share >= least or not late:
        return ""
    return f"ranks wait {text.duration(wait_ns)} of a step ({text.percent(share)}) for others to arrive, {late}"


def latest(run: Run, steps: list[int]) -> str:
    """Return for which rank others wait most, and why it is late; "" where no rank waits."""
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
