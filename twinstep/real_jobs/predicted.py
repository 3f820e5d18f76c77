"""Predicts a job with given kills: what `sim.job` plays when each happens at its own moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from real.job.kills import Kill
from scenarios.config.scenario import Scenario, TrainingJob
from sim.job.model import Interruption, JobModel
from sim.job.play import Played, play
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.model_of import JobSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedJob:
    """A job's model with its kills in place of random failures, and when they happen."""

    model: JobModel
    at: Sequence[tuple[float, str]]

    def play(self) -> Played:
        """Play the job."""
        return play(self.model, 0, keep=True, at=self.at)


def predict(scenario: Scenario, job: TrainingJob, steps: JobSteps, kills: Sequence[Kill]) -> PredictedJob:
    """Return the prediction of a job with these kills.

    Raises:
        ScenarioError: what a checkpoint takes is not known.
    """
    goal = dataclasses.replace(job, days=1.0, samples=None, budget_usd=None)
    whole = JobModels(scenario, goal, steps).on()
    # A host that is killed here is replaced at once: the kills are all that its spares have to last for.
    model = dataclasses.replace(whole, interruptions=_kinds(job, kills), spares=len(kills), shrinks=False)
    at = [(kill.at_s, kill.name) for kill in kills if kill.at_s is not None]
    for kill in sorted((kill for kill in kills if kill.step is not None), key=lambda kill: kill.step or 0):
        at.append((_begin_s(model, kill.step or 0, at), kill.name))
    return PredictedJob(model=model.until(steps=scenario.run.steps), at=sorted(at))


def _begin_s(model: JobModel, step: int, at: Sequence[tuple[float, str]]) -> float:
    """Return when a step first begins, after these interruptions."""
    if not step:
        return 0.0
    done = play(model.until(steps=step), 0, at=at)
    # A job ends with a checkpoint; in the midst of a longer one there is none, unless its interval ends.
    return done.seconds - (model.writing.blocks_s[0] if step % model.interval_steps else 0.0)


def _kinds(job: TrainingJob, kills: Sequence[Kill]) -> tuple[Interruption, ...]:
    known = {kind.name: kind.detection_ns for kind in job.failures.kinds}
    found = {}
    for kill in kills:
        detection_ns = known.get(kill.name)
        detection_s = (job.recovery.detection_ns if detection_ns is None else detection_ns) / 1e9
        is_host = kill.what == "host"
        found[kill.name] = Interruption(name=kill.name, per_s=0.0, detection_s=detection_s, loses_host=is_host)
    return tuple(found.values())


def shares(scenario: Scenario, job: TrainingJob, steps: JobSteps) -> tuple[int, ...]:
    """Return the bytes that each rank saves: its part of `job.checkpoint.size`, or of what its program holds.

    Raises:
        ScenarioError: neither is known.
    """
    size = steps.checkpoints.size()
    if job.checkpoint.shards == "rank0":
        return round(size.total), *([1] * (scenario.cluster.world_size - 1))
    return tuple(max(round(one), 1) for one in size.written)
