"""However often and by whatever signal a command is told to stop: one exit code, no traceback, nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import command

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "scenarios" / "library"
START_S = 60.0


def start(module: str, *words: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def wait_for(process: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    until_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until_s and not list(folder.glob(pattern)):
        time.sleep(0.02)
    assert list(folder.glob(pattern))


def signal_twice(process: subprocess.Popen[str], number: int, times: int = 1) -> tuple[int, str]:
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.05)
    _, said = process.communicate(timeout=START_S)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_every_signal_ends_a_command_with_its_code(number: int) -> None:
    code = "import time\nfrom scenarios.interruption import end\nend(lambda: print(flush=True) or time.sleep(60))"
    line = [sys.executable, "-c", code]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    assert signal_twice(process, number, 3) == (128 + number, "")


def test_a_prediction_that_is_told_to_stop_leaves_nothing(tmp_path: Path) -> None:
    process = start("sim", LIBRARY / "all_to_all_4x2.toml", "--steps", 200_000, "--out", tmp_path / "run")
    wait_for(process, tmp_path, ".run.partial/spans.parquet")
    code, said = signal_twice(process, signal.SIGTERM, 3)
    assert (code, "Traceback" in said) == (143, False)
    assert os.listdir(tmp_path) == []


def test_signals_ignored_from_the_start_stay_ignored(tmp_path: Path) -> None:
    """The prediction goes on, whatever the terminal does."""
    code = (
        "import runpy, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "sys.argv[0] = 'sim'\n"
        "runpy.run_module('sim', run_name='__main__', alter_sys=True)"
    )
    words = [LIBRARY / "all_to_all_4x2.toml", "--steps", "60", "--out", tmp_path / "run", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    wait_for(process, tmp_path, ".run.partial/spans.parquet")
    assert signal_twice(process, signal.SIGHUP)[0] == 0
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    ("writer", "is_older_kept"), [("pathlib.Path.write_text", True), ("pyarrow.parquet.write_table", False)]
)
def test_a_report_that_is_told_to_stop_while_it_writes_leaves_no_half_file(
    tmp_path: Path, writer: str, is_older_kept: bool
) -> None:
    """What takes the place of an older file does so whole or not at all: the page, then its tables."""
    run = tmp_path / "run"
    assert command("sim", LIBRARY / "all_to_all_4x2.toml", "--out", run, "--quiet").returncode == 0
    page = run / "reports" / "report.html"
    page.parent.mkdir()
    page.write_text("older")
    code = (
        "import os, runpy, signal, sys, unittest.mock\n"
        "import pathlib, pyarrow.parquet\n"
        f"whole = {writer}\n"
        "def wrote(*words, **named):\n"
        "    whole(*words, **named)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        f"unittest.mock.patch('{writer}', wrote).start()\n"
        "sys.argv[0] = 'reports'\n"
        "runpy.run_module('reports', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (143, False)
    assert (page.read_text() == "older") == is_older_kept
    assert page.read_text() == "older" or page.read_text().rstrip().endswith("</html>")
    assert [path for path in run.rglob("*") if path.name.startswith(".")] == []


@pytest.mark.parametrize("module", ["sim", "real", "reports", "scenarios", "twinstep"])
@pytest.mark.parametrize("after_s", [0.0, pytest.param(0.15, marks=pytest.mark.slow)])
def test_ctrl_c_while_a_command_loads_is_quiet(tmp_path: Path, module: str, after_s: float) -> None:
    """What its own file imports at its top is there in a few ms; before, it is Python that starts."""
    words: dict[str, list[Any]] = {"reports": [tmp_path], "scenarios": ["check", *LIBRARY.glob("*.toml")]}
    given: list[Any] = words.get(module, [*(["run"] if module == "twinstep" else []), LIBRARY / "criteo_dlrm_2x4.toml"])
    code = (
        f"import {module}.__main__, runpy, sys; del sys.modules['{module}.__main__']\n"
        f"print(flush=True); sys.argv[0] = '{module}'\n"
        f"runpy.run_module('{module}', run_name='__main__', alter_sys=True)"
    )
    line = [
        sys.executable,
        "-c",
        code,
        *map(str, given),
        *([] if module in words else ["--out", str(tmp_path / "run")]),
    ]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1 + after_s)
    code_, said = signal_twice(process, signal.SIGINT, 3)
    assert "Traceback" not in said
    assert code_ in (130, 0, 2)  # quick ones may have ended
