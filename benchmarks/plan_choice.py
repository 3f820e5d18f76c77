"""What `twinstep plan` finds beside the planner's own plan, and what it takes, on ten jobs of 26 to 800 tables.

python -m benchmarks.plan_choice [--first JOB] [--jobs COUNT] [--seconds S]

Time is that of the process's CPU. Each job's two step times are compared with predictions: with the planner's own
plan, and with the file that has the best one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import twinstep
from reports.analysis.step_breakdown import step_time_ns
from scenarios.config.load import load
from scenarios.progress_line import ProgressLine
from scenarios.workloads.dlrm.ids.id_cache import DRAWN
from twinstep.plan_choice.comparison import TimeLimit, compare_plans
from twinstep.plan_choice.scenario_job import ScenarioJob, kept_ranks

# Tables, hosts of 8 GPUs, columns of a table, and samples per GPU.
JOBS = (
    *((26, 1, 128, 4096), (40, 1, 64, 2048), (80, 2, 128, 1024), (120, 2, 64, 2048), (200, 4, 128, 1024)),
    *((300, 8, 128, 512), (400, 4, 64, 1024), (500, 8, 64, 512), (650, 4, 128, 512), (800, 8, 128, 512)),
)
_MOST_ROWS = 5e7
_IDS_BYTES = 1 << 28


def main() -> None:
    """Print a line a job, then medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0, help="the first job")
    parser.add_argument("--jobs", type=int, default=len(JOBS), help="how many")
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU time, for each")
    options = parser.parse_args()
    gains, took = [], []
    print("| tables | GPUs | the planner's step | the best one found | gain | plans | CPU time |\n|" + "---|" * 7)
    for number in range(options.first, min(options.first + options.jobs, len(JOBS))):
        with tempfile.TemporaryDirectory() as folder, DRAWN.up_to(_IDS_BYTES):
            file, best = Path(folder, "job.toml"), Path(folder, "best.json")
            file.write_text(job(number))
            limit = TimeLimit(options.seconds, ProgressLine(quiet=True), time.process_time)
            ranks, found = kept_ranks(load(file)), compare_plans(ScenarioJob(file, {}, None), limit)
            took.append(limit.passed_s)
            best.write_text(found.best_json)
            steps_ns = [plan.step_ns for plan in found.plans]
            values: tuple[dict[str, object], ...] = ({}, {"sharding.plan": str(best), **ranks})
            assert steps_ns == [step_time_ns(twinstep.predict(file, steps=found.steps, **one)) for one in values]
        planners_ns, best_ns = steps_ns
        gains.append(1 - best_ns / planners_ns)
        tables, hosts, *_ = JOBS[number]
        times = f"{planners_ns / 1e6:.2f} ms | {best_ns / 1e6:.2f} ms | {gains[-1]:.1%}"
        plans = f"{found.tried}{', stopped' if found.stopped else ''}"
        print(f"| {tables} | {8 * hosts} | {times} | {plans} | {took[-1]:.0f} s |", flush=True)
    print(f"median gain {statistics.median(gains):.1%}, least {min(gains):.1%}; at most {max(took):.0f} s of CPU time")


def job(number: int) -> str:
    """Return the scenario of a job: tables whose rows and ids per sample follow power laws."""
    draw, (tables, hosts, dim, batch_size) = random.Random(number), JOBS[number]
    lines = [
        f"""program = "dlrm"
run = {{steps = 5, batch_size = {batch_size}, payload = "sizes", fidelity = "links"}}
cluster.profile = "{draw.choice(["dgx_h100", "dgx_a100"])}"
cluster.hosts = {hosts}
[model]
dense_features = 256
bottom = [512, {dim}]
top = [1024, 512, 1]
embedding_dim = {dim}
interaction.kind = "dot"
"""
    ]
    for table in range(tables):
        rows = round(min(1e4 * draw.paretovariate(0.6), _MOST_ROWS))
        ids = max(1, round(min(2 * draw.paretovariate(0.9), 200)))
        skew = draw.choice(["", "ids = {zipf = 1.05}\n"])
        lines.append(f'[[model.tables]]\nname = "t{table}"\nrows = {rows}\nids_per_sample = {ids}\n{skew}')
    return "\n".join(lines)


if __name__ == "__main__":
    main()
