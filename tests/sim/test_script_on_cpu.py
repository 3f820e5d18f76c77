"""What a script computes on CPUs in a step beside a GPU takes the host's time, where it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.host_costs import LOOP_TURNS, Eager
from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import SCRIPTS, play_script
from tests.sim.test_gpu_script import steps_ns as all_steps_ns
from tests.sim.test_script_recording import keep, make, play

EAGER = Eager()
# What a loop takes is measured, and what runs beside others is seen with them: such tests are slow ones, as
# CI has other things to do beside them.
AS_MEASURED = 0.35


def steps_ns(recording: Recording) -> list[int]:
    """Return the time of each step but the first."""
    return all_steps_ns(recording)[1:]


def of_line(what: str, recording: Recording) -> str:
    """Return what is said of the CPU's work, all of which is of this and has its line."""
    (words,) = recording.info.on_cpu
    assert re.search(rf"{re.escape(what)} \(on_cpu\.py:\d+\)", words), words
    return words


def on_cpu(*words: object, steps: int = 4) -> Recording:
    return play_script(SCRIPTS / "on_cpu.py", *map(str, words), ranks=(1, 1), steps=steps)


@pytest.fixture(scope="module")
def nothing_ns() -> int:
    (step_ns,) = set(steps_ns(on_cpu("nothing")))
    return step_ns


@pytest.mark.slow
def test_operators_take_what_a_core_moves_and_computes(nothing_ns: int) -> None:
    """8 MB are read and written; a product's arithmetic takes longer than its bytes."""
    recording = on_cpu("operator")
    moved_ns = 1e9 * 2 * (4 << 21) / EAGER.cpu_bytes_per_s
    assert steps_ns(recording) == [pytest.approx(nothing_ns + moved_ns, abs=20_000)] * 3
    assert of_line("ms per step of operators on CPU tensors", recording).startswith("1.4 ")
    product_ns = 1e9 * 2 * 1024**3 / EAGER.cpu_flops_per_s
    assert steps_ns(on_cpu("product")) == [pytest.approx(nothing_ns + product_ns, abs=20_000)] * 3


@pytest.mark.supports("operators on CPU tensors, NumPy, loops beside the GPU", "GPUs")
def test_predictions_of_a_script_are_reproducible() -> None:
    first, second = on_cpu("metric"), on_cpu("metric")
    assert first.spans == second.spans
    assert first.info.on_cpu == second.info.on_cpu


@pytest.mark.slow
def test_a_python_loop_takes_time_per_iteration(nothing_ns: int) -> None:
    recording = on_cpu("loop", 20 * LOOP_TURNS)
    found = sorted(steps_ns(recording))[1]
    assert found - nothing_ns == pytest.approx(20 * EAGER.loop_ns, rel=AS_MEASURED)


@pytest.mark.slow
def test_loading_in_the_scripts_process_is_in_the_step(nothing_ns: int) -> None:
    recording = on_cpu("loader", 5 * LOOP_TURNS)
    found = sorted(steps_ns(recording))[1]
    assert found - nothing_ns == pytest.approx(4 * 5 * EAGER.loop_ns, rel=AS_MEASURED)
    assert of_line("ms per step of data loading in the script's process", recording).endswith(", measured here")


@pytest.mark.slow
def test_a_step_waits_for_workers_that_take_longer(nothing_ns: int) -> None:
    """Two workers load a batch of four samples in half of the time that one takes, as measured in this run."""
    recording = on_cpu("workers 2", 10 * LOOP_TURNS, steps=20)
    found = steps_ns(recording)
    words = of_line("ms per batch in 2 workers", recording)
    batch_ms, waits_ms = map(float, re.findall(r"([\d.]+) ms", words))
    assert batch_ms > 10 * nothing_ns / 1e6
    assert ", measured here, for which a step waits " in words
    assert sum(found) / len(found) == pytest.approx(batch_ms * 1e6 / 2, rel=0.1)
    assert sum(found) / len(found) == pytest.approx(waits_ms * 1e6 + nothing_ns, rel=0.1)


@pytest.mark.slow
def test_measured_work_is_named_and_replayed_unchanged(tmp_path: Path) -> None:
    recording = on_cpu("loop", 20 * LOOP_TURNS)
    assert of_line("ms per step of other work", recording).endswith(", measured here")
    again = play(make(keep(recording, tmp_path)))
    assert again.spans == recording.spans
    assert again.info.on_cpu == recording.info.on_cpu


@pytest.mark.slow
def test_workers_that_are_quick_hide_and_leave_no_trace() -> None:
    first, second = on_cpu("workers 1"), on_cpu("workers 1")
    assert steps_ns(first) == steps_ns(second)
    words = of_line("s per batch in 1 worker", first)
    assert words.startswith("data loading of ")
    assert words.endswith(", measured here, hidden")


def test_cuda_graphs_leave_the_work_on_cpu_tensors(tmp_path: Path) -> None:
    """The host launches a graph after it has computed what the step needs."""
    folder = keep(on_cpu("operator"), tmp_path)
    graphs: dict[str, Any] = {"launching.cuda_graphs": True}
    recording = play(make(folder, **graphs))
    moved_ns = 1e9 * 2 * (4 << 21) / EAGER.cpu_bytes_per_s
    assert steps_ns(recording) == [pytest.approx(moved_ns, abs=100_000)] * 3
    assert "operators on CPU tensors" in recording.info.on_cpu[0]
    assert recording.info.left_out == ()
