"""The numbers of one point of a study: those by which runs are compared, and the planner's estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import rank_memory
from reports.analysis.prediction.costs import costs, costs_of
from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.statistics import LEAST_COUNT, sample
from reports.analysis.step_breakdown import (
    PARTS,
    check_steps,
    parts_of_step,
    steady_kept,
    steady_steps,
    timed_steps,
    utilisation_of,
)
from reports.run import Run
from reports.side_by_side.frames import CHANGES, result
from reports.store.columns import TABLES, to_arrow, to_frame
from reports.terminal import text
from scenarios.seam import roles
from scenarios.seam.trace import MemoryRow

_ADDED = (
    *("exposed_share", "memory_spare_bytes", "median_step_ns", "usd_per_1e9_samples", "kwh_per_1e9_samples"),
    *("uncertainty_share", "gradients_ns", "gradients_exposed_ns"),
)
_ARITHMETIC = ("flops_per_s", "mfu", "hfu")
# Roles of collectives that reduce gradients.
_GRADIENTS = (roles.REDUCTION, roles.TABLE_REDUCTION, roles.COMPRESSION)
# Of a scenario whose [job] has a goal; its costs count failures, checkpoints and restarts.
_OF_JOBS = ("goodput", "days")
# Columns of measures, all of them numbers; `steps` counts the steps of the headline.
MEASURES = ("world_size", "steps", *CHANGES, *_ADDED, *_ARITHMETIC, *_OF_JOBS)
# The title of a measure, and how its number is written.
SHOWN: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "step_ns": ("step", text.duration),
    "samples_per_s": ("samples/s", text.number),
    "usd_per_1e9_samples": ("$ per 10^9", text.to_three_digits),
    "kwh_per_1e9_samples": ("kWh per 10^9", text.to_three_digits),
    "goodput": ("goodput", text.percent),
    "days": ("days", text.to_three_digits),
    "exposed_share": ("exposed", text.percent),
    "uncertainty_share": ("±", text.percent),
    "flops_per_s": ("FLOP/s", text.flop_rate),
    "mfu": ("MFU", text.percent),
    "hfu": ("HFU", text.percent),
    "memory_spare_bytes": ("spare", text.size),
    "world_size": ("GPUs", text.number),
    "steps": ("steady steps", text.number),
    "step_samples": ("samples per step", text.number),
    **{name: (title, text.duration) for name, title in PARTS.items()},
    "bytes_sent": ("payload per rank", text.size),
    "memory_bytes": ("max memory", text.size),
    "link_utilisation": ("hottest link, mean", text.percent),
    "link_busy_utilisation": ("hottest link, busy", text.percent),
    "compute_over_mean": ("compute, max/mean", text.number),
    "ids_over_mean": ("ids, max/mean", text.number),
    "median_step_ns": ("median of all steps", text.duration),
    "gradients_ns": ("gradients' reduction", text.duration),
    "gradients_exposed_ns": ("of it exposed", text.duration),
}
# Measures by which a reader may rank points, and whether more is better: all possible goals, and some more.
RATED: Mapping[str, bool] = {
    "samples_per_s": True,
    "step_ns": False,
    "usd_per_1e9_samples": False,
    "kwh_per_1e9_samples": False,
    "goodput": True,
    "days": False,
    "memory_spare_bytes": True,
    "world_size": False,
    "exposed_share": False,
    "exposed_ns": False,
    "memory_bytes": False,
    "bytes_sent": False,
    "compute_over_mean": False,
}


def measures_of(run: Run) -> dict[str, float]:
    """Return by column medians of steady steps, means of their parts, and the fullest rank's memory; nan where unknown.

    Raises:
        NoStepError: no rank completed a step.
    """
    check_steps(run)
    steps = steady_kept(run)
    found = result("", run, parts_of_step(run, steps))
    recorded_ns = steady_steps(run.steps)["step_ns"].median()  # the steps that `exposed_ns` is from
    memory, known, done = run.rank_memory, uncertainty(run), utilisation_of(run)
    measures = {
        **{name: found[name] for name in ("world_size", "steps", *CHANGES)},
        "exposed_share": found["exposed_ns"] / recorded_ns if recorded_ns else np.nan,
        "memory_spare_bytes": memory["free_bytes"].min() if len(memory) else np.nan,
        "median_step_ns": run.steps["step_ns"].median(),
        **asdict(costs(run)),
        "uncertainty_share": np.nan if known is None else known.share,
        "flops_per_s": np.nan if done is None else done.flops_per_s,
        "mfu": np.nan if done is None else done.mfu,
        "hfu": np.nan if done is None else done.hfu,
        **_of_gradients(run, steps),
        **dict.fromkeys(_OF_JOBS, np.nan),
    }
    return {name: float(value) for name, value in measures.items()}


def _of_gradients(run: Run, steps: Sequence[int]) -> dict[str, float]:
    """Return the time per step of reducing gradients, and its exposed part, in ns."""
    operations = run.operations_of(steps)
    own = operations[((operations["part"] == "communication") & operations["role"].isin(_GRADIENTS)).to_numpy(bool)]
    exposed = float(own["exposed_ns"].sum())
    return {"gradients_ns": exposed + float(own["hidden_ns"].sum()), "gradients_exposed_ns": exposed}


def with_draws(measures: Mapping[str, float], draws: Sequence[Run]) -> dict[str, float]:
    """Return the numbers of draw 0 with step time, rate and costs by the median of the steady steps of all draws."""
    step_ns = float(pd.concat([timed_steps(run)["step_ns"] for run in draws]).median())
    longer = step_ns / measures["step_ns"]
    costs = {name: measures[name] * longer for name in ("usd_per_1e9_samples", "kwh_per_1e9_samples")}
    return {**measures, **costs, "step_ns": step_ns, "samples_per_s": measures["samples_per_s"] / longer}


def speeds_of(draws: Sequence[Run]) -> tuple[tuple[float, ...], ...]:
    """Return samples per second of each draw's steady steps, or steps per second where samples are unknown."""
    return tuple(map(_speeds_of, draws))


