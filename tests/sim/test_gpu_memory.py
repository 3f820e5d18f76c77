"""Memory of a simulated GPU: what torch traces takes none, what is deleted is free, and sharded training fits."""

from __future__ import annotations

import pytest

from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import SCRIPTS, play_script, recorded_steps

WAYS = (
    *("nothing", "fake", "fake of real", "export", "make_fx", "make_fx of symbols", "aot", "meta", "meta context"),
    *("meta default", "to meta", "to the CPU", "f", "make_fx of what is real", "functionalized"),
)
RUNS = WAYS[-3:]
WORKSPACES = 2 * (32 << 20)  # cuBLAS's on an H100, of the threads of forward and backward passes


@pytest.mark.parametrize("way", ["default", "fused", pytest.param("foreach", marks=pytest.mark.slow)])
def test_sharded_training_takes_its_shards_and_some_layers(way: str) -> None:
    """The script asserts it, of its first step as of later ones."""
    row = play_script(SCRIPTS / "shards.py", way, ranks=(1, 2), steps=3).memory[0]
    shards = 16 * 256 * 256 * 4 // 2
    assert 4 * shards < row.size_bytes - WORKSPACES < 6 * shards


@pytest.fixture(scope="module")
def traces() -> Recording:
    return play_script(SCRIPTS / "traces.py", ranks=(1, 1), steps=len(WAYS))


def kernels(recording: Recording) -> dict[str, int]:
    """Return how many kernels are launched in each way's step."""
    counts = [sum(line[0] == "kernel" for line in step) for step in recorded_steps(recording)]
    return dict(zip(WAYS, counts[1:], strict=False))


def test_tracing_alone_launches_no_kernel(traces: Recording) -> None:
    """Nor does it take memory, which the script asserts."""
    launched = kernels(traces)
    assert list(launched) == list(WAYS)
    assert {launched[way] for way in WAYS if way not in RUNS} == {launched["nothing"]}


def test_tracing_by_execution_launches_the_executed_kernels(traces: Recording) -> None:
    launched = kernels(traces)
    assert launched["f"] > launched["nothing"]
    assert {launched[way] for way in RUNS} == {launched["f"]}


def test_deleted_tensors_free_their_memory() -> None:
    """The script asserts it."""
    play_script(SCRIPTS / "frees.py", ranks=(1, 2), steps=20)


@pytest.mark.torchrec
@pytest.mark.usefixtures("fbgemm")
def test_deleted_tables_are_free() -> None:
    """The script asserts it of fbgemm's."""
    play_script(SCRIPTS / "frees.py", "bags", ranks=(1, 1), steps=1)
