"""What scripts launch and poll beside torch's operators: Triton's kernels, captured callables, events, nvidia-smi."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.seam.errors import ProgramError
from scenarios.workloads.build import build
from scenarios.workloads.script.gpu.cuda.properties import SeenGpu, install_smi
from tests.sim.test_gpu_script import ROOT, SCRIPTS, play_script, steps_ns
from tests.sim.test_script_recording import keep, make, play


@pytest.mark.supports("`Event.query`, `Stream.query`, `Work.is_completed`", "GPUs")
def test_polls_end_in_simulated_time(tmp_path: Path) -> None:
    """The script asserts it; a recording repeats each poll, so that it is the same run."""
    live = play(make(SCRIPTS / "polls.py", world=(1, 2), profile="dgx_h100", steps=2))
    again = play(make(keep(live, tmp_path / "run")))
    assert again.spans == live.spans
    assert again.kept == live.kept


LAUNCHING_NS = 150_000  # for the host, behind a look that finds something over
POLLED_BEFORE_A_KERNEL = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
optimizer, big, side = torch.optim.SGD([weight]), torch.empty(1 << 24, device="cuda"), torch.cuda.Stream()
for _ in range(3):
    weight.grad = torch.ones(8, device="cuda")
    work, event = dist.all_reduce(big, async_op=True), torch.cuda.Event()
    while not work.is_completed():
        pass
    with torch.cuda.stream(side):
        big.mul_(2)
        event.record()
    while not event.query():
        pass
    optimizer.step()
"""


@pytest.mark.parametrize(("recorded", "played_on"), [("dgx_h100", "a100_pcie"), ("a100_pcie", "dgx_h100")])
def test_a_recording_of_polls_waits_as_long_as_the_hardware_takes(
    recorded: str, played_on: str, tmp_path: Path
) -> None:
    """A kernel on another stream starts where the call has ended, and the optimizer's where that kernel has."""
    (file := tmp_path / "train.py").write_text(POLLED_BEFORE_A_KERNEL)
    live = play(make(file, world=(1, 2), profile=recorded, steps=2))
    other = play(make(keep(live, tmp_path / "run"), profile=played_on))
    took = []
    for recording in (live, other) if played_on == "a100_pcie" else (other, live):
        own = [span for span in recording.spans if (span.rank, span.step) == (0, 1)]
        (call,) = (span for span in own if span.kind == "all_reduce")
        (kernel,) = (span for span in own if span.kind == "compute" and span.stream != "main")
        (update,) = (span for span in own if span.label == "SGD.step")
        assert 0 <= kernel.start_ns - call.end_ns < LAUNCHING_NS
        assert 0 <= update.start_ns - kernel.end_ns < LAUNCHING_NS
        took.append(call.end_ns - call.start_ns)
    assert took[1] > 2 * took[0]


POLLED_ON_CPUS = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.ones(8)).sum().backward()
    work, began = dist.all_reduce(model.weight.grad, async_op=True), time.perf_counter()
    while time.perf_counter() - began < 0.05:
        pass
    while not work.is_completed():
        pass
    assert time.perf_counter() - began >= 0.05
    optimizer.step()
