"""Fits the host's prices to all but one of the steps that the host bounds, and says how far that one is then off.

Prices of `[cluster.gpu.eager]` are fitted anew to all but one of the measured steps that the host of an H200 bounds, by
least squares of relative errors beside a prior: what profiles of that machine say of each kind of work, give or take
half. `benchmarks.measured_steps` calls it, on runs that it has simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.eager_steps import step_ms
from reports.run import Run
from scenarios.config.scenario import Scenario
from scenarios.workloads.build import build
from scenarios.workloads.script.command import load_given
from sim.run import simulate

# us: an elementwise operator 9 with its launch, a product 22 to 30, a node of autograd 5 to 12, all_reduce 100.
PRIOR_US = {
    "dispatch_ns": 1.0,
    "operator_ns": 5.0,
    "product_ns": 20.0,
    "pass_ns": 100.0,
    "node_ns": 8.0,
    "gradient_ns": 4.0,
    "bags_ns": 50.0,
    "call_ns": 1.0,
    "collective_ns": 90.0,
}
_SPREAD = 0.5  # of a price around its prior, relative
_NOISE = 0.04  # of a step around its prediction, relative
_DERIVATIVE = 0.1  # by which a price is changed to see what follows

Floats = npt.NDArray[np.float64]


def leave_one_out(folders: Mapping[str, Path], measured_ms: pd.Series) -> dict[str, float]:
    """Return the error of each step, predicted by prices fitted to the others: predicted / measured - 1.

    `folders` are those of predicted runs by their steps' names, in which there is the recording of the script.
    """
    on = {"profile": "hgx_h200"}
    scenarios = {name: load_given(path, on, args=()) for name, path in folders.items()}
    measured = measured_ms[list(folders)].to_numpy(float)
    prices = np.array([_price(next(iter(scenarios.values())), key) for key in PRIOR_US])
    steps = np.array([_step_ms(one) for one in scenarios.values()])
    pairs = list(zip(scenarios.values(), steps.tolist(), strict=True))
    slopes = np.array([[_slope(one, key, own_ms) for key in PRIOR_US] for one, own_ms in pairs])
    errors = {}
    for place, name in enumerate(scenarios):
        others = np.arange(len(steps)) != place
        at_zero = steps - slopes @ prices
        fitted = _fit(slopes[others], at_zero[others], measured[others])
        errors[name] = float((at_zero + slopes @ fitted)[place] / measured[place] - 1)
    return errors


def _fit(slopes: Floats, at_zero: Floats, measured: Floats) -> Floats:
    """Return prices in ns with which `at_zero` + `slopes` @ prices is nearest `measured`, and they to their priors."""
    prior = 1e3 * np.array(list(PRIOR_US.values()))
    weights = 1 / (_NOISE * measured)
    left = np.vstack([slopes * weights[:, None], np.diag(1 / (_SPREAD * prior))])
    right = np.concatenate([(measured - at_zero) * weights, np.full(len(prior), 1 / _SPREAD)])
    fitted: Floats = np.linalg.lstsq(left, right, rcond=None)[0]
    return fitted


def _slope(scenario: Scenario, key: str, step_ms: float) -> float:
    """Return the derivative of a step by one of the prices, in ms an ns."""
    price = _price(scenario, key)
    more = round(price * (1 + _DERIVATIVE))
    gpu = scenario.cluster.host.gpu
    gpu = dataclasses.replace(gpu, eager=dataclasses.replace(gpu.eager, **{key: more}))
    host = dataclasses.replace(scenario.cluster.host, gpu=gpu)
    changed = dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, host=host))
    return (_step_ms(changed) - step_ms) / (more - price)


def _price(scenario: Scenario, key: str) -> float:
    return float(getattr(scenario.cluster.host.gpu.eager, key))


def _step_ms(scenario: Scenario) -> float:
    return step_ms(Run.of(simulate(scenario, build(scenario))))
