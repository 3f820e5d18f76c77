"""What 10^9 samples cost in money and energy, by the price and the power of a GPU that a run's scenario says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.analysis.step_breakdown import sync_period, timed_steps
from reports.run import Run

SAMPLES = 10**9
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of `SAMPLES` samples; nan where the price, the power or the samples are not known.

    The energy is an upper bound: what GPUs and hosts draw at most, all the time.
    """

    usd_per_1e9_samples: float
    kwh_per_1e9_samples: float


def costs_of(prices: Mapping[str, Any], gpus: int, samples_per_s: float) -> Costs:
    """What a training on so many GPUs costs; `prices` has the keys of a scenario's `cluster.cost`."""
    gpu_hours = gpus * SAMPLES / samples_per_s / _SECONDS_PER_HOUR if samples_per_s else math.nan
    watts = _number(prices, "watts_per_gpu") * (prices.get("pue") or 1)
    return Costs(
        usd_per_1e9_samples=gpu_hours * _number(prices, "usd_per_gpu_hour"),
        kwh_per_1e9_samples=gpu_hours * watts / 1000,
    )


def costs(run: Run) -> Costs:
    """Those of a run's step time; where each n-th averages replicas of tables, of their mean over a period."""
    samples_per_s = float(timed_steps(run)["samples_per_s"].median())
    period = sync_period(run)
    if period is not None and not math.isnan(period.samples_per_s):
        samples_per_s = period.samples_per_s
    return costs_of(prices_of(run), run.info.world_size, samples_per_s)


def prices_of(run: Run) -> Mapping[str, Any]:
    """What the scenario says of its GPUs' price and power; nothing of a real run on other processors than theirs."""
    cluster = run.info.scenario.get("cluster")
    said = cluster.get("cost") if isinstance(cluster, Mapping) else None
    is_theirs = run.info.world == "sim" or run.info.scenario.get("library") == "nccl"
    return said if isinstance(said, Mapping) and is_theirs else {}


def _number(prices: Mapping[str, Any], key: str) -> float:
    value = prices.get(key)
    return float(value) if isinstance(value, (int, float)) else math.nan
