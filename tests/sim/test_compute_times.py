"""Measured times in predictions: a kernel takes them alone, shares as its roofline does, and a whole run has them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from reports.store import run_folder as store
from scenarios.config.compute_times import ComputeCounter, ComputeTime, ComputeTimes
from scenarios.config.load import load
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Span
from scenarios.workloads.build import build
from sim.engine.machine import Machine
from sim.hosts.cores import HostCores
from sim.run import simulate
from tests.commands import command
from tests.sim.engine.test_machine import ends
from tests.small import CORE, GPU, TCP, Play, cluster, scenario
from twinstep.reporting.cli import main as reports

ROOT = Path(__file__).parents[2]
ARITHMETIC = Kernel(kind="test", flops=1e10)  # 1 ms on the tests' GPU
MEMORY = Kernel(kind="test", bytes_read=1e9, launches=3)  # 1 ms


@pytest.mark.parametrize("kernel", [ARITHMETIC, MEMORY, Kernel(kind="test", flops=1e8, bytes_read=1e9)])
@pytest.mark.parametrize("measured_ns", [0, 1, 777, 123_456_789])
@pytest.mark.parametrize("gpu", [GPU, dataclasses.replace(GPU, launch_ns=3_000, ramp_ns=2_000), CORE])
def test_a_kernel_on_an_idle_gpu_takes_its_measured_time(kernel: Kernel, measured_ns: int, gpu: object) -> None:
    """To the ns, whatever of it the roofline says are launches."""
    machine = Machine(cluster(1, 1, gpu=gpu))
    (end_ns,) = ends(machine, machine.kernel(0, kernel, measured_ns=measured_ns))
    assert abs(end_ns - measured_ns) <= 1


def test_a_kernel_on_a_core_takes_its_measured_thread_time() -> None:
    machine = Machine(cluster(1, 1, gpu=CORE, tcp=TCP))
    core = HostCores(machine.clock, machine.fabric.cluster, TCP, None).program(0, "main").run
    assert ends(machine, machine.kernel(0, ARITHMETIC, core, measured_ns=5_000_000)) == [5_000_000]


def test_measured_kernels_share_the_resource_that_bounds_their_rooflines() -> None:
    """Two that arithmetic bounds share it; one that memory bounds has that to itself."""
    for beside, expected_ns in ((ARITHMETIC, [4_000_000, 5_000_000]), (MEMORY, [2_000_000, 3_000_000])):
        machine = Machine(cluster(1, 1))
        first = machine.kernel(0, ARITHMETIC, measured_ns=2_000_000)
        assert ends(machine, first, machine.kernel(0, beside, measured_ns=3_000_000)) == expected_ns


def test_nccl_channels_slow_a_measured_kernel() -> None:
    """Also when its channels are there before: the measurement was on an idle GPU."""
    machine = Machine(cluster(1, 1))
    machine.occupy(machine.fabric.arithmetic[0], 0.5)
    assert ends(machine, machine.kernel(0, ARITHMETIC, measured_ns=3_000_000)) == [6_000_000]


def compute(spans: list[Span]) -> list[tuple[str, int]]:
    return [(span.label, span.end_ns - span.start_ns) for span in spans if span.kind == "compute"]


def test_computations_of_a_program_take_their_times_by_label_and_call() -> None:
    async def play(rank: Rank) -> None:
        await rank.compute(ARITHMETIC, int, label="a")
        for index in range(2):
            with rank.step(index):
                for label in ("a", "b", "a", ""):
                    await rank.compute(ARITHMETIC, int, label=label)
                await rank.compute(Kernel(kind="test", launches=0), int, label="idle")

    rows = (("a", 2, 5_000), ("b", None, 7_000), ("test", None, 9_000), ("idle", None, 1_000))
    times = ComputeTimes(
        path=Path("t.csv"), rows=tuple(ComputeTime(label=label, call=call, time_ns=ns) for label, call, ns in rows)
    )
    spans = simulate(scenario(cluster(1, 1), steps=2, compute_times=times), Play(play)).spans
    step = [("a", 1_000_000), ("b", 7_000), ("a", 5_000), ("test", 9_000), ("idle", 0)]
    assert compute(spans) == [("a", 1_000_000), *step, *step]


def test_a_measured_kernel_begins_when_the_host_has_launched_it() -> None:
    """Launches go on at the host's pace, but those within a measured kernel are in its time."""

    async def play(rank: Rank) -> None:
        with rank.step(0):
            await rank.compute(MEMORY, int, label="measured")
            await rank.compute(ARITHMETIC, int, label="next")

    times = ComputeTimes(path=Path("t.csv"), rows=(ComputeTime(label="measured", call=None, time_ns=20_000),))
    slow = cluster(1, 1, gpu=dataclasses.replace(GPU, launch_ns=10_000))
    spans = simulate(scenario(slow, compute_times=times), Play(play)).spans
    first, second = (span for span in spans if span.kind == "compute")
    assert (first.start_ns, first.end_ns) == (0, 30_000)  # one launch of 10 us, then 20 us
    assert second.end_ns == 40_000 + 1_000_000  # after four launches


