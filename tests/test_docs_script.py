"""The script of docs/ that goes from a run to three answers: it runs, is short, and says what the run's frames say."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import reports
from reports.analysis.step_breakdown import PARTS, parts_of_step, steady_kept, steady_steps
from reports.run import Run
from tests.commands import command

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "docs" / "how_to" / "from_run_to_answers.py"
SCENARIO = ROOT / "scenarios" / "library" / "criteo_small_2x2.toml"


def python(*words: object) -> str:
    line = [sys.executable, *map(str, words)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    assert command("sim", SCENARIO, "--steps", 6, "--out", folder, "--quiet").returncode == 0
    return folder


def most_exposed(run: Run) -> list[str]:
    """From the frame of operations."""
    frame = run.operations_of(steady_kept(run))
    rows = [row for row in frame.to_dict("records") if row["part"] == "communication"]
    rows.sort(key=lambda row: -row["exposed_ns"])
    return [
        f"{row['label']}: {row['exposed_ns'] / 1e6:.3f} of {row['mean_ns'] / 1e6:.3f} ms per step are not hidden."
        for row in rows[:3]
    ]


def busiest(run: Run) -> str:
    """From the parts of a step, which know who computes most."""
    kept = steady_kept(run)
    most: Any = parts_of_step(run, kept).set_index("part").loc[PARTS["compute_ns"]]
    each = [row["compute_ns"] / row["steps"] for row in run.ranks_of(kept).to_dict("records")]
    more_ms = (most["max_ns"] - median(each)) / 1e6
    rank, most_ms = int(most["rank"]), most["max_ns"] / 1e6
    return f"Rank {rank} computes {most_ms:.3f} ms per step, {more_ms:.3f} ms more than the median rank."


def even_out(run: Run) -> str:
    """From the spans, one by one."""
    kept = steady_kept(run)
    took: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for span in run.spans.to_dict("records"):
        if span["kind"] == "compute" and span["step"] in kept:
            took[span["label"]][span["rank"]] += (span["end_ns"] - span["start_ns"]) / len(kept)
    uneven = {label: max(by.values()) - median(by.values()) for label, by in took.items()}
    label = max(uneven, key=lambda name: uneven[name])
    step_ns = steady_steps(run.steps)["step_ns"].median()
    best = (step_ns - uneven[label]) / 1e6
    return f"With {label} even, a step would take {best:.3f} ms at best instead of {step_ns / 1e6:.3f} ms."


def test_the_script_answers_what_the_frames_say(folder: Path) -> None:
    run = reports.load(folder)
    assert python(SCRIPT, folder).splitlines() == [*most_exposed(run), busiest(run), even_out(run)]


def test_three_answers_take_under_20_lines() -> None:
    source = SCRIPT.read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source), clean=False)
    assert text is not None
    code = source.replace(f'"""{text}"""', "")
    lines = [line for line in code.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) < 20
    assert source.count("# %% ") == 4, "a cell for the run and one for each answer"


def test_the_documents_lead_to_the_script() -> None:
    assert "from_run_to_answers.py" in (ROOT / "docs" / "how_to" / "in_python.md").read_text(encoding="utf-8")
