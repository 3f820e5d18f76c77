"""The models of one job: on its hosts and on others, with any checkpoint interval, and with the best one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from sim.job.closed_form import best_interval, goodput
from sim.job.model import JobModel
from twinstep.jobs.model_of import JobSteps, gives_interval, model_of


class JobModels:
    """The models of a job whose steps are known; all methods raise ScenarioError if a checkpoint's times are not."""

    def __init__(self, scenario: Scenario, job: TrainingJob, steps: JobSteps) -> None:
        self._scenario, self._job, self._steps, self._checkpoints = scenario, job, steps, steps.checkpoints

    @property
    def checkpoint_bytes(self) -> float:
        """The bytes of a whole checkpoint; nan where only its time is known."""
        try:
            return float(self._checkpoints.size().total)
        except ScenarioError:
            return math.nan

    def on(self, hosts: int = 0) -> JobModel:
        """Return `model(hosts)` with the interval that [job.checkpoint] states, or the best one by closed form."""
        model = self.model(hosts)
        return model if gives_interval(self._job) else self.best(model)

    def model(self, hosts: int = 0) -> JobModel:
        """Return the job on its own hosts, or on `hosts`, with the interval that [job.checkpoint] states or 1 step."""
        checkpoints = replace(self._checkpoints, hosts=hosts or None)
        return self.timed(model_of(self._scenario, self._job, self._steps, checkpoints.writing(1), hosts))

    def timed(self, model: JobModel) -> JobModel:
        """Return a model with the times of incremental checkpoints at its interval; others do not depend on that."""
        if self._job.checkpoint.full_every == 1:
            return model
        hosts = model.hosts if model.hosts != self._scenario.cluster.hosts else None
        return replace(model, writing=replace(self._checkpoints, hosts=hosts).writing(model.interval_steps))

    def asynchronous(self, model: JobModel) -> JobModel | None:
        """Return a model with asynchronous checkpoints; None where their copies take unknown time or space."""
        beside = replace(self._checkpoints, given=replace(self._job.checkpoint, kind="async"))
        try:
            return replace(model, writing=beside.writing(model.interval_steps))
        except ScenarioError:
            return None

    def best(self, model: JobModel, value: Callable[[JobModel], float] = goodput) -> JobModel:
        """Return the model with the interval of the highest `value`, by default the goodput of the closed form."""
        steps = best_interval(model, lambda tried: value(self.timed(tried)))
        return self.timed(model.with_interval(steps))
