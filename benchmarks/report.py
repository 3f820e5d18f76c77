"""`python -m benchmarks.report`: what the report of a large run takes, in seconds, memory and bytes, and an import.

    python -m benchmarks.report --out runs/benchmark              # predicts the runs there once: some 8 minutes
    python -m benchmarks.report --out runs/benchmark --case powersgd --repeats 5

The runs are of library scenarios: two with steps enough for 1,000,000 spans (8 ranks with many spans a step, 64 with
fewer), and one step of 131,072 GPUs. A time is that of the whole command `python -m reports RUN`, with its page and its
tables, in a fresh process; what it took of the processor stands beside it, as on a busy machine the two differ; memory
is the most that it had. The first call is not counted: it compiles Python and brings files from disk. What `import
reports` takes is measured beside `import pandas`, in turns.

This module imports nothing large: a child's peak counts from what its parent had when it was started.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "scenarios" / "library"
MOST = {"seconds": 15.0, "MiB": 2048.0, "page MB": 5.0}
IMPORTS = ("import pandas", "import reports", "import reports; reports.load")
COLUMNS = ("case", "spans", "seconds", "CPU s", "MiB", "page MB", "tables MB")
REPORTS, PAGE = "reports", "report.html"
ROWS = "import sys; from pyarrow import parquet; print(parquet.ParquetFile(sys.argv[1]).metadata.num_rows)"


@dataclass(frozen=True, slots=True)
class Case:
    """A library scenario, the keys that stand in place of its own, and how many steps of it."""

    library: str
    steps: int
    keys: str = ""


CASES = {
    "powersgd": Case("powersgd_4x2_3g", 350),
    "criteo": Case("criteo_dlrm_8x8", 260),
    "131072": Case("twrw_2048x8", 1, "[cluster]\nhosts = 16384\n"),
}


@dataclass(frozen=True, slots=True)
class Taken:
    """By one process, from its start to its end; `mib` is the most memory that it had."""

    output: str
    seconds: float
    cpu_seconds: float
    mib: float


def run_python(*arguments: str) -> Taken:
    """Python with these arguments; as `run_process`."""
    return run_process(sys.executable, *arguments)


def run_process(*command: str, given: str = "") -> Taken:
    """A process that reads `given`.

    Raises:
        SystemExit: it failed; what it said is on stderr.
    """
    with tempfile.TemporaryFile("w+") as source, tempfile.TemporaryFile("w+") as target:
        source.write(given)
        source.seek(0)
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=source, stdout=target, cwd=ROOT)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{Path(command[0]).name} {' '.join(command[1:])}: ended with {process.returncode}")
        target.seek(0)
        return Taken(target.read(), seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def run_folder(name: str, folder: Path) -> Path:
    """The run folder of a case, predicted unless it is there already."""
    case, run = CASES[name], folder.resolve() / name
    if not run.exists():
        folder.mkdir(parents=True, exist_ok=True)
        scenario = run.with_suffix(".toml")
        scenario.write_text(f"include = {json.dumps(str(LIBRARY / case.library) + '.toml')}\n{case.keys}")
        print(f"predicting {case.steps} steps of {case.library}", file=sys.stderr)
        run_python("-m", "sim", str(scenario), "--steps", str(case.steps), "--out", str(run), "--quiet")
    return run


def report(name: str, run: Path, repeats: int) -> dict[str, float | str]:
    """One line: medians of so many reports, after one that does not count."""
    found = []
    for _ in range(repeats + 1):
        shutil.rmtree(run / REPORTS, ignore_errors=True)
        found.append(run_python("-m", "reports", str(run)))
    sizes = {path: path.stat().st_size / 1e6 for path in (run / REPORTS).rglob("*") if path.is_file()}
    page = sizes.pop(run / REPORTS / PAGE)
    return {
        "case": name,
        "spans": int(run_python("-c", ROWS, str(run / "spans.parquet")).output),
        "seconds": round(statistics.median(one.seconds for one in found[1:]), 2),
        "CPU s": round(statistics.median(one.cpu_seconds for one in found[1:]), 2),
        "MiB": round(statistics.median(one.mib for one in found[1:])),
        "page MB": round(page, 2),
        "tables MB": round(sum(sizes.values()), 1),
    }


def imports(repeats: int) -> dict[str, float]:
    """Median seconds of a fresh process that does no more than each of `IMPORTS`."""
    found: dict[str, list[float]] = {code: [] for code in IMPORTS}
    for _ in range(repeats + 1):
        for code, seconds in found.items():
            seconds.append(run_python("-c", code).seconds)
    return {code: statistics.median(seconds[1:]) for code, seconds in found.items()}


def find_missed(line: dict[str, float | str]) -> list[str]:
    """The columns that are above what the project wants."""
    return [column for column, most in MOST.items() if float(line[column]) > most]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where the runs are or go (default: a temporary one)"
    )
    parser.add_argument("--case", choices=CASES, action="append", help="one of the runs; default: all")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    alone, *others = imports(options.repeats).items()
    print(
        *(f"{code}: {seconds - alone[1]:+.2f} s to {alone[0]}, {alone[1]:.2f} s" for code, seconds in others), sep="\n"
    )
    print(" ".join(f"{column:>10}" for column in COLUMNS))
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.case or CASES:
            line = report(name, run_folder(name, options.out or Path(temporary)), options.repeats)
            above = "".join(f"  {column} > {MOST[column]:g}" for column in find_missed(line))
            print(" ".join(f"{line[column]!s:>10}" for column in COLUMNS) + above, flush=True)


if __name__ == "__main__":
    main()
