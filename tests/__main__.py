"""`python -m tests`: the whole suite as runs of pytest beside each other; arguments go to all of them.

Tests of real ranks wait for other processes half of the time. Tests that only compute fill that time, at a lower
priority, so that nobody's time-out is nearer than if it ran alone. Before them all go those that make numba compile:
it keeps on disk what the others then find, which would compile it in each run of pytest otherwise. Python, too, keeps
what it compiles, whatever the environment says: tests start some hundred processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
NICENESS = 10
# Tests of all that is compiled.
COMPILING = (
    "scenarios/quantized/test_codec.py",
    "scenarios/sparse/test_bucketize.py",
    "scenarios/workloads/dlrm/tables/test_embedding_cpu.py",
    "sim/engine/test_max_min_compiled.py",
)
# What runs beside all other tests, and at which niceness; runs of about the same work, a folder without what another
# run has of it.
BESIDE = (
    (("real", "twinstep/calibration", "twinstep/regret", "twinstep/validation"), 0),
    (("scenarios", "twinstep"), NICENESS),
    (("sim", "test_fingerprints.py"), NICENESS),
    (("benchmarks", "mutations", "reports"), NICENESS),
)
NO_TESTS = 5  # pytest's exit code where the arguments choose none


def main(arguments: list[str]) -> int:
    """The exit code of the first run that failed, else 0."""
    beside = {name for names, _ in BESIDE for name in names}
    others = sorted(path.name for path in TESTS.iterdir() if path.name not in beside and _has_tests(path))
    # Runs would write one cache over another.
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    first = subprocess.run([*pytest, *_paths(COMPILING)], check=False).returncode
    pytest += [f"--ignore={path}" for path in _paths(COMPILING)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, names[0]) for names, _ in BESIDE]
        started = [_start(pytest, *run, output) for run, output in zip(BESIDE, outputs, strict=True)]
        try:
            codes = [first, subprocess.run([*pytest, *_paths(others)], check=False).returncode]
            codes += [process.wait() for process in started]
        finally:
            for process in started:
                process.kill()
        for output in outputs:
            print(output.read_text(errors="replace"), end="")
    found = [code for code in codes if code != NO_TESTS]
    return next((code for code in found if code), 0 if found else NO_TESTS)


def _start(pytest: list[str], names: Sequence[str], niceness: int, output: Path) -> subprocess.Popen[bytes]:
    of_others = {name for others, _ in BESIDE for name in others}.difference(names)
    ignored = [f"--ignore={TESTS / name}" for name in sorted(of_others)]
    with output.open("wb") as stream:
        process = subprocess.Popen([*pytest, *ignored, *_paths(names)], stdout=stream, stderr=subprocess.STDOUT)
    os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
    return process


def _paths(names: Sequence[str]) -> list[str]:
    return [str(TESTS / name) for name in names]


def _has_tests(path: Path) -> bool:
    return path.name.startswith("test_") or (path.is_dir() and any(path.rglob("test_*.py")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
