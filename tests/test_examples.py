"""The examples of docs/how_to/own_program.md: each is predicted on any hardware, and does the same on real ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from scenarios.workloads.build import build
from sim.run import simulate
from tests.real.pool import shared_pool

ROOT = Path(__file__).parent.parent
FILES = {"train_step.py": "python", "train_step.toml": "toml"}
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.toml") if path.stem != "study")  # which varies another
EACH = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


class Built(Program):
    """The program of a scenario file, built where it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def __call__(self, rank: Rank) -> None:
        await build(load(self.path))(rank)


def calls(recording: Recording) -> list[tuple[object, ...]]:
    spans = sorted(recording.spans, key=lambda span: (span.rank, span.stream, span.sequence))
    return [(one.rank, one.stream, one.step, one.kind, one.label, one.bytes_in, one.bytes_sent) for one in spans]


@EACH
@pytest.mark.real
def test_examples_agree_in_both_worlds(path: Path) -> None:
    scenario = load(path).with_run(payload="values")
    predicted, measured = simulate(scenario, build(scenario)), shared_pool().play(Built(path), scenario)
    assert calls(predicted) == calls(measured)
    values = [{(one.rank, one.step, one.name): one.value for one in each.metrics} for each in (predicted, measured)]
    assert values[0]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@EACH
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_examples_are_predicted_on_gpus(path: Path, fidelity: str) -> None:
    scenario = load(path, {"profile": "dgx_h100", "fidelity": fidelity})
    recording = simulate(scenario, build(scenario))
    steps = [span.end_ns - span.start_ns for span in recording.spans if span.kind == "step"]
    assert len(steps) == scenario.run.steps * scenario.cluster.world_size
    assert all(0 < took_ns < 10_000_000 for took_ns in steps)


@EACH
def test_values_change_no_time(path: Path) -> None:
    scenario = load(path)
    without, with_values = (
        simulate(each, build(each)) for each in (scenario.with_run(payload=kind) for kind in ("sizes", "values"))
    )
    assert without.spans == with_values.spans


@pytest.mark.slow
@pytest.mark.real
def test_the_tutorial_can_be_typed(tmp_path: Path) -> None:
    """Its two files, shorter than 60 lines together, and its three commands; the losses are the same."""
    page = (ROOT / "docs/how_to/own_program.md").read_text(encoding="utf-8").partition("## From an empty file")[2]
    files = {name: page.partition(f"```{kind}\n")[2].partition("```")[0] for name, kind in FILES.items()}
    assert sum(text.count("\n") for text in files.values()) <= 60
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    commands = [
        line.strip() for line in page.partition("and then")[2].partition("Bytes")[0].splitlines() if line.strip()
    ]
    assert len(commands) == 3
    for command in commands:
        line = [sys.executable, *command.split()[1:]]
        done = subprocess.run(
            line,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert "Same bytes per operation and rank" in done.stdout
    assert "Same order of operations per rank and stream" in done.stdout
    assert "Same recorded metrics" in done.stdout
