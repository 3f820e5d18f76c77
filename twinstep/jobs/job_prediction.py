"""A job of days, played: from a scenario and its steps to what the job's folder holds, or to a study's measures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from reports.job.folder import JobRun
from reports.run import Run
from reports.sections.job.report import printed_job
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from sim.job.model import JobModel
from sim.job.sample import mean_goodput, sample
from sim.run import simulate
from twinstep.jobs import outcome
from twinstep.jobs.changes import changes
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.job_steps import given_steps, predicted_steps
from twinstep.jobs.model_of import DAY_S, JobSteps, gives_interval
from twinstep.jobs.options import with_goal
from twinstep.plan_choice import build_planned

_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the cluster, in the curve of goodput over its size
_DRAWS = 200  # jobs that a study plays at most for each point

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
    if job.step_ns is not None:
        return printed_job(play_job(scenario, job, given_steps(scenario, job)))
    planned, program = build_planned(scenario)
    steps = predicted_steps(planned, program, job, Run.of(simulate(planned, program)))
    return printed_job(play_job(planned, job, steps))


def job_measures(scenario: Scenario, job: TrainingJob, program: Program, run: Run) -> dict[str, float]:
    """Return a job's goodput, days, and costs per 10^9 samples with failures in, for a row of a study.

    Raises:
        ScenarioError: the scenario lacks what its job needs.
    """
    given = job.step_ns is not None
    steps = given_steps(scenario, job) if given else predicted_steps(scenario, program, job, run)
    jobs = JobModels(scenario, job, steps)
    model = jobs.model() if gives_interval(job) else jobs.best(jobs.model())
    draws = outcome.draws_frame(model, sample(model, min(job.draws, _DRAWS), scenario.run.seed))
    found = outcome.summary(model, draws, steps.samples)
    costs = outcome.costs(scenario.cluster, job, found["time_to_train_s"], found["samples"])
    return {
        "goodput": found["goodput"],
        "days": found["time_to_train_s"] / DAY_S,
        "usd_per_1e9_samples": costs["usd_per_1e9"],
        "kwh_per_1e9_samples": costs["kwh"] / found["samples"] * 1e9,
    }


def play_job(scenario: Scenario, job: TrainingJob, steps: JobSteps, tell: Tell = lambda *_: None) -> JobRun:
    """Play a job; `tell` is called with what is done, how many of it have been done, and of how many.

    Raises:
        ScenarioError: the scenario lacks what its job needs.
    """
    jobs, seed = JobModels(scenario, job, steps), scenario.run.seed
    model = jobs.model()
    if not gives_interval(job):
        tell("trying checkpoint intervals", 0, 1)
        model = jobs.best(model, lambda tried: mean_goodput(tried, seed))
    workers = len(os.sched_getaffinity(0))
    played = sample(model, job.draws, seed, workers=workers, tell=lambda done: tell("playing jobs", done, job.draws))
    draws = outcome.draws_frame(model, played)
    tell("trying other numbers of hosts", 0, 1)
    hosts = sorted({max(round(scenario.cluster.hosts * share), 1) for share in _SIZES})
    models = {count: jobs.model(count) for count in hosts}
    if not gives_interval(job):
        models = {count: jobs.best(one) for count, one in models.items()}
    found = outcome.summary(model, draws, steps.samples)
    costs = outcome.costs(scenario.cluster, job, found["time_to_train_s"], found["samples"])
    return JobRun(
        head={**_about(scenario, job, steps, model, jobs), **found, **costs},
        draws=draws,
        phases=outcome.typical(model, draws, seed),
        intervals=outcome.intervals(model, seed, jobs.timed),
        sizes=outcome.sizes(models, seed),
        changes=changes(model, job, seed),
    )


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
            "interval_s": model.interval_steps * model.step_s,
            "interval": "given" if gives_interval(job) else "best",
            "rules_s": outcome.rules(model),
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
