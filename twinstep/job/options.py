"""The options of a job of days, and the job that they and the scenario's [job] describe."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.config.scenario import Job, Scenario

_GOALS = {"samples": "samples", "days": "days", "budget_usd": "budget"}  # key of [job], option


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the goals of a job, each instead of the goal in the scenario's [job]."""
    group = parser.add_argument_group(
        "a job of days, with checkpoints and failures (twinstep docs jobs)", "default: the goal in the scenario's [job]"
    )
    goals = group.add_mutually_exclusive_group()
    goals.add_argument("--samples", type=float, metavar="N", help="predict the training on N samples, such as 1e12")
    goals.add_argument("--days", type=float, metavar="N", help="predict what is done in N days")
    goals.add_argument("--budget", type=float, metavar="USD", help="predict what is done for so many dollars")
    group.add_argument("--step-only", action="store_true", help="predict only a step, even if the scenario has a goal")


def job_asked(options: argparse.Namespace, scenario: Scenario) -> Job | None:
    """Return the job to predict; None where only steps are asked for.

    Raises:
        ScenarioError: an option that is no positive number, or has no effect on a job.
    """
    from scenarios.config.scenario import Job
    from scenarios.seam.errors import ScenarioError

    given = {key: getattr(options, name) for key, name in _GOALS.items() if getattr(options, name) is not None}
    for key, value in given.items():
        if not 0 < value < math.inf:
            raise ScenarioError(f"--{_GOALS[key]} = {value:g}: expected a number above 0")
    job = scenario.job or Job()
    if options.step_only and given:
        raise ScenarioError(f"--step-only: expected without --{_GOALS[next(iter(given))]}")
    if options.step_only or not (given or any(getattr(job, key) for key in _GOALS)):
        return None
    for name in ("what_if", "record", "kernels_csv"):
        if getattr(options, name):
            word = name.replace("_", "-")
            raise ScenarioError(f"--{word}: expected without a job of days; --step-only leaves the job out")
    return dataclasses.replace(job, **{key: given.get(key) for key in _GOALS}) if given else job
