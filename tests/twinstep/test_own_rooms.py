"""A user's folder may have modules of the names of Twinstep's packages; both are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Prints what is the user's, and the step time of a prediction.
BOTH = """
import {first}
import {second}
import scenarios
from real.mine import one
from reports import Run, mine
if __name__ == "__main__":
    print(reports.mine(), mine(), scenarios.X, one, Run.__name__, twinstep.{verb}("exchange.toml", steps=1).step_ms > 0)
"""
SCRIPT = """
import torch, torch.distributed as dist, reports, scenarios
from real.mine import one
dist.init_process_group("gloo")
for _ in range(2):
    dist.all_reduce(torch.ones(4))
    torch.optim.SGD([torch.ones(1, requires_grad=True)]).step()
assert (reports.mine(), scenarios.X, one) == ("theirs", 1, 2)
"""
EXCHANGE = 'program = "all_to_all"\ncluster = {profile = "cpu_local", hosts = 1}\nexchange = {size = "16 KiB"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules of the user's own."""
    (tmp_path / "reports.py").write_text("def mine(): return 'theirs'\n")
    (tmp_path / "sim.py").write_text("raise SystemExit('the user has a program of this name')\n")
    (tmp_path / "scenarios.py").write_text("X = 1\n")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "__init__.py").touch()
    (tmp_path / "real" / "mine.py").write_text("one = 2\n")
    (tmp_path / "exchange.toml").write_text(EXCHANGE)
    return tmp_path


def ran(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, *words]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("first", "second", "verb"),
    [("twinstep", "reports", "predict"), pytest.param("reports", "twinstep", "measure", marks=pytest.mark.real)],
)
def test_twinstep_and_modules_of_its_packages_names_work_together(
    folder: Path, first: str, second: str, verb: str
) -> None:
    (folder / "both.py").write_text(BOTH.format(first=first, second=second, verb=verb))
    assert ran(folder, "both.py") == "theirs theirs 1 2 Run True\n"


@pytest.mark.parametrize("command", ["predict", pytest.param("run", marks=pytest.mark.real)])
def test_a_script_in_such_a_folder_finds_its_own_modules(folder: Path, command: str) -> None:
    (folder / "train.py").write_text(SCRIPT)
    size = ("--hosts", "1", "--gpus-per-host", "1", "--profile", "cpu_local", "--steps", "1")
    assert ran(folder, "-m", "twinstep", command, *size, "--quiet", "--out", "run", "train.py") == "run\n"


def test_what_neither_has_is_no_attribute(folder: Path) -> None:
    code = "import twinstep, reports\ntry: reports.nothing\nexcept AttributeError as error: print(error)"
    assert ran(folder, "-c", code) == "module 'reports' has no attribute 'nothing'\n"
