"""Simulated jobs agree with the closed form of goodput, and its best interval is as good as others that are tried."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from sim.job.closed_form import available_s, best_interval, daly_s, goodput, young_s
from sim.job.model import CheckpointTimes, Interruption, JobModel, JobStep
from sim.job.play import play
from sim.job.sample import mean_goodput

HOUR = 3600.0
BLOCKING = CheckpointTimes.blocking(30.0, 60.0)
WRITINGS = {
    "blocking": BLOCKING,
    "async": CheckpointTimes(blocks_s=(5.0,), background_s=(60.0,), restore_s=(90.0,)),
    "incremental": CheckpointTimes(blocks_s=(40.0, 10.0, 10.0), background_s=(0.0,) * 3, restore_s=(60.0, 70.0, 80.0)),
}
STEP = JobStep(step_s=2.0, writing_s=2.6)


def kind(name: str, hours: float, **changes: Any) -> Interruption:
    one = Interruption(name=name, per_s=1 / (hours * HOUR), detection_s=120.0)
    return dataclasses.replace(one, **changes)


def job(interruptions: tuple[Interruption, ...], **changes: Any) -> JobModel:
    """Return a job of 1,000 mean times between failures with spares enough."""
    rate = sum(one.per_s for one in interruptions)
    base = JobModel(
        horizon_s=1000 / rate, by_hosts={64: STEP}, interval_steps=300, writing=BLOCKING, interruptions=interruptions,
        hosts=64, spares=10_000, restart_s=90.0, replacement_s=60.0,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def played(model: JobModel, draws: int = 4) -> float:
    found = [play(model, 5, draw) for draw in range(draws)]
    return sum(one.steps for one in found) * model.step_s / sum(one.seconds for one in found)


GPU, HOST = kind("gpu", 4), kind("host", 9, loses_host=True, repair_s=HOUR)
SOFTWARE = kind("software", 6, detection_s=600.0)
PLANNED = kind("planned", 20, planned=True, detection_s=0.0)


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("kinds", [(GPU,), (kind("gpu", 1),), (GPU, HOST, SOFTWARE, PLANNED), (PLANNED,)])
@pytest.mark.parametrize("interval", [60, 300, 1500])
@pytest.mark.parametrize("beside", [{}, {"input_stall": 0.1, "evaluation": 0.05}])
def test_goodput_agrees_with_the_closed_form(
    writing: str, kinds: tuple[Interruption, ...], interval: int, beside: dict[str, float]
) -> None:
    model = job(kinds, writing=WRITINGS[writing], interval_steps=interval, **beside)
    assert played(model) == pytest.approx(goodput(model), rel=0.02)


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("kinds", [(GPU,), (kind("gpu", 0.5),), (GPU, HOST, SOFTWARE, PLANNED)])
def test_the_best_interval_by_closed_form_has_the_highest_simulated_goodput(
    writing: str, kinds: tuple[Interruption, ...]
) -> None:
    model = job(kinds, writing=WRITINGS[writing])
    best = best_interval(model)
    tried = [played(model.with_interval(max(round(best * 2**power), 1)), 2) for power in (-3, -1, -0.5, 0, 0.5, 1, 3)]
    assert tried[3] >= 0.99 * max(tried)
    assert tried[3] > max(tried[0], tried[-1])


def test_the_best_simulated_interval_is_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.job.sample._LOOK", 8)
    model = job((GPU, HOST, SOFTWARE, PLANNED))
    best, simulated = best_interval(model), best_interval(model, lambda tried: mean_goodput(tried, 1))
    assert best == pytest.approx(simulated, rel=0.5)
    assert played(model.with_interval(best)) == pytest.approx(played(model.with_interval(simulated)), rel=0.01)


def test_young_daly_and_the_best_interval_agree_where_checkpoints_are_quick() -> None:
    """The exact optimum of Daly's complete model: his series is within a percent of it."""
    model = job((kind("gpu", 5),), writing=CheckpointTimes.blocking(30.0, 0.0))
    best_s = best_interval(model) * model.step_s
    assert best_s == pytest.approx(daly_s(30.0, 5 * HOUR), rel=0.01)
    assert best_s == pytest.approx(young_s(30.0, 5 * HOUR), rel=0.05)
    assert daly_s(10.0, 4.0) == 4.0


def test_a_published_interval_of_highest_availability() -> None:
    """24 steps of 15 s: checkpoints of 10 s, 6,000 s between interruptions, recovery 600 s (changlan.org, 2025)."""
    assert math.sqrt(2 * (6000 + 600) * 10) / 15 == pytest.approx(24.2, abs=0.05)  # its formula
    assert (available_s(10.0, 6000.0, 600.0) - 10) / 15 == pytest.approx(24.2, abs=0.05)


def test_a_cycle_that_no_job_survives_has_no_goodput() -> None:
    model = job((kind("gpu", 0.001),))
    assert goodput(model.with_interval(10**6)) == 0
    assert goodput(dataclasses.replace(model, restart_s=1e5)) == 0


def test_without_failures_the_interval_is_a_day() -> None:
    model = dataclasses.replace(job((GPU,)), interruptions=())
    assert best_interval(model) == best_interval(model, lambda tried: mean_goodput(tried, 0)) == 43_200
    assert goodput(model) == pytest.approx(300 * 2 / (300 * 2 + 30))