SMALL = """
program = "dlrm"

[run]
steps = 4
batch_size = 16
payload = "values"

[cluster]
hosts = 1
gpus_per_host = 2
cores = 2
host_memory = "8 GiB"
gpu = {kind = "cpu", memory = "1 GiB", memory_rate = "10 GB/s", flops = {float32 = "50 GFLOP/s"}, launch = "2 us"}
inside = {kind = "memory", rate = "2 GB/s", latency = "20 us", bridge_rate = "4 GB/s"}
nic = {per = "host", count = 1, rate = "1 Gbit/s", latency = "30 us"}

[model]
dense_features = 4
bottom = [8, 8]
top = [8, 1]
interaction = {kind = "dot"}
embedding_dim = 8
tables = [{name = "a", rows = 100, ids_per_sample = 2, sharding = ["row_wise"]}]

[buckets]
first = "128 B"
cap = "256 B"
"""

# Nothing else can be under way beside these, however long the others take.
ALONE = {
    *((f"row_wise.{part}", 1) for part in ("input_dist.bucketize", "input_dist.recat", "lookup")),
    *((label, 1) for label in ("dense.forward.1", "dense.backward.0", "dense.update")),
}


@pytest.mark.real
def test_a_prediction_uses_the_compute_times_of_a_real_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every computation that is alone on its rank takes the mean of its label and call, to the ns."""
    file, folder, csv = tmp_path / "small.toml", tmp_path / "real", tmp_path / "times.csv"
    file.write_text(SMALL)
    done = command("real", file, "--out", folder, "--quiet")
    assert done.returncode == 0, done.stderr
    assert reports(["times", str(folder), "--csv", str(csv)]) == 0
    assert re.search(
        r"steps?\s+0(-\d+)?\s+left out", capsys.readouterr().err
    )  # all that warms up, on a busy machine more

    timed = load(file, {"compute_times": str(csv)})
    assert timed.run.compute_times is not None
    predicted = simulate(timed, build(timed))
    calls, compared = ComputeCounter(timed.run.compute_times), set()
    for span in predicted.spans:
        if span.kind != "compute":
            continue
        row = calls.next(span.rank, span.stream, span.step, span.label, cost=span)
        assert row is not None, f"{span.label} is measured"
        took_ns = span.end_ns - span.start_ns
        assert took_ns >= row.time_ns - 1
        if is_alone(span, predicted.spans):
            assert abs(took_ns - row.time_ns) <= 1
            compared.add((row.label, row.call))
    assert compared >= ALONE
    known = [(row.label, row.call) for row in timed.run.compute_times.rows]
    assert [call for label, call in known if label == "dense.gradients.bucket"] == [1, 2, 3]
    assert predicted.info.digest == store.load(folder).info.digest  # so the two compare


def is_alone(one: Span, spans: list[Span]) -> bool:
    return not any(
        other is not one
        and (other.kind, other.rank) == ("compute", one.rank)
        and other.start_ns < one.end_ns
        and one.start_ns < other.end_ns
        for other in spans
    )
