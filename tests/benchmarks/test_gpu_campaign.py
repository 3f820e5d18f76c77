"""A campaign on one GPU: its scenarios are sound, its parts go on where they stood, its page says what is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_campaign import __main__ as campaign
from benchmarks.gpu_campaign.page import page
from benchmarks.gpu_campaign.parts import DONE, FAILED, SKIPPED, Outcome, Part, parts, play
from benchmarks.gpu_campaign.plans import CPU, GPU, Plan
from benchmarks.gpu_campaign.predictions import CALIBRATED, DATA_SHEET, Predicted
from scenarios.config.load import load
from scenarios.workloads.build import build


@pytest.mark.parametrize(("plan", "profile", "kind"), [(GPU, "dgx_h100", "cuda"), (CPU, "cpu_local", "cpu")])
def test_scenarios_have_one_rank_that_fits_its_device(plan: Plan, profile: str, kind: str, tmp_path: Path) -> None:
    for name, text in plan.scenarios.items():
        file = tmp_path / f"{name}.toml"
        file.write_text(text.replace("{profile}", profile))
        scenario = load(file)
        assert (scenario.cluster.world_size, scenario.cluster.host.gpu.kind) == (1, kind)
        rows = build(scenario).memory
        assert 0 < sum(row.size_bytes for row in rows) < rows[0].capacity_bytes


@pytest.mark.parametrize(("plan", "profile"), [(GPU, "hgx_h200"), (CPU, "cpu_local")])
def test_parts_have_unique_names_and_files(plan: Plan, profile: str, tmp_path: Path) -> None:
    planned = [*parts(plan, tmp_path, profile)]
    assert len({part.name for part in planned}) == len({part.leaves for part in planned}) == len(planned)
    assert all(Path(script.words[0]).is_file() for script in plan.scripts.values())


TRACE = Path(__file__).parents[1] / "data" / "kineto_h200" / "rec_base.json.gz"


def part(name: str, code: str, leaves: str = "") -> Part:
    return Part(name=name, command=(sys.executable, "-c", code), leaves=leaves or f"{name}.txt", limit_s=20.0)


def test_parts_fail_alone_and_those_that_are_done_are_not_played_again(tmp_path: Path) -> None:
    planned = [
        part("good", "print(1)"),
        part("bad", "import sys; sys.exit('no such device')"),
        part("empty", "pass", leaves="nothing.json"),
    ]
    first = play(iter(planned), tmp_path, 60.0)
    assert [each.ended for each in first] == [DONE, FAILED, FAILED]
    assert first[1].said == "exit code 1 / no such device"
    (tmp_path / "good.txt").write_text("kept")
    play(iter(planned[1:2]), tmp_path, 0.0)  # a call that ends before it comes to the others
    again = play(iter([*planned, part("late", "pass")]), tmp_path, 0.0)
    assert (tmp_path / "good.txt").read_text() == "kept"
    assert [each.ended for each in again] == [DONE, SKIPPED, SKIPPED, SKIPPED]


def test_a_part_that_failed_begins_anew_and_takes_what_it_started_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    starts = f"import os, subprocess, sys; os.mkdir({str(folder)!r}); subprocess.Popen(['sleep', '60']); "
    code = starts + "sys.exit(%d)"
    (first,) = play(iter([part("real", code % 1, leaves="run")]), tmp_path, 60.0)
    (second,) = play(iter([part("real", code % 0, leaves="run")]), tmp_path, 60.0)
    assert [each.ended for each in (first, second)] == [FAILED, DONE]
    assert max(first.took_s, second.took_s) < 20


def test_a_part_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (outcome,) = play(iter([part("slow", "import time; time.sleep(60)")]), tmp_path, 1.0)
    assert (outcome.ended, outcome.said) == (FAILED, "took more than 1 s")
    assert outcome.took_s < 30


def test_the_page_holds_measured_beside_predicted_and_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine.json").write_text(json.dumps({"device": "NVIDIA H200", "torch": "2.11.0"}))
    steps = {"step_ms": 5.0, "peak_bytes": 100 << 20}
    (tmp_path / "dlrm.json").write_text(json.dumps(steps))
    (tmp_path / "bert.json").write_text(json.dumps(steps))
    (tmp_path / "rec_base-real").mkdir()  # whose part "plain" failed
    monkeypatch.setattr("benchmarks.gpu_campaign.predictions.store.load", lambda folder: folder)
    monkeypatch.setattr("benchmarks.gpu_campaign.predictions.step_ms", lambda run: 6.0)
    monkeypatch.setattr("benchmarks.gpu_campaign.predictions.recorded_step_ms", lambda run: 7.0)
    predicted = {
        ("dlrm", DATA_SHEET): Predicted(step_ms=4.0, peak_bytes=101 << 20),
        ("dlrm", CALIBRATED): Predicted(step_ms=5.1),
        ("bert", DATA_SHEET): Predicted(why_not="refused: a | b"),
    }
    outcomes = [Outcome(part="plain dlrm", ended=DONE, took_s=7.0), Outcome(part="check", ended=SKIPPED)]
    lines = page(GPU, tmp_path, outcomes, predicted).splitlines()
    assert "| dlrm | 5.000 ms | 4.000 ms, -20.0% | 5.100 ms, +2.0% |" in lines
    assert "| bert | 5.000 ms | refused: a / b |  |" in lines
    assert "| mean of the errors' sizes |  | 20.0% of 1 | 2.0% of 1 |" in lines
    assert "| dlrm | 100 MiB | 101 MiB, +1.0% |" in lines
    assert "| rec_base | 6.000 ms |  |  |" in lines
    assert "1 of 2 parts were measured." in lines
    assert lines[lines.index("## Traces") + 2] == "Nothing was measured."
    shutil.copy(TRACE, tmp_path / "dlrm.trace.json.gz")
    (line,) = [each for each in page(GPU, tmp_path, outcomes, predicted).splitlines() if "dlrm.trace.json.gz" in each]
    assert "of the computing kernels' time is in rows" in line


SCRIPT = """
import torch
model = torch.nn.Linear(64, 64)
first, second = (torch.optim.SGD(each, lr=0.1) for each in ([model.weight], [model.bias]))
for _ in range(100):
    model(torch.ones(8, 64)).sum().backward()
    first.step()
    second.step()
