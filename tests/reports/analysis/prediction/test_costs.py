"""What 10^9 samples cost: by hand, and only where a price, a power and samples are known."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from reports.analysis.prediction.costs import Costs, costs, costs_of
from reports.run import Run
from reports.sections.run.headline import headline
from reports.study.measures import measures_of
from tests.reports import shown as run_tables
from tests.reports.recordings import SCENARIO, by_hand

PRICES: dict[str, Any] = {
    "usd_per_gpu_hour": 4.5,
    "price_source": "a cloud",
    "price_date": "2026-11-01",
    "watts_per_gpu": 1000.0,
    "power_source": "",
    "power_date": "",
    "pue": 1.25,
}


def run_with(prices: dict[str, Any] | None, **changes: Any) -> Run:
    scenario = {**SCENARIO, **changes.pop("scenario", {})}
    scenario["cluster"] = {**scenario["cluster"], "cost": prices}
    return Run.of(by_hand(scenario=scenario, **changes))


def test_costs_are_those_by_hand() -> None:
    # 8 GPUs do 10^9 samples in 10^9 / 2 * 10^6 = 500 s, or 500 * 8 / 3600 = 1.111 GPU hours: $5 at 4.50 an hour; at
    # 1 kW each, and a quarter more for the building, 1.389 kWh.
    found = costs_of(PRICES, 8, 2e6)
    assert found.usd_per_1e9_samples == pytest.approx(5.0)
    assert found.kwh_per_1e9_samples == pytest.approx(1.25 * 4000 / 3600)


def test_a_run_says_what_it_costs_in_its_headline_json_and_measures() -> None:
    # Two GPUs take 100 ns for 128 samples: 1.28 * 10^9 samples/s, 0.78125 s for 10^9.
    run = run_with(PRICES)
    usd, kwh = 2 * 0.78125 / 3600 * 4.5, 2 * 0.78125 / 3600 * 1.25
    line = next(line for line in headline(run) if "10^9" in line)
    assert line == (
        "$0.00195 and at most 0.000543 kWh per 10^9 samples: $4.50 a GPU hour (a cloud, 2026-11-01);"
        " 1,000 W a GPU x PUE 1.25"
    )
    assert (f"{usd:.5f}", f"{kwh:.6f}") == ("0.00195", "0.000543")
    found = run_tables.as_json(run)
    assert (found["usd_per_1e9_samples"], found["kwh_per_1e9_samples"]) == pytest.approx((usd, kwh))
    assert found["cost"] == PRICES
    measures = measures_of(run)
    assert (measures["usd_per_1e9_samples"], measures["kwh_per_1e9_samples"]) == pytest.approx((usd, kwh))


@pytest.mark.parametrize(
    ("unknown", "shown"), [("usd_per_gpu_hour", "at most 0.000543 kWh per"), ("watts_per_gpu", "$0.00195 per")]
)
def test_unknown_costs_are_not_shown(unknown: str, shown: str) -> None:
    run = run_with({**PRICES, unknown: None})
    assert sum(math.isnan(value) for value in dataclasses.astuple(costs(run))) == 1
    (line,) = (line for line in headline(run) if "10^9" in line)
    assert line.startswith(shown)


def is_free_of(found: Costs) -> bool:
    return all(math.isnan(value) for value in dataclasses.astuple(found))


def test_without_prices_samples_or_the_processors_that_are_priced_nothing_is() -> None:
    assert is_free_of(costs(run_with(None)))
    assert is_free_of(costs(Run.of(by_hand())))
    assert is_free_of(costs(run_with(PRICES, scenario={"model": None})))
    assert is_free_of(costs(run_with(PRICES, world="real")))
    assert not is_free_of(costs(run_with(PRICES, world="real", scenario={"library": "nccl"})))
