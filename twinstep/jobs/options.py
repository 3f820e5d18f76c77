"""The options of a job of days, and the job that they and the scenario's [job] describe."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.config.scenario import Scenario, TrainingJob

_GOALS = {"samples": "samples", "days": "days", "budget_usd": "budget"}  # key of [job], option


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the goals of a job, each instead of the goal in the scenario's [job]."""
    group = parser.add_argument_group(
        "a job of days, with checkpoints and failures (twinstep docs jobs)", "default: the goal in the scenario's [job]"
    )
    goals = group.add_mutually_exclusive_group()
    goals.add_argument("--samples", type=float, metavar="N", help="predict the training on N samples, such as 1e12")
    goals.add_argument("--days", type=float, metavar="N", help="predict the training of N days")
    goals.add_argument("--budget", type=float, metavar="USD", help="predict the training for this many dollars")
    group.add_argument("--step-only", action="store_true", help="predict only a step, even if the scenario has a goal")


def job_asked(
    options: argparse.Namespace, scenario: Scenario, load: Callable[[Mapping[str, object]], Scenario]
) -> TrainingJob | None:
    """Return the job to predict; None where only steps are asked for.

    `load` returns the scenario with further values: one without [job] has the failures of a known cluster.

    Raises:
        ScenarioError: an option that is no positive number, or has no effect on a job.
    """
    from scenarios.seam.errors import ScenarioError

    given = {key: getattr(options, name) for key, name in _GOALS.items()}
    if options.step_only:
        for key in [key for key, value in given.items() if value is not None]:
            raise ScenarioError(f"--step-only: expected without --{_GOALS[key]}")
        return None
    job = with_goal(scenario, given, load, prefix="--")
    if job is None:
        return None
    for name in ("what_if", "record", "kernels_csv"):
        if getattr(options, name):
            word = name.replace("_", "-")
            raise ScenarioError(f"--{word}: expected without a job of days; --step-only leaves the job out")
    return job


def with_goal(
    scenario: Scenario,
    given: Mapping[str, float | None],
    load: Callable[[Mapping[str, object]], Scenario],
    prefix: str = "",
) -> TrainingJob | None:
    """Return the scenario's job with the given goal in place of its own; None where there is neither.

    `load` is as in `job_asked`; `prefix` is what stands before a goal's name in sentences.

    Raises:
        ScenarioError: a goal that is no positive number, or more than one.
    """
    from scenarios.config.scenario import TrainingJob
    from scenarios.seam.errors import ScenarioError

    goals = {key: value for key, value in given.items() if value is not None}
    names = [f"{prefix}{_GOALS[key] if prefix else key}" for key in goals]
    for name, value in zip(names, goals.values(), strict=True):
        if not 0 < value < math.inf:
            raise ScenarioError(f"{name} = {value:g}: expected a number above 0")
    if len(goals) > 1:
        raise ScenarioError(f"{' and '.join(names)}: expected one of them")
    if goals and scenario.job is None:  # with [job] it has the failures of a known cluster
        scenario = load({"job.draws": TrainingJob().draws})
    job = scenario.job or TrainingJob()
    if goals:
        samples, days, budget_usd = (goals.get(key) for key in _GOALS)
        return dataclasses.replace(job, samples=samples, days=days, budget_usd=budget_usd)
    return own_job(scenario)


def own_job(scenario: Scenario) -> TrainingJob | None:
    """Return the job of a scenario whose [job] has a goal; None without one."""
    job = scenario.job
    return job if job is not None and any(getattr(job, key) for key in _GOALS) else None
