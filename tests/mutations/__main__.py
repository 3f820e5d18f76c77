"""Puts plausible mistakes into a copy of the project, one at a time, and sees whether the tests catch each.

    python -m tests.mutations [NAME ...]

Prints a row a mistake; exit code 1 if one of them was not caught, or if the tests fail without any.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("scenarios", "sim", "real", "reports", "twinstep", "tests", "pyproject.toml", "docs", "README.md")
TIMEOUT_S = 600
# pytest's own: tests ran, and some failed. A mistake that keeps the tests from being collected proves nothing.
PASSED, FAILED = 0, 1


def main(names: Sequence[str]) -> int:
    """The exit code."""
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    unknown = set(names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        print(f"unknown mutations {', '.join(sorted(unknown))}: expected some of those in tests/mutations/catalogue.py")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        _copy_project(copy)
        sound = [_control(copy, tests) for tests in dict.fromkeys(mutation.tests for mutation in chosen)]
        caught = [_try(copy, mutation) for mutation in chosen]
    print(f"{sum(caught)} of {len(chosen)} caught")
    return 0 if all(sound + caught) else 1


def _copy_project(copy: Path) -> None:
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)


def _control(copy: Path, tests: Sequence[str]) -> bool:
    """Without a mistake the tests pass."""
    code, seconds = _run_tests(copy, tests)
    _show("(no mistake)", "passed" if code == PASSED else f"FAILED (exit code {code})", seconds)
    return code == PASSED


def _try(copy: Path, mutation: Mutation) -> bool:
    path = copy / mutation.path
    text = path.read_text()
    path.write_text(mutation.applied_to(text))
    code, seconds = _run_tests(copy, mutation.tests)
    path.write_text(text)
    _show(mutation.name, "caught" if code == FAILED else f"NOT CAUGHT (exit code {code})", seconds)
    return code == FAILED


def _run_tests(copy: Path, tests: Sequence[str]) -> tuple[int, float]:
    begin = time.monotonic()
    # A file that changes twice within a second, at the same size, would be taken from the cache of byte code.
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, timeout=TIMEOUT_S, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return -1, time.monotonic() - begin
    return done.returncode, time.monotonic() - begin


def _show(name: str, outcome: str, seconds: float) -> None:
    print(f"{name:60} {outcome:26} {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
