"""Changes of a script, simulated beside it: the steps are those of the script that has the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import twinstep
from reports.sections.run.headline import headline
from tests.commands import command

SCRIPT = """import sys
import torch
from torch import nn

WIDTH, OPTIMIZER, IS_COMPILED, READS = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "compiled", sys.argv[4] == "reads"
torch.backends.cuda.matmul.allow_tf32 = True
device = torch.device("cuda", 0)
model = nn.Sequential(nn.Linear(WIDTH, 1024), nn.GELU(), nn.Linear(1024, 256), nn.GELU()).to(device)
call = torch.compile(model) if IS_COMPILED else model
fused = True if OPTIMIZER == "fused" else None
optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused, foreach=False if OPTIMIZER == "loop" else None)
x = torch.ones(int(sys.argv[5]), WIDTH, device=device)
for step in range(6):
    optimizer.zero_grad()
    loss = call(x).square().mean()
    if READS:
        print(loss.item())
    loss.backward()
    optimizer.step()
    if sys.argv[4] == "validates" and step > 1:
        for _ in range(20):
            call(x)
"""
NAMES = {
    "pad": "products of 479 padded to 480",
    "fuse": "fused optimizer",
    "graph": "CUDA graphs",
    "compile": "torch.compile",
}


BUSY, IDLE = 65_536, 64  # batches that the GPU takes longer for than the host, and not as long


def predict(folder: Path, *args: object, options: tuple[str, ...] = (), batch: int = BUSY) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_text(SCRIPT)
    given = ("--hosts", 1, "--gpus-per-host", 1, "--profile", "hgx_h200", "--steps", 4, "--json", *options)
    done = command("sim", *given, "--out", folder / "run", script, *args, batch)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def saved_ns(run: dict[str, Any], change: str) -> float:
    (one,) = [each for each in run["advice"] if each["change"] == NAMES[change]]
    assert one["share"] == pytest.approx(one["saved_ns"] / run["steps"][-1]["step_ns"], rel=0.01)
    return float(one["saved_ns"])


def last_ns(run: dict[str, Any]) -> float:
    return float(run["steps"][-1]["step_ns"])


@pytest.fixture(scope="module")
def bound_by_gpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("gpu")
    return folder, predict(folder, 479, "foreach", "eager", "silent")


def test_a_padded_width_takes_what_the_wider_script_takes(
    bound_by_gpu: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = bound_by_gpu[1]
    wider = predict(tmp_path, 480, "foreach", "eager", "silent")
    assert last_ns(run) - saved_ns(run, "pad") == pytest.approx(last_ns(wider), rel=0.002)
    assert saved_ns(run, "pad") > 0.1 * last_ns(run)
    assert not [each for each in wider["advice"] if each["change"].startswith("products")]


def test_a_compiled_model_takes_what_the_script_that_compiles_takes(
    bound_by_gpu: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = bound_by_gpu[1]
    compiled = predict(tmp_path, 479, "foreach", "compiled", "silent")
    assert last_ns(run) - saved_ns(run, "compile") == pytest.approx(last_ns(compiled), rel=0.02)
    assert NAMES["compile"] not in {each["change"] for each in compiled["advice"]}  # it is made already


def test_a_compiled_model_saves_what_it_does_in_the_step_that_was_compiled(tmp_path: Path) -> None:
    runs = [predict(tmp_path / mode, 480, "fused", "eager", mode, batch=IDLE) for mode in ("silent", "validates")]
    plain, validates = (saved_ns(each, "compile") for each in runs)
    assert last_ns(runs[1]) > 3 * last_ns(runs[0])
    assert validates == pytest.approx(plain, rel=0.05)


def test_changes_without_savings_on_a_busy_gpu_are_left_out(bound_by_gpu: tuple[Path, dict[str, Any]]) -> None:
    run = bound_by_gpu[1]
    assert NAMES["graph"] not in {each["change"] for each in run["advice"]}


def test_the_first_screen_names_the_best_two(bound_by_gpu: tuple[Path, dict[str, Any]]) -> None:
    said = headline(twinstep.load(bound_by_gpu[0] / "run"))
    lines = [line for line in said if line.startswith("would help: ")]
    assert len(lines) == 2
    assert any(line.startswith(f"would help: {NAMES['pad']}: -") and "0 (65536 x 479 x 1024)" in line for line in lines)


@pytest.mark.slow
def test_changes_of_a_script_are_among_the_what_if_settings(bound_by_gpu: tuple[Path, dict[str, Any]]) -> None:
    folder, run = bound_by_gpu
    done = command("sim", folder / "run", "--steps", 4, "--what-if", "--json", "--out", folder / "again")
    assert done.returncode == 0, done.stderr
    rows = {row["change"]: row for row in json.loads(done.stdout)["what_if"]}
    for change in ("pad", "compile"):
        row, as_it_is = rows[NAMES[change]], rows["as it is"]
        assert (row["group"], row["status"]) == ("setting", "done")
        assert as_it_is["step_ns"] - row["step_ns"] == pytest.approx(saved_ns(run, change), rel=0.01)
    assert rows[NAMES["compile"]]["options"] == "torch.compile(model)"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["foreach", "loop"])
def test_a_fused_optimizer_takes_what_the_script_with_it_takes(mode: str, tmp_path: Path) -> None:
    run = predict(tmp_path / mode, 480, mode, "eager", "silent", batch=IDLE)
    fused = predict(tmp_path / "fused", 480, "fused", "eager", "silent", batch=IDLE)
    assert last_ns(run) - saved_ns(run, "fuse") == pytest.approx(last_ns(fused), rel=0.01)
    assert saved_ns(run, "graph") > saved_ns(run, "fuse")


def test_a_script_that_reads_its_loss_back_is_told_why_it_has_no_graph(tmp_path: Path) -> None:
    run = predict(tmp_path, 480, "fused", "eager", "reads", batch=IDLE)
    (one,) = [each for each in run["advice"] if each["change"] == NAMES["graph"]]
    assert (one["saved_ns"], one["made_by"][:45]) == (0, "the host waits for the GPU within a step: exp")
    said = headline(twinstep.load(tmp_path / "run"))
    assert any(line.startswith("bound by the host: GPU idle ") for line in said)
    assert any(line.startswith(f"cannot help: {NAMES['graph']}: the host waits") for line in said)
