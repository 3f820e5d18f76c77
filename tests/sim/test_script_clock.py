"""Scripts read simulated time, so what they print of their steps is what is predicted of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

import pytest

from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import SCRIPTS, play_script, steps_ns
from tests.sim.test_script_recording import keep, make, play
from tests.small import with_free_host

# What the readings of one step take, 1 us each, and a launch.
READINGS_MS = 0.02


STEPS = """
dist.init_process_group("nccl")
model = torch.nn.Linear(8, 8, device="cuda")
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.ones(8, device="cuda")).sum().backward()
    dist.all_reduce(model.weight.grad)
    optimizer.step()
"""


def steps_ms(recording: Recording) -> list[float]:
    """Return how long the whole steps of rank 0 took; the script ends in another one."""
    return [step_ns / 1e6 for step_ns in steps_ns(recording)][:3]


@pytest.mark.supports("times that the script takes (`time`, CUDA events)", "GPUs")
def test_a_script_on_gpus_reads_predicted_times(tmp_path: Path) -> None:
    """Of each clock and of events, of each step after the first."""
    file = tmp_path / "times.json"
    recording = play_script(SCRIPTS / "timed.py", str(file), ranks=(1, 2), steps=9, has_free_host=True)
    _, *found = json.loads(file.read_text())
    expected = steps_ms(recording)
    assert len(found) == len(expected) == 3
    for times, step in zip(found, expected, strict=True):
        assert len(times) == 8
        assert times == pytest.approx([step] * 8, abs=READINGS_MS)
    again = play(with_free_host(make(keep(recording, tmp_path / "run"))))  # which reads no time
    assert steps_ms(again) == expected


@pytest.mark.supports("times that the script takes (`time`, CUDA events)", "CPUs")
def test_a_script_on_cpus_reads_predicted_times(tmp_path: Path) -> None:
    """What lies between the end of the optimizer's step and the reading belongs to another step."""
    file = tmp_path / "times.json"
    recording = play_script(SCRIPTS / "timed.py", str(file), profile="emulated_200mbit", ranks=(2, 1), steps=9)
    _, *found = json.loads(file.read_text())
    assert len(found) == 3
    for times, step in zip(found, steps_ms(recording), strict=True):
        assert len(times) == 7
        assert times == pytest.approx([step] * 7, rel=0.1)


def test_sleep_on_a_cpu_counts_in_its_step(tmp_path: Path) -> None:
    """As on a real host; also where the recording is played again."""
    (file := tmp_path / "sleeps.py").write_text(
        "import time, torch\nlayer = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(layer.parameters())\n"
        "for _ in range(4):\n    layer(torch.ones(8)).sum().backward()\n    optimizer.step()\n    time.sleep(0.2)\n"
    )
    recording = play_script(file, profile="emulated_200mbit", ranks=(1, 1), steps=3)
    assert steps_ms(recording) == pytest.approx([200] * 3, rel=0.2)
    assert steps_ms(play(make(keep(recording, tmp_path / "run")))) == steps_ms(recording)


@pytest.mark.parametrize(("ranks", "count"), [("each", 0), ("alike", 1)])
@pytest.mark.slow
def test_reading_the_clock_before_the_simulation_is_reported(ranks: str, count: int, tmp_path: Path) -> None:
    """Once, by a process whose stderr only a command of its own has."""
    (file := tmp_path / "reads.py").write_text(
        "import time, torch, torch.distributed as dist\ntime.time()\ntime.perf_counter()\n" + STEPS
    )
    words = ["-m", "sim", "--profile", "dgx_h100", "--gpus-per-host", "2", "--ranks", ranks, "--out", tmp_path / "run"]
    ended = run([sys.executable, *map(str, words), str(file)], capture_output=True, text=True, check=True)
    assert ended.stderr.count("note: times that the script reads are of this machine, not simulated") == count
