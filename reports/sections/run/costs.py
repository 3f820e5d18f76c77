"""A line on the cost of a run's samples, and on the prices used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.analysis.prediction.costs import costs, prices_of
from reports.run import Run
from reports.terminal import text


def costs_line(run: Run) -> str:
    """Return the cost of 10^9 samples and the source of prices; "" where neither money nor energy is known."""
    found, prices = costs(run), prices_of(run)
    said, by = [], []
    if not math.isnan(found.usd_per_1e9_samples):
        said.append(f"${text.to_three_digits(found.usd_per_1e9_samples)}")
        by.append(f"${prices['usd_per_gpu_hour']:,.2f} a GPU hour{_source(prices, 'price')}")
    if not math.isnan(found.kwh_per_1e9_samples):
        said.append(f"at most {text.to_three_digits(found.kwh_per_1e9_samples)} kWh")
        pue = f" x PUE {prices['pue']:g}" if prices["pue"] != 1 else ""
        by.append(f"{prices['watts_per_gpu']:,g} W a GPU{pue}{_source(prices, 'power')}")
    return f"{' and '.join(said)} per 10^9 samples: {'; '.join(by)}" if said else ""


def _source(prices: Mapping[str, Any], what: str) -> str:
    known = ", ".join(text.printable(one) for one in (prices[f"{what}_source"], prices[f"{what}_date"]) if one)
    return f" ({known})" if known else ""
