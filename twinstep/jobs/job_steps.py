"""The steps of a job: given in the scenario, or predicted, on all hosts and on fewer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scenarios.config.scenario import Job, Scenario
from scenarios.seam.errors import ScenarioError
from sim.job.model import Step
from twinstep.jobs.model_of import JobSteps

if TYPE_CHECKING:
    from reports.run import Run
    from scenarios.seam.program import Program


def given_steps(scenario: Scenario, job: Job) -> JobSteps:
    """Return the steps that [job] gives; on fewer hosts a step takes the same time with as many samples a rank."""
    assert job.step_ns is not None
    known = scenario.own_keys.get("run", {})
    samples = float(scenario.run.batch_size * scenario.cluster.world_size) if "batch_size" in known else math.nan
    return JobSteps(samples=samples, by_hosts=_alike(scenario, job, job.step_ns / 1e9), source="given")


def predicted_steps(scenario: Scenario, program: Program, job: Job, run: Run) -> JobSteps:
    """Return the steps of a predicted run.

    Raises:
        ScenarioError: the run has no step.
    """
    step_s = run.step_ms / 1e3
    if not step_s > 0:
        raise ScenarioError(f"{scenario.path}: no step was predicted; expected one, or job.step")
    return JobSteps(samples=run.samples_per_s * step_s, by_hosts=_alike(scenario, job, step_s), source="predicted")


def _alike(scenario: Scenario, job: Job, step_s: float) -> dict[int, Step]:
    hosts = scenario.cluster.hosts
    least = hosts
    if job.without_spare == "shrink":
        least = job.fewest_hosts or max(hosts // 2, 1)
    return {count: Step(step_s=step_s, share=count / hosts) for count in range(least, hosts + 1)}
