"""How far off a prediction may be: each contribution by hand, and nothing where nothing is known."""

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

PUBLISHED = {"steps": 23, "mean_error": 0.02, "worst_error": -0.06, "of": "some training", "command": "-"}
# The critical path of a step by hand: 60 ns of gemm, 35 of an all_reduce, 5 of an optimizer.
TYPICAL = {"gemm kernels": 0.1, "optimizer kernels": 0.2, "gloo over TCP": 0.3}


def run_with(known: dict[str, Any] | None, **changes: Any) -> Run:
    return Run.of(by_hand(scenario={**SCENARIO, "program": "dlrm", "known_errors": known}, **changes))


def of_hardware(known: dict[str, Any]) -> Contribution:
    found = uncertainty(run_with(known))
    assert found is not None
    return found.contributions[0]


def test_contributions_add_up_in_quadrature_unless_one_is_not_known() -> None:
    three, four = (Contribution(share=share, words="") for share in (0.03, 0.04))
    assert Uncertainty(contributions=(three, four)).share == pytest.approx(0.05)
    assert math.isnan(Uncertainty(contributions=(three, Contribution(share=math.nan, words=""))).share)


def test_published_steps_say_how_far_off_a_profile_is() -> None:
    run = run_with({"published": PUBLISHED})
    lines = headline(run)
    assert any(line.startswith("step time 100 ns ±2.0 %, the median of steps ") for line in lines)
    assert (
        "uncertainty: 2.0 % mean error on 23 published steps of some training on this profile, worst -6.0 %;"
        " 0.0 % half the range of 2 steps"
    ) in lines
    assert run_tables.as_json(run)["uncertainty"]["share"] == pytest.approx(0.02)
    assert measures_of(run)["uncertainty_share"] == pytest.approx(0.02)


def test_residuals_count_by_their_groups_share_of_the_critical_path() -> None:
    by_hand = math.sqrt((0.6 * 0.1) ** 2 + (0.35 * 0.3) ** 2 + (0.05 * 0.2) ** 2)
    assert of_hardware({"typical_errors": TYPICAL}).share == pytest.approx(by_hand)
    without = {name: error for name, error in TYPICAL.items() if name != "optimizer kernels"}
    assert of_hardware({"typical_errors": without}).share == pytest.approx(math.hypot(0.06, 0.105))


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, "neither calibrated nor held against published steps"),
        ({"published": PUBLISHED, "sets_figures": True}, "the scenario sets figures of its hardware itself"),
        ({"typical_errors": {"gloo over TCP": 0.3}}, "no probes of what takes 65.0 % of the step"),
    ],
)
def test_what_nobody_has_measured_is_not_known(known: dict[str, Any], words: str) -> None:
    run = run_with(known)
    assert math.isnan(of_hardware(known).share)
    (line,) = (line for line in headline(run) if line.startswith("uncertainty: not known"))
    assert words in line
    assert not any("±" in line for line in headline(run))
    assert run_tables.as_json(run)["uncertainty"]["share"] is None


def test_measurements_and_runs_of_earlier_releases_have_none() -> None:
    assert uncertainty(run_with({"published": PUBLISHED}, world="real")) is None
    assert uncertainty(Run.of(by_hand())) is None
    assert not any("uncertainty" in line for line in headline(Run.of(by_hand())))
