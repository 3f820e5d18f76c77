"""A job of days, played: from a scenario and its steps to what the job's folder holds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from reports.job.folder import JobRun
from scenarios.config.scenario import Job, Scenario
from sim.job.model import JobModel
from sim.job.sample import best_played_interval, sample
from twinstep.job import outcome
from twinstep.job.changes import changes
from twinstep.job.checkpoint import writing_of
from twinstep.job.model_of import JobSteps, model_of

_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the cluster, in the curve of goodput over its size

Tell = Callable[[str, int, int], None]


def play_job(scenario: Scenario, job: Job, steps: JobSteps, tell: Tell) -> JobRun:
    """Play a job; `tell` is called with what is done, how many of it have been done, and of how many.

    Raises:
        ScenarioError: the scenario lacks what its job needs.
    """
    writing = writing_of(scenario, job)
    model, seed = model_of(scenario, job, steps, writing), scenario.run.seed
    chosen = "given"
    if job.checkpoint.interval_ns is None and job.checkpoint.interval_steps is None:
        tell("trying checkpoint intervals", 0, 1)
        model, chosen = model.with_interval(best_played_interval(model, seed)), "best"
    workers = len(os.sched_getaffinity(0))
    played = sample(model, job.draws, seed, workers=workers, tell=lambda done: tell("playing jobs", done, job.draws))
    draws = outcome.draws_frame(model, played)
    hosts = sorted({max(round(scenario.cluster.hosts * share), 1) for share in _SIZES})
    models = {count: model_of(scenario, job, steps, writing, count) for count in hosts}
    tell("trying other numbers of hosts", 0, 1)
    found = outcome.summary(model, draws, steps.samples)
    return JobRun(
        head={
            **_about(scenario, job, steps, model, chosen),
            **found,
            **outcome.costs(scenario.cluster, job, found["time_to_train_s"], found["samples"]),
        },
        draws=draws,
        phases=outcome.typical(model, draws, seed),
        intervals=outcome.intervals(model, seed),
        sizes=outcome.sizes(models, seed),
        changes=changes(model, job, seed),
    )


def _about(scenario: Scenario, job: Job, steps: JobSteps, model: JobModel, chosen: str) -> dict[str, Any]:
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
            "interval": chosen,
            "rules_s": outcome.rules(model),
            "blocks_s": sum(writing.blocks_s) / len(writing.blocks_s),
            "background_s": sum(writing.background_s) / len(writing.background_s),
            "restore_s": max(writing.restore_s),
        },
        "recovery": {"restart_s": model.restart_s, "replacement_s": model.replacement_s},
        "failure_rates": {
            "source": failures.source,
            "date": failures.date,
            "profile": failures.profile,
            "between_s": 1 / model.failures_per_s if model.failures_per_s else None,
            "per_day": {one.name: one.per_s * 86_400 for one in model.interruptions},
        },
        "job": dataclasses.asdict(job),
    }
