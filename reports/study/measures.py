"""The numbers of one point of a study: those by which runs stand side by side, and the planner's estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from reports.analysis.frames import rank_memory
from reports.analysis.step_breakdown import parts_of_step, steady_kept, steady_steps
from reports.run import Run
from reports.side_by_side.frames import CHANGES, result
from reports.store.columns import TABLES, to_arrow, to_frame
from reports.terminal import text
from scenarios.seam.trace import MemoryRow

_ADDED = ("exposed_share", "memory_spare_bytes", "median_step_ns", "usd_per_1e9_samples", "kwh_per_1e9_samples")
# Columns that hold a measure, all of them numbers; steps are those that count for the headline.
MEASURES = ("world_size", "steps", *CHANGES, *_ADDED)
# What a reader is shown of a measure: its title, and the number in words.
SHOWN: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "step_ns": ("step", text.duration),
    "samples_per_s": ("samples/s", text.number),
    "usd_per_1e9_samples": ("$ per 10^9", text.number),
    "kwh_per_1e9_samples": ("kWh per 10^9", text.number),
    "exposed_share": ("exposed", text.percent),
    "memory_spare_bytes": ("spare", text.size),
    "world_size": ("GPUs", text.number),
}


def measures_of(run: Run) -> dict[str, float]:
    """By column: medians of steady steps, means of their parts, and the fullest rank's memory; nan where unknown."""
    found = result("", run, parts_of_step(run, steady_kept(run)))
    memory = run.rank_memory
    measures = {
        **{name: found[name] for name in ("world_size", "steps", *CHANGES)},
        "exposed_share": found["exposed_ns"] / found["step_ns"] if found["step_ns"] else np.nan,
        "memory_spare_bytes": memory["free_bytes"].min() if len(memory) else np.nan,
        "median_step_ns": run.steps["step_ns"].median(),
        "usd_per_1e9_samples": np.nan,
        "kwh_per_1e9_samples": np.nan,
    }
    return {name: float(value) for name, value in measures.items()}


def with_draws(measures: Mapping[str, float], draws: Sequence[Run]) -> dict[str, float]:
    """The numbers of draw 0, with the step's median over the steady steps of all draws, and what follows from it."""
    step_ns = float(pd.concat([steady_steps(run.steps)["step_ns"] for run in draws]).median())
    longer = step_ns / measures["step_ns"]
    costs = {name: measures[name] * longer for name in ("usd_per_1e9_samples", "kwh_per_1e9_samples")}
    return {**measures, **costs, "step_ns": step_ns, "samples_per_s": measures["samples_per_s"] / longer}


def estimated(costs: Sequence[tuple[int, float]], samples: int, memory: Sequence[MemoryRow]) -> dict[str, float]:
    """What the planner expects: `costs` are ranks and what a shard costs there, ms; the busiest rank is the step."""
    of_rank = pd.DataFrame(costs, columns=["rank", "ms"]).groupby("rank")["ms"].sum()
    step_ns = float(of_rank.max()) * 1e6
    held = rank_memory(to_frame(to_arrow(list(memory), TABLES["memory"]), TABLES["memory"]))
    measures = {
        **dict.fromkeys(MEASURES, np.nan),
        "step_samples": float(samples),
        "step_ns": step_ns,
        "samples_per_s": samples * 1e9 / step_ns if step_ns else np.nan,
        "compute_over_mean": float(of_rank.max() / of_rank.mean()) if step_ns else np.nan,
        "memory_bytes": held["used_bytes"].iloc[0] if len(held) else np.nan,
        "memory_spare_bytes": held["free_bytes"].min() if len(held) else np.nan,
    }
    return {name: float(value) for name, value in measures.items()}
