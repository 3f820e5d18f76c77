"""Sentences on what a step's time goes into, and for which ranks others wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.analysis import critical_path
from reports.analysis.by_role import HOST, LAUNCHING, by_what
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


def launching(run: Run, step: int) -> float:
    """Return the share of a step's critical path in which a GPU waits for launches."""
    path = by_what(run.critical_path_of(step))
    return float(path.loc[(path["what"] == LAUNCHING).to_numpy(bool), "share"].sum())


def with_launching(run: Run, step: int | None) -> str:
    """Return ", launching included", as times of computations are; "" where a step has hardly any."""
    return ", launching included" if step is not None and launching(run, step) >= _LEAST_WAIT else ""


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
            included = with_launching(run, step) if row["part"] == COMPUTE else ""
            share = f"{text.percent(row['share'])}{included}"
            took = f"{text.duration(row['duration_ns'])} of the {whole} step ({share})"
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
    ratio_words = f"{ratio:.2f} times as long as the mean rank{with_launching(run, steps[0])}"
    return f", which computes {ratio_words}" if ratio > _UNEVEN else ""


def timed_faults(run: Run) -> list[str]:
    """Return a sentence, without a full stop, for each part that a prediction's scenario slows for a time only."""
    faults = run.info.scenario.get("cluster", {}).get("faults", ()) if run.info.world == "sim" else ()
    timed = (fault for fault in faults if fault.get("begin_ns") or fault.get("end_ns") is not None)
    starts, ends, numbers = (run.steps[name].to_numpy() for name in ("start_ns", "end_ns", "step"))
    said = []
    for fault in timed:
        begin_ns, end_ns = fault["begin_ns"], fault["end_ns"]
        slow = numbers[(ends > begin_ns) & (starts < (math.inf if end_ns is None else end_ns))].tolist()
        within = f"in {text.steps(slow)}" if slow else "when no step runs"
        since = f"from {text.duration(begin_ns)}" if begin_ns else ""
        until = "on" if end_ns is None else f"until {text.duration(end_ns)}"
        when = " ".join(filter(None, (since, until)))
        said.append(f"{_part_name(fault['part'])}: {text.percent(fault['speed'])} of nominal rates {when}, {within}")
    return said


def _part_name(part: dict[str, int]) -> str:
    if "leaf" in part:
        return f"uplinks of leaf {part['leaf']}"
    return f"GPU {part['gpu']} of host {part['host']}" if "gpu" in part else f"NIC {part['nic']} of host {part['host']}"