"""


def test_cpu_time_before_a_poll_counts_in_the_step(tmp_path: Path) -> None:
    """Each step computes for 50 ms between the issue of a call and the first look at the call."""
    (file := tmp_path / "train.py").write_text(POLLED_ON_CPUS)
    recording = play_script(file, ranks=(2, 1), profile="emulated_200mbit")
    steps = steps_ns(recording)
    assert len(steps) == 2
    assert min(steps) >= 50_000_000


def test_a_recording_of_polls_with_sleeps_ends_where_the_call_is_over(tmp_path: Path) -> None:
    """Where the network is faster no sleep follows the first look that says yes."""
    file = tmp_path / "train.py"
    body = POLLED_ON_CPUS.replace("ones(8)", "ones(8192)").replace("Linear(8, 8)", "Linear(8192, 128)")
    body = body.replace("is_completed():\n        pass", "is_completed():\n        time.sleep(0.02)")
    file.write_text(body.replace("0.05", "0"))
    live = play(make(file, world=(2, 1), profile="emulated_200mbit", steps=2))
    other = play(make(keep(live, tmp_path / "run"), profile="cpu_local"))
    own = [span for each in (live, other) for span in each.spans if (span.rank, span.step) == (0, 1)]
    slow, fast = (span for span in own if span.kind == "all_reduce")
    assert slow.end_ns - slow.start_ns > 120_000_000
    (_, step) = (span for span in own if span.kind == "step")
    assert step.end_ns - fast.start_ns < 80_000_000


@pytest.mark.supports("`torch.cuda.make_graphed_callables`", "GPUs")
def test_a_captured_callable_is_one_launch_a_pass() -> None:
    """Forward and backward; the graphs compute what the module does, and what is left out is no gradient."""
    graphed, plain = (play_script(SCRIPTS / "graphed.py", *args, ranks=(1, 1)) for args in ((), ("plain",)))
    own = [span for span in graphed.spans if span.step == 1 and span.kind == "compute"]
    graphs = [span for span in own if span.label == "CUDA graph"]
    layer = 2 * 32 * 64 * 64
    assert [span.flops for span in graphs] == [2 * layer, 3 * layer]
    flops = [sum(span.flops for span in each.spans if span.step == 1) for each in (graphed, plain)]
    assert flops[0] == flops[1]


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put Triton's interface on the path of ranks; their server, which later tests share, starts without it."""
    build(make(SCRIPTS / "smi.py", world=(1, 1), profile="dgx_h100"))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "data" / "stand_ins"))


@pytest.mark.usefixtures("triton")
@pytest.mark.supports("kernels of Triton (`@triton.jit`, autotuned, in `torch.library.triton_op`)", "GPUs")
def test_kernels_of_triton_have_the_bytes_of_their_arguments() -> None:
    """Each tensor of them counts once; a kernel within an operator has the operator's price."""
    recording = play_script(SCRIPTS / "launches_triton.py", ranks=(1, 1))
    own = [span for span in recording.spans if span.step == 1 and span.kind == "compute"]
    found = [span.bytes_read + span.bytes_written for span in own if span.label != "SGD.step"]
    size = 4 * 1024 * 1024
    ids, both, in_operator = 2 * 4 * 8, 2 * size + 2 * size, 2 * size
    assert [moved for moved in found if moved in (ids, both, in_operator)] == [ids, both, in_operator, in_operator]


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("name", ["", "doubled", "with_itself"])
def test_kernels_of_triton_have_no_values(tmp_path: Path, name: str) -> None:
    """By themselves or in an operator: what they would compute is not made up."""
    source, _, _ = (SCRIPTS / "launches_triton.py").read_text().partition("weight = ")
    file = tmp_path / "train.py"
    call = f"{name}(x)" if name else "double[(8,)](x, x, 8)"
    file.write_text(f'{source}x = torch.ones(8, device="cuda")\n{call}\n')
    sentence = "RuntimeError: kernels of Triton have no values on simulated GPUs: expected --play record"
    with pytest.raises(ProgramError, match=sentence):
        play_script(file, ranks=(1, 1), payload="values")


def test_a_script_without_triton_is_told_to_install_it(tmp_path: Path) -> None:
    """No module of that name is found, whether or not Triton is installed."""
    (file := tmp_path / "train.py").write_text("import sys\nsys.modules['triton'] = None\nimport triton\n")
    with pytest.raises(ProgramError, match=r"^rank 0: \S*train.py:3: ModuleNotFoundError: .* \(pip install triton: "):
        play_script(file, ranks=(1, 1))


def test_nvidia_smi_lists_the_simulated_gpus() -> None:
    """The script asserts it."""
    play_script(SCRIPTS / "smi.py", ranks=(1, 2))


def test_nvidia_smi_runs_by_a_python_whose_path_has_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does its own folder."""
    python = tmp_path / "a python's" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    gpu = SeenGpu(
        count=2,
        name="H100",
        memory_bytes=2**30,
        l2_bytes=1.0,
        l2_total_bytes=1,
        has_values=False,
        capability=(9, 0),
        multiprocessors=132,
    )
    install_smi(tmp_path / "of rank 0", gpu)
    assert subprocess.check_output(["nvidia-smi", "-i", "1"], text=True) == "GPU 1: H100 (simulated), 1024 MiB\n"
