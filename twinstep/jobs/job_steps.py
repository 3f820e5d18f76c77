"""The steps of a job: given in the scenario, or predicted, on all hosts and on fewer."""

from __future__ import annotations

import math

from reports.analysis.step_breakdown import mean_step_ns, timed_steps
from reports.run import Run
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from sim.job.model import JobStep
from sim.run import simulate
from twinstep.jobs.checkpoint import JobCheckpoints
from twinstep.jobs.checkpoint_bytes import samples_of_step
from twinstep.jobs.model_of import JobSteps
from twinstep.jobs.slow_step import slow_factors, steps_on
from twinstep.jobs.step_while_writing import step_while_writing
from twinstep.plan_choice import build_planned


def steps_of(scenario: Scenario, job: TrainingJob) -> JobSteps:
    """Return the job's steps: those that [job] gives, or predicted ones.

    Raises:
        ScenarioError: the scenario does not fit its cluster, or has no step.
        ProgramError: ranks whose calls do not fit together.
    """
    if job.step_ns is not None:
        return given_steps(scenario, job)
    planned, program = build_planned(scenario)
    return predicted_steps(planned, program, job, Run.of(simulate(planned, program)))


def given_steps(scenario: Scenario, job: TrainingJob) -> JobSteps:
    """Return the steps that [job] gives; on fewer hosts they take the same time, with as many samples a rank.

    With a slow part they take as much longer as that part is slower: every rank waits for it.
    """
    assert job.step_ns is not None
    step_s, hosts = job.step_ns / 1e9, scenario.cluster.hosts
    by_hosts = {count: JobStep(step_s=step_s, share=count / hosts) for count in _counts(scenario, job)}
    slow = {kind.name: 1 / kind.slow_speed for kind in job.failures.kinds if kind.slow_part and kind.slow_for_ns}
    known = scenario.own_keys.get("run", {})
    samples = float(samples_of_step(scenario)) if "batch_size" in known else math.nan
    checkpoints = JobCheckpoints(scenario=scenario, given=job.checkpoint)
    return JobSteps(samples=samples, by_hosts=by_hosts, source="given", slow=slow, checkpoints=checkpoints)


def predicted_steps(scenario: Scenario, program: Program, job: TrainingJob, run: Run) -> JobSteps:
    """Return the steps of a predicted run.

    Raises:
        ScenarioError: the run has no step.
    """
    step_s = mean_step_ns(run) / 1e9
    if not step_s > 0:
        raise ScenarioError(f"{scenario.path}: no step was predicted; expected one, or job.step")
    hosts, counts = scenario.cluster.hosts, _counts(scenario, job)
    by_hosts = steps_on(scenario, counts, step_s) if len(counts) > 1 else {hosts: step_s}
    timed = timed_steps(run)
    writing_s, checkpoints = step_while_writing(
        JobCheckpoints(scenario=scenario, given=job.checkpoint, program=program), step_s
    )
    slowed = writing_s / step_s
    return JobSteps(
        samples=float((timed["samples_per_s"] * timed["step_ns"]).mean()) / 1e9,
        by_hosts={
            count: JobStep(step_s=each_s, share=count / hosts, writing_s=slowed * each_s)
            for count, each_s in by_hosts.items()
        },
        checkpoints=checkpoints,
        source="predicted",
        slow=slow_factors(scenario, program, job.failures.kinds, step_s),
    )


def _counts(scenario: Scenario, job: TrainingJob) -> range:
    """Return the numbers of hosts on which the job may run."""
    hosts = scenario.cluster.hosts
    least = hosts if job.without_spare == "wait" else job.fewest_hosts or max(hosts // 2, 1)
    return range(least, hosts + 1)
