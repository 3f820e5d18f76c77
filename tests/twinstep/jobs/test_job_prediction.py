"""A job that cannot be simulated is refused in a sentence; one that can has the figures that its steps give."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.job_prediction import job_measures, job_of_scenario
from twinstep.jobs.job_steps import given_steps

HOPELESS = """
run.batch_size = 4
cluster = {profile = "dgx_h100", hosts = 16}
[job]
samples = 1e7
step = "4.6 s"
checkpoint = {write = "30 s", interval = "2 h"}
failures = {profile = "rsc1_a100", scale = 5000}
"""
CALM: Any = {"job.failures.scale": 0.0}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a job with a failure in nearly each step."""
    path = tmp_path / "job.toml"
    path.write_text(HOPELESS)
    return path


def job_of(scenario: Scenario) -> TrainingJob:
    assert scenario.job is not None
    return scenario.job


@pytest.mark.parametrize(
    ("goal", "why"),
    [
        ({}, "job.failures: expected rarer failures or more frequent checkpoints, as after 10,000 interruptions"),
        ({"samples": 1e30}, "job: expected a shorter job or fewer draws (--draws), as 1,000 jobs of 1.04e+23 days"),
        ({"days": 1e305}, "job: expected a shorter job or fewer draws (--draws), as 1,000 jobs of inf days"),
    ],
)
def test_a_job_without_an_end_is_refused(file: Path, goal: dict[str, float], why: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        job_of_scenario(partial(load, file), **goal)
    assert str(refused.value).startswith(f"{file}: {why}")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"job.checkpoint.restore_rate": "1 GB/s"}, "no restore_rate beside write, which says how long loading takes"),
        ({"job.checkpoint.overhead": "1 s"}, "no overhead beside write, which includes it"),
    ],
)
def test_rates_have_no_effect_beside_times(file: Path, values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        load(file, values)


def test_a_point_that_saves_nothing_has_no_price_of_samples(file: Path) -> None:
    scenario = load(file, {"job.draws": 1, "job.samples": 1e3})
    unused: Any = None
    job = TrainingJob(
        days=1.0,
        step_ns=job_of(scenario).step_ns,
        draws=1,
        failures=job_of(scenario).failures,
        checkpoint=job_of(scenario).checkpoint,
    )
    found = job_measures(scenario, job, unused, unused)
    assert found["goodput"] == 0
    assert math.isnan(found["kwh_per_1e9_samples"])


def test_other_numbers_of_hosts_are_left_out_where_checkpoints_do_not_fit(file: Path) -> None:
    async_ = 'checkpoint = {size = "12 TB", kind = "async", interval = "2 h"}'
    file.write_text(HOPELESS.replace('checkpoint = {write = "30 s", interval = "2 h"}', async_))
    found = job_of_scenario(lambda values: load(file, {**CALM, **values}))
    assert list(found.sizes["hosts"]) == [8, 16, 32, 64]
    assert found.sizes["goodput"].between(0.9, 1).all()


def test_a_job_shrinks_in_proportion_on_other_numbers_of_hosts(file: Path) -> None:
    scenario = load(file, {"job.without_spare": "shrink", "job.fewest_hosts": 12})
    models = JobModels(scenario, job_of(scenario), given_steps(scenario, job_of(scenario)))
    assert models.model().least_hosts == 12
    model = models.model(32)
    assert model.least_hosts == 24
    assert model.by_hosts[24].share == 0.75


def test_an_interval_in_seconds_includes_waiting_for_input(file: Path) -> None:
    scenario = load(file, {"job.input_stall": 0.5, "job.checkpoint.interval": "92 s"})
    model = JobModels(scenario, job_of(scenario), given_steps(scenario, job_of(scenario))).model()
    assert model.interval_steps == 10


def test_a_given_step_has_the_samples_of_all_micro_batches() -> None:
    values: Any = {"job.step": "1 s", "job.days": 1, "pipeline.accumulation": 3}
    scenario = load("criteo_dlrm_8x8", values)
    samples = given_steps(scenario, job_of(scenario)).samples
    assert samples == 3 * scenario.run.batch_size * scenario.cluster.world_size
