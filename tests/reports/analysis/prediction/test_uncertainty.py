"""How far off a prediction may be: by steps of its kind or a calibration, by hand, and in words where not known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from reports.analysis.prediction.uncertainty import Contribution, Uncertainty, uncertainty
from reports.run import Run
from reports.study.measures import measures_of
from reports.terminal import run_tables
from reports.terminal.headline import headline
from tests.reports.recordings import SCENARIO, by_hand

KIND = {"scenario": "s", "program": "dlrm", "launching": "cuda_graphs", "hosts": 2, "gpus_per_host": 1}
PUBLISHED = {"steps": 23, "mean_error": 0.01, "worst_error": -0.9, "of": "some training", "command": "-"}
GPUS = {"cluster": {"hosts": 2, "host": {"gpus": 1, "gpu": {"kind": "cuda"}}}, "launching": {"cuda_graphs": True}}
EAGER = {**GPUS, "launching": {"cuda_graphs": False}}
# The critical path of a step by hand: 60 ns of gemm, 35 of an all_reduce, 5 of an optimizer.
TYPICAL = {"gemm kernels": 0.1, "optimizer kernels": 0.2, "gloo over TCP": 0.3}


def run_with(known: dict[str, Any] | None, scenario: dict[str, Any] | None = None, **changes: Any) -> Run:
    made = {**SCENARIO, "program": "dlrm", **(scenario or {}), "known_errors": known}
    return Run.of(by_hand(scenario=made, **changes))


def published(*errors: float, **changes: Any) -> dict[str, Any]:
    """Return what a profile says of configurations of one kind with these errors."""
    return {"published": {**PUBLISHED, "configurations": [{**KIND, "error": each, **changes} for each in errors]}}


def of_hardware(run: Run) -> Contribution:
    found = uncertainty(run)
    assert found is not None
    return found.contributions[0]


def test_contributions_add_up_in_quadrature_unless_one_is_not_known() -> None:
    three, four = (Contribution(share=share, words="") for share in (0.03, 0.04))
    assert Uncertainty(contributions=(three, four)).share == pytest.approx(0.05)
    assert math.isnan(Uncertainty(contributions=(three, Contribution(share=math.nan, words=""))).share)


def test_published_steps_of_a_run_s_kind_say_how_far_off_it_may_be() -> None:
    """Each configuration once, whatever its submissions; those that were fitted are left out."""
    known = published(0.01, -0.03)
    known["published"]["configurations"].append({**KIND, "error": 0.0, "fitted": True})
    run = run_with(known, GPUS)
    lines = headline(run)
    assert any(line.startswith("step time 100 ns ±2.0 %, the median of steps ") for line in lines)
    assert (
        "uncertainty: 2.0 % mean error on 2 published configurations of some training with this program, launching"
        " and scale, worst -3.0 %; 0.0 % half the range of 2 steps"
    ) in lines
    assert run_tables.as_json(run)["uncertainty"]["share"] == pytest.approx(0.02)
    assert measures_of(run)["uncertainty_share"] == pytest.approx(0.02)


def test_residuals_count_by_their_groups_share_of_the_critical_path() -> None:
    by_hand = math.sqrt((0.6 * 0.1) ** 2 + (0.35 * 0.3) ** 2 + (0.05 * 0.2) ** 2)
    assert of_hardware(run_with({"typical_errors": TYPICAL})).share == pytest.approx(by_hand)
    without = {name: error for name, error in TYPICAL.items() if name != "optimizer kernels"}
    assert of_hardware(run_with({"typical_errors": without})).share == pytest.approx(math.hypot(0.06, 0.105))


def test_residuals_of_kernels_say_nothing_of_eager_steps_on_gpus() -> None:
    assert not math.isnan(of_hardware(run_with({"typical_errors": TYPICAL}, GPUS)).share)
    assert math.isnan(of_hardware(run_with({"typical_errors": TYPICAL}, EAGER)).share)


RESEMBLES_NONE = "no published step resembles this one"
ON_H200 = (
    f"{RESEMBLES_NONE}; ten eager steps on one H200, to which the host's times are fitted, are 5 % off in the mean,"
    " 11 % at most"
)


@pytest.mark.parametrize(
    ("known", "scenario", "words"),
    [
        ({}, {}, "neither calibrated nor held against published steps"),
        ({}, EAGER, ON_H200),
        ({}, GPUS, RESEMBLES_NONE),
        (published(0.01, -0.03), EAGER, ON_H200),
        (published(0.01, -0.03), {**GPUS, "program": "script"}, RESEMBLES_NONE),
        (published(0.01, -0.03, hosts=1), GPUS, RESEMBLES_NONE),
        (published(0.01, -0.03, gpus_per_host=8), GPUS, RESEMBLES_NONE),
        ({"published": PUBLISHED}, EAGER, ON_H200),  # of a profile that names no configurations
        (published(0.01, -0.03) | {"sets_figures": True}, EAGER, ON_H200),
        (published(0.04), GPUS, "a single published step resembles this one, predicted +4.0 % off"),
        (
            published(0.0, 0.01, fitted=True),
            GPUS,
            "the one published step that resembles this one is that to which the profile was fitted",
        ),
        (
            published(0.01, -0.03) | {"sets_figures": True},
            GPUS,
            "the scenario sets figures of its hardware itself",
        ),
        (
            {"typical_errors": {"gloo over TCP": 0.3}},
            {},
            "the calibration has no probes of what takes 65.0 % of the step",
        ),
    ],
)
def test_what_nobody_has_measured_is_said_in_one_sentence(
    known: dict[str, Any], scenario: dict[str, Any], words: str
) -> None:
    run = run_with(known, scenario)
    assert math.isnan(of_hardware(run).share)
    lines = headline(run)
    assert [line for line in lines if line.startswith("uncertainty:")] == [f"uncertainty: not known: {words}"]
    assert not any("±" in line for line in lines)


def test_what_is_not_known_is_null_for_scripts() -> None:
    assert run_tables.as_json(run_with({}, GPUS))["uncertainty"]["share"] is None


def test_measurements_and_runs_of_earlier_releases_have_none() -> None:
    assert uncertainty(run_with(published(0.01, 0.02), GPUS, world="real")) is None
    assert uncertainty(Run.of(by_hand())) is None
    assert not any("uncertainty" in line for line in headline(Run.of(by_hand())))
