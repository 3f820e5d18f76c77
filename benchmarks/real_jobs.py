"""`python -m benchmarks.real_jobs [OUT.csv]`: time that jobs lose to killed ranks, predicted and measured. As root.

12 jobs are predicted and run on emulated hosts: 2 to 8 ranks, different intervals and sizes, one or two kills of a rank
or a whole host. What restarts and checkpoints take is measured before, once for each number of hosts and GPUs, in runs
of another program with other sizes, intervals and kills (`twinstep run-job --calibrate`). Most programs sleep or only
exchange data, so that other work of the machine disturbs them little; on a busy one `chrt -r 5` before the command
keeps its processes from waiting for a core.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from reports.sections.real_job import error_of
from scenarios.config.load import load
from twinstep.real_jobs.calibration import calibrate
from twinstep.real_jobs.measured import run_and_predict

_CLUSTER = """
include = [{include}]
{program}
[cluster]
profile = "emulated_200mbit"
hosts = {hosts}
gpus_per_host = {gpus}
[run]
library = "gloo"
payload = "values"
fidelity = "flows"
steps = {steps}
{step}
[job.checkpoint]
interval_steps = {interval}
{size}
"""
_ALL_REDUCE = 'program = "collective"\n[collective]\nop = "all_reduce"\nsize = "2 MiB"'
_DLRM = str(Path(__file__).parents[1] / "scenarios" / "library" / "criteo_small_2x2.toml")


@dataclass(frozen=True, slots=True)
class Case:
    """A job: its hosts, GPUs of a host, steps and their time ("": its program's), interval, bytes, and kills."""

    hosts: int
    gpus: int
    steps: int
    step: str
    interval: int
    size: str
    kills: tuple[str, ...]
    program: str = ""

    def text(self, include: Sequence[str]) -> str:
        """Return the scenario's file."""
        base = [_DLRM] if self.program == "dlrm" else []
        return _CLUSTER.format(
            include=", ".join(f'"{name}"' for name in [*include, *base]),
            program=_ALL_REDUCE if self.program == "all_reduce" else "",
            step=f'[job]\nstep = "{self.step}"' if self.step else "",
            size=f'size = "{self.size}"' if self.size else "",
            **{name: getattr(self, name) for name in ("hosts", "gpus", "steps", "interval")},
        )


CASES = {
    "2 ranks": Case(2, 1, 60, "200 ms", 10, "20 MB", ("6s:rank1",)),
    "4 ranks": Case(2, 2, 48, "250 ms", 8, "40 MB", ("step29:rank3",)),
    "4 hosts, a host": Case(4, 1, 80, "150 ms", 20, "100 MB", ("9s:host2",)),
    "large checkpoint": Case(2, 2, 120, "100 ms", 40, "400 MB", ("step75:rank0",)),
    "8 ranks, two kills": Case(4, 2, 40, "300 ms", 5, "80 MB", ("step12:rank5", "step31:rank2")),
    "3 ranks a host, a host": Case(2, 3, 60, "200 ms", 15, "300 MB", ("7s:host0",)),
    "8 hosts": Case(8, 1, 40, "250 ms", 10, "16 MB", ("step17:rank7",)),
    "a rank and a host": Case(4, 2, 100, "200 ms", 12, "160 MB", ("5s:rank1", "18s:host3")),
    "8 ranks, a host": Case(2, 4, 30, "400 ms", 6, "64 MB", ("step16:host1",)),
    "all-reduce": Case(4, 1, 100, "", 25, "40 MB", ("8s:rank2",), "all_reduce"),
    "all-reduce, a host": Case(4, 1, 100, "", 30, "80 MB", ("step70:host0",), "all_reduce"),
    "DLRM": Case(2, 2, 200, "", 50, "", ("step120:rank1",), "dlrm"),
}


def main(arguments: Sequence[str]) -> None:
    """Calibrate, run all cases, and print their table; write it as CSV if a path is given."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (what, case) in enumerate(CASES.items()):
            _calibrate(case, folder)
            rows.append(_row(what, case, folder, number))
            print("  ".join(str(value) for value in rows[-1].values()), flush=True)
    errors = [abs(row["error"]) for row in rows]
    print(
        f"lost time: error {median(errors):.1%} in the median, {max(errors):.1%} at most; load {os.getloadavg()[0]:.1f}"
    )
    if arguments:
        with open(arguments[0], "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _here(case: Case) -> str:
    return f"here-{case.hosts}x{case.gpus}.toml"


def _calibrate(case: Case, folder: Path) -> None:
    """Measure restarts and checkpoints on a case's hosts, unless it has been done."""
    if (folder / _here(case)).exists():
        return
    path = folder / "other.toml"
    path.write_text(Case(case.hosts, case.gpus, 28, "250 ms", 4, "8 MB", ()).text([]))
    scenario = load(path)
    assert scenario.job is not None
    print(calibrate(scenario, scenario.job, folder / _here(case), ""), flush=True)


def _row(what: str, case: Case, folder: Path, number: int) -> dict[str, Any]:
    path = folder / f"{number}.toml"
    path.write_text(case.text([_here(case)]))
    scenario = load(path)
    assert scenario.job is not None
    found = run_and_predict(scenario, scenario.job, case.kills, folder / f"job-{number}", "")
    measured, predicted = found.total
    lost = {
        f"{row.cause}_{side[:-2]}_s": round(getattr(row, side), 3)
        for row in found.lost.itertuples()
        for side in ("measured_s", "predicted_s")
    }
    return {
        "job": what,
        "ranks": case.hosts * case.gpus,
        "hosts": case.hosts,
        "step_ms": round(1e3 * found.head["step_s"], 1),
        "interval_steps": case.interval,
        "checkpoint_mb": round(found.head["size_bytes"] / 1e6, 1),
        "kills": " ".join(case.kills),
        "lost_measured_s": round(measured, 3),
        "lost_predicted_s": round(predicted, 3),
        "error": round(error_of(measured, predicted) or 0.0, 3),
        **lost,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
