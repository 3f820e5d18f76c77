"""Runs a job on real ranks, predicts it with the same kills, and puts both side by side."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from real.emulate.cli import hosts_for
from real.job import journal, launcher
from real.job.elastic import ElasticJob
from real.job.kills import Kill, draw_kills, in_order, parse_kill
from real.job.timeline import CAUSES, JobTimes, times_of
from reports.job.real_job import RealJob
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build
from twinstep.jobs.job_steps import steps_of
from twinstep.real_jobs.predicted import PredictedJob, predict, shares


def run_and_predict(
    scenario: Scenario,
    given: TrainingJob,
    kills: Sequence[str],
    folder: Path,
    emulate: str | None = None,
    max_restarts: int | None = None,
) -> RealJob:
    """Predict the job, run it, and return both.

    `kills` are as `--kill` has them; if there is none, they are drawn from [job.failures].

    Raises:
        ScenarioError: a mistake in the scenario or the kills.
        RunEnded: the job ended early; its journal is in the folder.
    """
    build(scenario)  # reports what does not fit before anything starts
    steps = steps_of(scenario, given)
    sizes = shares(scenario, given, steps)
    asked = _kills(scenario, given, kills, lambda: predict(scenario, given, steps, []))
    predicted = predict(scenario, given, steps, asked)
    _check_end(asked, predicted)
    restarts = len(asked) + 1 if max_restarts is None else max_restarts
    real = _elastic(scenario, predicted.model.interval_steps, (sizes,), restarts, folder)
    measured, played_on = run_real(real, asked, emulate)
    return beside(scenario, real, played_on, measured, predicted)


def run_real(real: ElasticJob, kills: Sequence[Kill], emulate: str | None) -> tuple[JobTimes, str]:
    """Run a job; return its times, and where it ran."""
    with hosts_for(real.scenario, emulate) as hosts:
        try:
            left = launcher.run(real, kills, hosts)
        finally:
            shutil.rmtree(real.checkpoints, ignore_errors=True)  # they hold no values of the user's
    for kill in left:
        print(f"--kill = '{kill}': the job ended before it", file=sys.stderr)
    return times_of(journal.read(real.folder), real.scenario.cluster.world_size), hosts.kind


def _elastic(
    scenario: Scenario, interval: int, sizes: tuple[tuple[int, ...], ...], restarts: int, folder: Path
) -> ElasticJob:
    real = scenario.with_run(payload="values", ranks="each")
    return ElasticJob(scenario=real, folder=folder, interval_steps=interval, sizes=sizes, restarts=restarts)


def _kills(
    scenario: Scenario, given: TrainingJob, asked: Sequence[str], undisturbed: Callable[[], PredictedJob]
) -> list[Kill]:
    if asked:
        return in_order([parse_kill(text, scenario.cluster, scenario.run.steps) for text in asked])
    if not any(kind.per_gpu_day or kind.per_host_day or kind.per_day for kind in given.failures.kinds):
        return []
    return draw_kills(given.failures, scenario.cluster, scenario.run.seed, undisturbed().play().seconds)


def _check_end(kills: Sequence[Kill], predicted: PredictedJob) -> None:
    seconds = predicted.play().seconds
    for kill in kills:
        if kill.at_s is not None and kill.at_s >= seconds:
            raise ScenarioError(
                f"--kill = '{kill}': expected a moment before the job's end, predicted after {seconds:.1f} s"
            )


def beside(
    scenario: Scenario, real: ElasticJob, played_on: str, measured: JobTimes, predicted: PredictedJob
) -> RealJob:
    """Return a job's measured times beside its predicted ones."""
    played = predicted.play()
    lost = [
        {"cause": cause, "measured_s": _lost_s(measured.lost_s, cause), "predicted_s": _lost_s(played.lost_s, cause)}
        for cause in CAUSES
        if cause != "replacement"
    ]
    return RealJob(
        head={
            "name": scenario.name,
            "hosts": scenario.cluster.hosts,
            "ranks": scenario.cluster.world_size,
            "steps": scenario.run.steps,
            "step_s": predicted.model.step_s,
            "interval_steps": real.interval_steps,
            "size_bytes": sum(real.sizes[0]),
            "kills": [f"{one.target} at {one.at_s:.2f} s" for one in measured.kills],
            "played_on": played_on,
        },
        lost=pd.DataFrame(lost),
        measured_s=measured.seconds,
        predicted_s=played.seconds,
        again=measured.again,
        spans=pd.DataFrame([dataclasses.asdict(one) for one in measured.spans]),
    )


def _lost_s(by_cause: Mapping[str, float], cause: str) -> float:
    """Return the seconds lost by a cause; a restart includes the replacement, as real agents do both at once."""
    return by_cause[cause] + (by_cause["replacement"] if cause == "restart" else 0.0)
