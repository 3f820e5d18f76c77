"""A stranger's way: a CSV of 300 tables, then the commands of the README and the one that the first screen names."""

from __future__ import annotations

import csv
import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import command, unfold

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
# What a command prints, of a line that is typed.
Type = Callable[[str], str]


def in_a_shell(line: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"((note: |searching: ).*\n)*", unfold(done.stderr)
    )  # a large job is told more, and takes longer
    return done.stdout


def in_this_process(line: str) -> str:
    line = re.sub(r"--seconds \d+", "--seconds 2", line).replace("--hosts 2", "--hosts 1 --gpus-per-host 4")
    done = command(*shlex.split(line, comments=True))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def of_readme(word: str) -> str:
    """The README's first line with this command of `job.toml`, for files here."""
    found = re.search(rf"^ +(twinstep {word} .*job\.toml.*)$", README, re.MULTILINE)
    assert found is not None, word
    return re.sub(r"\S*/(?=[a-z]+\.(csv|toml|json))", "", found[1])


@pytest.mark.parametrize(
    ("count", "typed"), [(30, in_this_process), pytest.param(300, in_a_shell, marks=pytest.mark.slow)]
)
def test_four_commands_lead_from_a_csv_of_tables_to_a_page(
    count: int, typed: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draws = random.Random(7)
    with open("tables.csv", "w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["name", "num_embeddings", "embedding_dim", "pooling_factor"])
        for number in range(count):
            dim, ids = draws.choice([32, 64, 128]), draws.choice([1, 2, 5.5])
            rows.writerow([f"t{number}", int(10 ** draws.uniform(2, 6)), dim, ids])
    assert typed(of_readme("init")).startswith(f"job.toml: {count} tables (")
    screen = typed(of_readme("predict")).splitlines()
    assert (len(screen) <= 25, max(map(len, screen)) <= 80) == (True, True), screen
    plan = typed(of_readme("plan"))
    assert re.search(r"TorchRec's planner [\d.]+ ms", plan)
    assert Path("plan.json").is_file()
    (following,) = (found[1] for line in screen if (found := re.match(r"next: (twinstep report \S+)", line)))
    page = typed(following).splitlines()[-1].removeprefix("report: ")
    assert "Critical path" in Path(page).read_text(encoding="utf-8")
