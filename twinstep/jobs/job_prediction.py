"""A job of days, played: from a scenario and its steps to what the job's folder holds, or to a study's measures."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from reports.job.folder import JobRun
from reports.run import Run
from reports.sections.job.report import printed_job
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from sim.job.model import JobModel
from sim.job.play import EndlessJobError, Played
from sim.job.sample import mean_goodput, sample
from twinstep.jobs import outcome
from twinstep.jobs.changes import changes
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.job_steps import given_steps, predicted_steps, steps_of
from twinstep.jobs.model_of import DAY_S, JobSteps, gives_interval
from twinstep.jobs.options import with_goal

_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the cluster, in the curve of goodput over its size
_DRAWS = 200  # jobs that a study plays at most for each point
_MOST_INTERRUPTIONS = 10**9  # of all draws together; they take hours

Tell = Callable[[str, int, int], None]


def job_of_scenario(load: Callable[[Mapping[str, object]], Scenario], **goal: float | None) -> JobRun:
    """Predict a scenario's step, unless [job] gives it, and play its job; all is in memory only.

    Args:
        load: returns the scenario with further values.
        goal: `samples`, `days` or `budget_usd` in place of the goal in [job]; None: not given.

    Raises:
        ScenarioError: more than one goal, or none, or the scenario lacks what its job needs.
        ProgramError: ranks whose calls do not fit together.
    """
    scenario = load({})
    job = with_goal(scenario, goal, load)
    if job is None:
        raise ScenarioError(f"{scenario.path}: expected samples, days or budget_usd, here or in [job]")
    return printed_job(play_job(scenario, job, steps_of(scenario, job)))


def job_measures(scenario: Scenario, job: TrainingJob, program: Program, run: Run) -> dict[str, float]:
    """Return a job's goodput, days, and costs per 10^9 samples with failures in, for a row of a study.

    Raises:
        ScenarioError: the scenario lacks what its job needs, or the job nearly never saves any steps.
    """
    given = job.step_ns is not None
    steps = given_steps(scenario, job) if given else predicted_steps(scenario, program, job, run)
    model = JobModels(scenario, job, steps).on()
    draws = outcome.draws_frame(model, _played(scenario, model, min(job.draws, _DRAWS)))
    found = outcome.summary(model, draws, steps.samples)
    costs = outcome.costs(scenario.cluster, job, found["time_to_train_s"], found["samples"])
    return {
        "goodput": found["goodput"],
        "days": found["time_to_train_s"] / DAY_S,
        "usd_per_1e9_samples": costs["usd_per_1e9"],
        "kwh_per_1e9_samples": costs["kwh"] / found["samples"] * 1e9 if found["samples"] else math.nan,
    }


def play_job(scenario: Scenario, job: TrainingJob, steps: JobSteps, tell: Tell = lambda *_: None) -> JobRun:
    """Play a job; `tell` is called with what is done, how many of it have been done, and of how many.

    Raises:
        ScenarioError: the scenario lacks what its job needs, or the job nearly never saves any steps.
    """
    jobs, seed = JobModels(scenario, job, steps), scenario.run.seed
    model = jobs.model()
    if not gives_interval(job):
        tell("trying checkpoint intervals", 0, 1)
        model = jobs.best(model, lambda tried: mean_goodput(tried, seed))
    workers = len(os.sched_getaffinity(0))
    played = _played(scenario, model, job.draws, workers, lambda done: tell("simulating jobs", done, job.draws))
    draws = outcome.draws_frame(model, played)
    tell("trying other numbers of hosts", 0, 1)
    hosts = sorted({max(round(scenario.cluster.hosts * share), 1) for share in _SIZES})
    models = {}
    for count in hosts:
        with suppress(ScenarioError):  # such as checkpoints that fewer hosts' memory does not hold
            models[count] = model if count == scenario.cluster.hosts else jobs.on(count)
    found = outcome.summary(model, draws, steps.samples)
    costs = outcome.costs(scenario.cluster, job, found["time_to_train_s"], found["samples"])
    return JobRun(
        head={**_about(scenario, job, steps, model, jobs), **found, **costs},
        draws=draws,
        phases=outcome.typical(model, draws, seed),
        intervals=outcome.intervals(model, seed, jobs.timed),
        sizes=outcome.sizes(models, seed),
        changes=changes(model, job, jobs, seed),
    )


def _played(
    scenario: Scenario, model: JobModel, draws: int, workers: int = 1, tell: Callable[[int], None] = lambda _: None
) -> list[Played]:
    seconds = model.horizon_s if math.isinf(model.steps) else model.steps * model.step_s
    interruptions = draws * seconds * model.failures_per_s
    if math.isinf(seconds) or interruptions > _MOST_INTERRUPTIONS:
        raise ScenarioError(
            f"{scenario.path}: job: expected a shorter job or fewer draws (--draws), as {draws:,} jobs of"
            f" {seconds / DAY_S:.3g} days would have {interruptions:.3g} interruptions"
        )
    try:
        return sample(model, draws, scenario.run.seed, workers=workers, tell=tell)
    except EndlessJobError as error:
        raise ScenarioError(f"{scenario.path}: {error}") from None


def _about(scenario: Scenario, job: TrainingJob, steps: JobSteps, model: JobModel, jobs: JobModels) -> dict[str, Any]:
    """Return what the job is: goal, cluster, step, checkpoints and failures."""
    goals = ("samples", "days", "budget_usd")
    cluster, failures, writing = scenario.cluster, job.failures, model.writing
    return {
        "name": scenario.name,
        "scenario": str(scenario.path),
        "goal": next({"kind": goal, "value": getattr(job, goal)} for goal in goals if getattr(job, goal) is not None),
        "hosts": cluster.hosts,
        "spare_hosts": job.spare_hosts,
        "gpus": cluster.world_size,
        "gpu": cluster.host.gpu.name,
        "step_s": model.step_s,
        "step_source": steps.source,
        "rests_on": scenario.rests_on,
        "checkpoint": {
            "kind": job.checkpoint.kind,
            "to": job.checkpoint.to,
            "interval_steps": model.interval_steps,
            "interval_s": model.interval_steps * model.fed_step_s,
            "interval": "given" if gives_interval(job) else "best",
            "rules_s": outcome.rules(model, jobs.best(model).interval_steps),
            "blocks_s": sum(writing.blocks_s) / len(writing.blocks_s),
            "background_s": sum(writing.background_s) / len(writing.background_s),
            "restore_s": max(writing.restore_s),
            "bytes": jobs.checkpoint_bytes,
        },
        "recovery": {"restart_s": model.restart_s, "replacement_s": model.replacement_s},
        "failure_rates": {
            "source": failures.source,
            "date": failures.date,
            "profile": failures.profile,
            "between_s": 1 / model.failures_per_s if model.failures_per_s else None,
            "per_day": {one.name: one.per_s * DAY_S for one in model.interruptions},
        },
        "job": dataclasses.asdict(job),
    }
