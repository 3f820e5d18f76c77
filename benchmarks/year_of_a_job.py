"""A year of a job on 16,384 GPUs, 1,000 draws, on two cores: processor time of this process and its workers.

python -m benchmarks.year_of_a_job                # the ready scenario job_llama3, for 365 days
"""

from __future__ import annotations

import os
import time

from scenarios.config.load import load
from sim.job.sample import sample
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.job_steps import given_steps

DRAWS, WORKERS = 1000, 2


def main() -> None:
    """Play the draws and print what that took."""
    scenario = load("job_llama3", {"job.days": 365})
    assert scenario.job is not None
    jobs = JobModels(scenario, scenario.job, given_steps(scenario, scenario.job))
    model = jobs.best(jobs.model())
    before, began_s = os.times(), time.perf_counter()
    played = sample(model, DRAWS, scenario.run.seed, workers=WORKERS)
    after, wall_s = os.times(), time.perf_counter() - began_s
    spent_s = sum(after[:4]) - sum(before[:4])
    interruptions = sum(sum(one.counts.values()) for one in played)
    goodput = sum(one.steps for one in played) * model.step_s / sum(one.seconds for one in played)
    print(f"{DRAWS:,} jobs of 365 days with {interruptions:,} interruptions in all: goodput {goodput:.2%}")
    print(
        f"processor time {spent_s:.1f} s, {spent_s / WORKERS:.1f} s on each of {WORKERS} cores; {wall_s:.1f} s in all"
    )


if __name__ == "__main__":
    main()