def _speeds_of(run: Run) -> tuple[float, ...]:
    steps = timed_steps(run)
    per_step = 1e9 / steps["step_ns"].astype(float).where(steps["step_ns"] > 0)
    samples_per_s = steps["samples_per_s"].astype(float)
    return tuple(samples_per_s.where(samples_per_s > 0, per_step).tolist())


def gain_of(base: Sequence[Sequence[float]], changed: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return a changed run's speed-up: the median ratio of its speeds to the base's, and its 95 % interval.

    A step is paired with the step in its place of the base's draw with equal index, which has an equal batch. The
    interval of fewer than `LEAST_COUNT` pairs is their range; zeros where there is no pair.
    """
    pairs = [pair for draws in zip(base, changed, strict=False) for pair in zip(*draws, strict=False)]
    ratios = [after / before for before, after in pairs if before > 0 and after > 0]
    if not ratios:
        return 0.0, 0.0, 0.0
    found = sample(ratios)
    if found.count < LEAST_COUNT:
        return found.median, min(ratios), max(ratios)
    return found.median, found.median_low, found.median_high


def estimated_measures(
    shards: Sequence[tuple[int, float]],
    memory: Sequence[MemoryRow],
    *,
    samples: int,
    gpus: int,
    prices: Mapping[str, Any],
) -> dict[str, float]:
    """Return the measures that the planner expects; the step is the bottleneck rank's time.

    Args:
        shards: pairs of a rank and a shard's time there, in ms.
        memory: the plan's memory.
        samples: the samples of a step.
        gpus: the number of GPUs.
        prices: as in `costs_of`.
    """
    of_rank = pd.DataFrame(shards, columns=["rank", "ms"]).groupby("rank")["ms"].sum()
    step_ns = float(of_rank.max()) * 1e6
    samples_per_s = samples * 1e9 / step_ns if step_ns else np.nan
    held = rank_memory(to_frame(to_arrow(list(memory), TABLES["memory"]), TABLES["memory"]))
    measures = {
        **dict.fromkeys(MEASURES, np.nan),
        **asdict(costs_of(prices, gpus, samples_per_s)),
        "world_size": gpus,
        "step_samples": samples,
        "step_ns": step_ns,
        "samples_per_s": samples_per_s,
        "compute_over_mean": float(of_rank.max() / of_rank.mean()) if step_ns else np.nan,
        "memory_bytes": held["used_bytes"].iloc[0] if len(held) else np.nan,
        "memory_spare_bytes": held["free_bytes"].min() if len(held) else np.nan,
    }
    return {name: float(value) for name, value in measures.items()}
