"""Published goodput, uptime and overhead of training jobs of days, beside what ready scenarios of them predict.

    python -m benchmarks.published_jobs        # some seconds; --write renews docs/accuracy/data/published_jobs.csv

A figure that a source lacks is an assumption, which the scenario marks. Some sources give a range ("above 90 %"); an
error is the distance to it, in points (of the interval: in steps).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from scenarios.config.load import load
from sim.job.closed_form import goodput
from sim.job.model import JobModel
from sim.job.sample import sample
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.job_steps import given_steps
from twinstep.jobs.outcome import draws_frame, summary

TABLE = Path(__file__).parent.parent / "docs" / "accuracy" / "data" / "published_jobs.csv"
_DOWN = ("detection", "replacement", "restart", "restore")


@dataclass(frozen=True, slots=True)
class PlayedCase:
    """A ready scenario's job: its model, its goodput and the shares of its time lost by cause."""

    model: JobModel
    goodput: float
    lost: dict[str, float]


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A published figure of a job, from `low` to `high`, and how the prediction of it is computed."""

    scenario: str
    measure: str
    low: float
    high: float
    predict: Callable[[PlayedCase], float]
    unit: str = "%"

    @property
    def published(self) -> str:
        """The figure as the table shows it."""
        if self.high == 100 > self.low:
            return f"> {self.low:g}"
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"

    def miss(self, predicted: float) -> float:
        """Return the signed distance of a prediction to the published range."""
        return predicted - min(max(predicted, self.low), self.high)


def _goodput(case: PlayedCase) -> float:
    return 100 * case.goodput


def _overhead(case: PlayedCase) -> float:
    return 100 * (1 - case.goodput)


def _of_the_best(case: PlayedCase) -> float:
    return 100 * goodput(case.model.with_interval(24)) / goodput(case.model)


PUBLISHED = (
    PublishedFigure("job_llama3", "effective training time", 90, 100, _goodput),
    PublishedFigure("job_megascale", "effective training time", 90, 100, _goodput),
    PublishedFigure("job_hlat", "uptime", 98.81, 98.81, lambda case: 100 * (1 - sum(case.lost[one] for one in _DOWN))),
    PublishedFigure("job_cpr", "overhead, full recovery", 8.2, 8.5, _overhead),
    PublishedFigure("job_cpr", "overhead, average of 17,000 jobs", 12, 12, _overhead),
    PublishedFigure("job_bloom", "writing checkpoints", 0.37, 0.37, lambda case: 100 * case.lost["checkpoint"]),
    PublishedFigure("job_best_interval", "goodput of 24 steps, of the best", 100, 100, _of_the_best),
    PublishedFigure("job_best_interval", "best interval", 24, 24, lambda case: case.model.interval_steps, unit="steps"),
    PublishedFigure("job_opt", "days needed of days used", 55, 55, _goodput),
)


def play_case(name: str, **overrides: object) -> PlayedCase:
    """Play the ready scenario's job; keys of `overrides` are those of the scenario."""
    scenario = load(name, {key.replace("__", "."): value for key, value in overrides.items()})
    job = scenario.job
    assert job is not None
    steps = given_steps(scenario, job)
    model = JobModels(scenario, job, steps).on()
    found = summary(model, draws_frame(model, sample(model, job.draws, scenario.run.seed)), steps.samples)
    return PlayedCase(model, found["goodput"], found["lost"])


def compare() -> pd.DataFrame:
    """Return a row for each published figure, with the prediction and its error."""
    cases = {name: play_case(name) for name in dict.fromkeys(one.scenario for one in PUBLISHED)}
    rows = []
    for one in PUBLISHED:
        predicted = one.predict(cases[one.scenario])
        error = f"{round(one.miss(predicted), 1) + 0.0:+.1f}"
        shown = {"published": one.published, "predicted": f"{predicted:.4g}", "error": error}
        rows.append({"scenario": one.scenario, "measure": one.measure, "unit": one.unit, **shown})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    found = compare()
    print(found.to_string(index=False))
    if "--write" in sys.argv:
        found.to_csv(TABLE, index=False)
