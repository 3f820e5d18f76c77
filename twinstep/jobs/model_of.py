"""Build the job model that `sim.job` simulates from a scenario's [job], its cluster and the time of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.config.units import format_ns
from scenarios.seam.errors import ScenarioError
from sim.job.model import CheckpointTimes, Interruption, JobModel, JobStep
from twinstep.jobs.checkpoint import JobCheckpoints

HOUR_S, DAY_S = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSteps:
    """Facts about a job's steps: `samples` of one step on all hosts (nan: unknown), and steps by hosts.

    `slow` is how much longer a step takes with a slow part of one host, by kind of interruption; `checkpoints` are
    those written between steps, or beside them.
    """

    samples: float
    by_hosts: Mapping[int, JobStep]
    source: str  # "given" or "predicted"
    checkpoints: JobCheckpoints
    slow: Mapping[str, float] = field(default_factory=dict)


def model_of(
    scenario: Scenario, job: TrainingJob, steps: JobSteps, writing: CheckpointTimes, hosts: int = 0
) -> JobModel:
    """Return the model of a job on the scenario's hosts, or on `hosts` of them with the step of all.

    Its interval is that of [job.checkpoint], else one step, in whose place the caller puts the best one.

    Raises:
        ScenarioError: the goal needs samples of a step, or a price, that the scenario lacks; the interval is shorter
            than a step.
    """
    cluster = scenario.cluster
    count = hosts or cluster.hosts
    gpus = count * cluster.host.gpus
    model = JobModel(
        **_end(scenario, job, steps.samples * count / cluster.hosts, gpus),
        by_hosts=_by_hosts(steps, cluster.hosts, count),
        interval_steps=1,
        writing=writing,
        interruptions=tuple(_interruptions(job, steps, count, gpus)),
        hosts=count,
        spares=math.ceil(job.spare_hosts * count / cluster.hosts),
        gpus_per_host=cluster.host.gpus,
        shrinks=job.without_spare == "shrink",
        input_stall=job.input_stall,
        evaluation=job.evaluation_ns / job.evaluation_every_ns,
        restart_s=job.recovery.restart_ns(gpus) / 1e9,
        replacement_s=0.0 if job.standby == "hot" else job.recovery.replacement_ns / 1e9,
    )
    return model.with_interval(_given_interval(scenario, job, model))


def _by_hosts(steps: JobSteps, own: int, count: int) -> Mapping[int, JobStep]:
    """Return steps on `count` hosts and on fewer of them; where these are not the job's `own`, with the step of all."""
    if count == own:
        return steps.by_hosts
    least, whole = max(min(steps.by_hosts) * count // own, 1), steps.by_hosts[own]
    return {hosts: replace(whole, share=hosts / count) for hosts in range(least, count + 1)}


def _end(scenario: Scenario, job: TrainingJob, samples: float, gpus: int) -> dict[str, float]:
    """Return the end of a job of `gpus` GPUs that train on so many samples in a step."""
    if job.days is not None:
        return {"horizon_s": job.days * DAY_S}
    if job.samples is not None:
        if math.isnan(samples):
            raise ScenarioError(
                f"{scenario.path}: samples of a step are not known; expected days or budget_usd as the job's goal,"
                " or run.batch_size"
            )
        return {"steps": math.ceil(job.samples / samples)}
    price = scenario.cluster.cost.usd_per_gpu_hour if scenario.cluster.cost else None
    if not price or job.budget_usd is None:
        raise ScenarioError(f"{scenario.path}: a budget needs a price; expected cluster.cost.usd_per_gpu_hour")
    paid = gpus + job.spare_hosts * scenario.cluster.host.gpus
    return {"horizon_s": job.budget_usd / (price * paid) * HOUR_S}


def _interruptions(job: TrainingJob, steps: JobSteps, hosts: int, gpus: int) -> list[Interruption]:
    found = []
    for kind in job.failures.kinds:
        per_s = kind.per_s(hosts, gpus) * job.failures.scale
        if not per_s:
            continue
        detection_ns = job.recovery.detection_ns if kind.detection_ns is None else kind.detection_ns
        slow = steps.slow.get(kind.name, 1.0)
        one = Interruption(
            name=kind.name,
            per_s=per_s,
            with_hosts=1 - kind.per_day / DAY_S * job.failures.scale / per_s,
            detection_s=0.0 if kind.planned else detection_ns / 1e9,
            loses_host=kind.loses_host,
            repair_s=kind.repair_ns / 1e9,
            planned=kind.planned,
            slow_for_s=kind.slow_for_ns / 1e9 if slow > 1 else 0.0,
            slow_factor=slow,
        )
        found.append(one)
    return found


def gives_interval(job: TrainingJob) -> bool:
    """Return whether [job.checkpoint] states the interval, which is otherwise the best one."""
    return job.checkpoint.interval_ns is not None or job.checkpoint.interval_steps is not None


def _given_interval(scenario: Scenario, job: TrainingJob, model: JobModel) -> int:
    """Return the steps between two checkpoints that [job.checkpoint] states; 1 where it leaves them open."""
    given, step_ns = job.checkpoint, model.fed_step_s * 1e9
    if given.interval_ns is None:
        return given.interval_steps or 1
    if given.interval_ns < math.floor(step_ns):
        raise ScenarioError(
            f"{scenario.path}: job.checkpoint.interval = '{format_ns(given.interval_ns)}': expected at least a step,"
            f" which takes {format_ns(step_ns)}"
        )
    return max(round(given.interval_ns / step_ns), 1)
