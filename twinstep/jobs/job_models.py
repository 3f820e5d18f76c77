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

    def __init__(self, scenario: Scenario, job: TrainingJob, steps: JobSteps, speed: float = 1.0) -> None:
        self._scenario, self._job, self._steps, self._checkpoints = scenario, job, steps, steps.checkpoints
        self._speed = speed

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
        """Return a model with the times of these checkpoints at its interval."""
        hosts = model.hosts if model.hosts != self._scenario.cluster.hosts else None
        times = replace(self._checkpoints, hosts=hosts).writing(model.interval_steps)
        return replace(model, writing=times.quicker(self._speed))

    def asynchronous(self) -> JobModels | None:
        """Return the models of the job with asynchronous checkpoints; None where these take unknown time or space."""
        given = replace(self._job.checkpoint, kind="async")
        steps = replace(self._steps, checkpoints=replace(self._checkpoints, given=given))
        beside = JobModels(self._scenario, replace(self._job, checkpoint=given), steps)
        try:
            beside.timed(self.model())
        except ScenarioError:
            return None
        return beside

    def with_speed(self, speed: float) -> JobModels:
        """Return the models of the job whose checkpoints are written and loaded `speed` times as fast."""
        return JobModels(self._scenario, self._job, self._steps, speed)

    def best(self, model: JobModel, value: Callable[[JobModel], float] = goodput) -> JobModel:
        """Return the model with the interval of the highest `value`, by default the goodput of the closed form."""
        steps = best_interval(model, lambda tried: value(self.timed(tried)))
        return self.timed(model.with_interval(steps))
