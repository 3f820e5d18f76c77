"""`python -m tests` hides no failure, however a worker ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The test of each module that ends its worker, or does not.
DYING = {
    "test_killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "test_gone": "os._exit(0)",
    "test_wrong": "assert 1 == 2",
    "test_fine": "pass",
}


def start(folder: Path, modules: dict[str, str], *words: str) -> subprocess.Popen[str]:
    for name, ends in modules.items():
        after = f"open({str(folder / f'{name}.after')!r}, 'w').close()"
        text = f"import os, signal, time\ndef {name}(): {ends}\ndef test_after(): {after}\n"
        (folder / f"{name}.py").write_text(text)
    arguments = [sys.executable, "-m", "tests", str(folder), f"--rootdir={folder}", *words]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)


@pytest.mark.whole
def test_tests_in_which_workers_end_are_named(tmp_path: Path) -> None:
    running = start(tmp_path, DYING)
    said, _ = running.communicate()
    assert running.returncode == 1
    assert "a worker ended with -9 in test_killed.py::test_killed" in said
    assert "a worker ended with 0 in test_gone.py::test_gone" in said
    assert "_ test_wrong _" in said


@pytest.mark.whole
def test_failures_before_an_interruption_are_printed(tmp_path: Path) -> None:
    begun, failed = tmp_path / "begun", tmp_path / "test_wrong.after"
    long = f"open({str(begun)!r}, 'w').close(); time.sleep(60)"
    running = start(tmp_path, {"test_wrong": "assert 1 == 2", "test_long": long})
    while not (begun.exists() and failed.exists()):
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    said, _ = running.communicate()
    assert running.returncode == 2
    assert "_ test_wrong _" in said


@pytest.mark.whole
@pytest.mark.parametrize(("words", "code"), [(["-k", "not_there"], 5), (["--junitxml={folder}/x.xml"], 4)])
def test_nothing_to_run_and_wrong_words_have_pytests_own_codes(words: list[str], code: int, tmp_path: Path) -> None:
    running = start(tmp_path, {"test_fine": "pass"}, *(word.format(folder=tmp_path) for word in words))
    said, _ = running.communicate()
    assert (running.returncode, "a worker" in said) == (code, False)
