"""Predicts a job with given kills: what `sim.job` plays when each happens at its own moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from real.job.kills import Kill
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from scenarios.seam.memory import OPTIMIZER, TABLE_STATE, TABLES, WEIGHTS
from scenarios.seam.program import Program
from sim.job.model import CheckpointTimes, Interruption, JobModel
from sim.job.play import Played, play
from twinstep.jobs.model_of import JobSteps, model_of

_SHARDED, _COPIED = (TABLES, TABLE_STATE), (WEIGHTS, OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedJob:
    """A job's model with its kills in place of random failures, and when they happen."""

    model: JobModel
    at: Sequence[tuple[float, str]]

    def play(self) -> Played:
        """Play the job."""
        return play(self.model, 0, keep=True, at=self.at)


def predict(
    scenario: Scenario, job: TrainingJob, steps: JobSteps, size_bytes: int, kills: Sequence[Kill]
) -> PredictedJob:
    """Return the prediction of a job whose checkpoints have `size_bytes` on all ranks."""
    goal = dataclasses.replace(job, days=1.0, samples=None, budget_usd=None)
    whole = model_of(scenario, goal, steps, writing_of(scenario, job, size_bytes))
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


def writing_of(scenario: Scenario, job: TrainingJob, size_bytes: int) -> CheckpointTimes:
    """Return what a checkpoint of so many bytes takes on real ranks, which all write their own part."""
    given = job.checkpoint
    hosts = scenario.cluster.hosts
    rate = min(given.store_rate, given.host_rate * hosts if given.host_rate else given.store_rate)
    overhead_s = given.overhead_ns / 1e9
    write_s = overhead_s + size_bytes / rate if given.write_ns is None else given.write_ns / 1e9
    if given.restore_ns is not None:
        return CheckpointTimes.blocking(write_s, given.restore_ns / 1e9)
    if given.restore_rate is None:
        return CheckpointTimes.blocking(write_s, write_s)
    return CheckpointTimes.blocking(write_s, overhead_s + size_bytes / given.restore_rate)


def shares(scenario: Scenario, job: TrainingJob, program: Program) -> tuple[int, ...]:
    """Return the bytes that each rank saves: its equal part of `job.checkpoint.size`, or what its program holds.

    Raises:
        ScenarioError: neither is known.
    """
    ranks = range(scenario.cluster.world_size)
    given = job.checkpoint.size_bytes
    if given is not None:
        whole = [max(given // len(ranks), 1)] * len(ranks)
    else:
        # Copied parameters are saved once.
        whole = [
            sum(
                row.size_bytes
                for row in program.memory
                if row.rank == rank and (row.kind in _SHARDED or (row.kind in _COPIED and rank == 0))
            )
            for rank in ranks
        ]
    if not sum(whole):
        raise ScenarioError(
            f"{scenario.path}: job.checkpoint.size: missing; expected a size such as '100 MB', as this program's"
            " parameters are not known"
        )
    if job.checkpoint.shards == "rank0":
        whole = [sum(whole), *([1] * (len(ranks) - 1))]
    return tuple(max(size, 1) for size in whole)
