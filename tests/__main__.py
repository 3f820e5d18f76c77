"""`python -m tests`: the whole suite as two runs of pytest beside each other; arguments go to both.

Tests of real ranks wait for other processes half of the time. Tests that only compute fill that time, at a lower
priority, so that nobody's time-out is nearer than if it ran alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent
COMPUTING = ("benchmarks", "mutations", "reports", "scenarios", "sim", "test_fingerprints.py")
NO_TESTS = 5  # pytest's exit code where the arguments choose none
NICENESS = 10


def main(arguments: list[str]) -> int:
    """The exit code of the first half that failed, else 0."""
    computing = [str(TESTS / name) for name in COMPUTING]
    others = sorted(str(path) for path in TESTS.iterdir() if path.name not in COMPUTING and _has_tests(path))
    pytest = [sys.executable, "-m", "pytest", *arguments]
    # Two runs would write one cache over the other.
    quiet = [*pytest, "-p", "no:cacheprovider", *computing]
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(quiet, stdout=output, stderr=subprocess.STDOUT) as beside:
            os.setpriority(os.PRIO_PROCESS, beside.pid, NICENESS)
            try:
                code = subprocess.run([*pytest, *others], check=False).returncode
                beside.wait()
            finally:
                beside.kill()
        output.seek(0)
        print(output.read().decode(errors="replace"), end="")
    found = [one for one in (code, beside.returncode) if one != NO_TESTS]
    return next((one for one in found if one), 0 if found else NO_TESTS)


def _has_tests(path: Path) -> bool:
    return path.name.startswith("test_") or (path.is_dir() and any(path.rglob("test_*.py")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