"""


def test_a_plain_run_times_the_steps_of_the_first_optimizer_and_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    files = ["--out", str(tmp_path / "steps.json"), "--trace", str(tmp_path / "trace.json.gz")]
    counts = ["--steps", "6", "--warm-up", "2"]
    command = [sys.executable, "-m", "benchmarks.gpu_campaign.plain", *files, *counts, str(tmp_path / "train.py")]
    subprocess.run(command, check=True, timeout=100)
    found = json.loads((tmp_path / "steps.json").read_text())
    assert found["steps"] == 6
    assert 0 < found["least_ms"] <= found["step_ms"] <= found["most_ms"]
    assert (tmp_path / "trace.json.gz").stat().st_size > 1000
    short = [*command[:-5], "--steps", "600", "--warm-up", "2", command[-1]]
    done = subprocess.run(short, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "ended before 602 steps" in done.stderr


def test_without_a_device_the_command_says_what_it_expects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main([str(tmp_path / "out")]) == 2
    assert "no CUDA device; expected one, or --device cpu, or --only predict" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_rehearsal_on_a_cpu_measures_and_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main([str(tmp_path), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "5 of 5 parts were measured." in text
    assert "| transformer |" in text
    shutil.rmtree(tmp_path / "predicted")
    assert campaign.main([str(tmp_path), "--device", "cpu", "--only", "predict"]) == 0
    assert "| dlrm |" in (tmp_path / "page.md").read_text()
