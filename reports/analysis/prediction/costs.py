"""Compute money and energy per 10^9 samples, from the price and power of a GPU that a run's scenario states."""

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
    """A price and an energy of training on `SAMPLES` samples; nan where price, power or samples are unknown.

    The energy is an upper bound: GPUs and hosts are assumed to draw their maximum power all the time.
    """

    usd_per_1e9_samples: float
    kwh_per_1e9_samples: float


def costs_of(prices: Mapping[str, Any], gpus: int, samples_per_s: float) -> Costs:
    """Return the cost of training on `gpus` GPUs at `samples_per_s`.

    Args:
        prices: the keys of a scenario's `cluster.cost`.
        gpus: the number of GPUs.
        samples_per_s: samples per second of all GPUs together.
    """
    gpu_hours = gpus * SAMPLES / samples_per_s / _SECONDS_PER_HOUR if samples_per_s else math.nan
    usd, kwh = price_of(prices, gpu_hours)
    return Costs(usd_per_1e9_samples=usd, kwh_per_1e9_samples=kwh)


def price_of(prices: Mapping[str, Any], gpu_hours: float) -> tuple[float, float]:
    """Return the dollars and kWh of `gpu_hours`; `prices` as in `costs_of`, nan if they lack a figure."""
    watts = _number(prices, "watts_per_gpu") * (prices.get("pue") or 1)
    return gpu_hours * _number(prices, "usd_per_gpu_hour"), gpu_hours * watts / 1000


def costs(run: Run) -> Costs:
    """Return the costs at a run's step time; where every n-th step averages replicas, at the mean over a period."""
    samples_per_s = float(timed_steps(run)["samples_per_s"].median())
    period = sync_period(run)
    if period is not None and not math.isnan(period.samples_per_s):
        samples_per_s = period.samples_per_s
    return costs_of(prices_of(run), run.info.world_size, samples_per_s)


def prices_of(run: Run) -> Mapping[str, Any]:
    """Return the scenario's prices and power of GPUs; empty for a real run on other processors than these GPUs."""
    cluster = run.info.scenario.get("cluster")
    said = cluster.get("cost") if isinstance(cluster, Mapping) else None
    is_theirs = run.info.world == "sim" or run.info.scenario.get("library") == "nccl"
    return said if isinstance(said, Mapping) and is_theirs else {}


def _number(prices: Mapping[str, Any], key: str) -> float:
    value = prices.get(key)
    return float(value) if isinstance(value, (int, float)) else math.nan
