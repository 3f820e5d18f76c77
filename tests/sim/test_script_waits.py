"""The host of a script waits where the script reads what a GPU gives, and launches on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load_profile
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import product
from scenarios.seam.trace import Recording, Span
from sim.engine.prices import Prices
from tests.sim.test_gpu_script import SCRIPTS, play_script, recorded_steps, steps_ns
from tests.sim.test_script_recording import keep, make, play
from tests.small import with_free_host

PRICES = Prices(load_profile("dgx_h100").host.gpu)
LAUNCH_NS = 4_000
LONG_NS = 1e9 * PRICES.seconds(product(4096, 4096, 4096, dtype="float32", element_bytes=4))
SHORT_NS = 1e9 * PRICES.seconds(contiguous("add_", 1024, "float32"))
COPY_NS = 2_000  # what the shortest kernel takes; 4 KB cross the path to the host in 75 ns
SHORT = 20
COPIES = {"item": 1, "float": 1, "if": 1, "tolist": 1, "cpu": 1, "copy_": 1}  # waits that read
WAITS = (*COPIES, "stream", "device", "event")
WAITS_WITH_KERNELS = ("nonzero", "mask", "equal", "to the GPU")
GOES_ON = ("of the CPU", "earlier event", "other stream")
WITH_CALLS = ("item behind a call", "device behind a call", "item behind a call that was waited for")
WAYS = (
    "nothing",
    *WAITS,
    "thrice",
    *WAITS_WITH_KERNELS,
    "of the CPU",
    "non_blocking",
    *GOES_ON[1:],
    "index",
    *WITH_CALLS,
)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return play_script(SCRIPTS / "reads.py", ranks=(1, 2), steps=len(WAYS), has_free_host=True)


def spans(recording: Recording, way: str) -> list[Span]:
    """Of rank 0 in the step that waits in this way."""
    return [span for span in recording.spans if (span.rank, span.step) == (0, WAYS.index(way))]


def step_ns(recording: Recording, way: str) -> int:
    return steps_ns(recording)[WAYS.index(way)]


def request(recording: Recording, way: str) -> list[Any]:
    """The waits that a step has asked for."""
    return [line for line in recorded_steps(recording)[1 + WAYS.index(way)] if line[0].startswith("synchronize")]


def test_launches_behind_a_wait_are_exposed(recording: Recording) -> None:
    """The long kernel hides those of the short ones behind it, unless the host waits for it."""
    hidden_ns = LAUNCH_NS + LONG_NS + SHORT * SHORT_NS
    exposed_ns = LAUNCH_NS + LONG_NS + SHORT * LAUNCH_NS
    assert step_ns(recording, "nothing") == pytest.approx(hidden_ns, abs=SHORT * 5)
    expected = {way: exposed_ns + COPIES.get(way, 0) * COPY_NS for way in WAITS}
    assert {way: step_ns(recording, way) for way in WAITS} == pytest.approx(expected, abs=100)
    again_ns = exposed_ns + 2 * COPY_NS + LAUNCH_NS  # the second copy is launched behind the first
    assert step_ns(recording, "thrice") == pytest.approx(again_ns, abs=100)
    for way in WAITS_WITH_KERNELS:
        assert step_ns(recording, way) > exposed_ns


def test_operations_without_gpu_reads_do_not_wait(recording: Recording) -> None:
    assert {step_ns(recording, way) for way in GOES_ON} == {step_ns(recording, "nothing")}
    assert step_ns(recording, "index") < step_ns(recording, "item")
    alone_ns = step_ns(recording, "nothing")
    assert step_ns(recording, "non_blocking") == pytest.approx(alone_ns + COPY_NS, abs=100)
    for way in ("of the CPU", "non_blocking", "index"):
        assert len(request(recording, way)) == len(request(recording, "nothing"))


def test_an_idle_stream_is_not_waited_for_again(recording: Recording) -> None:
    at_end = request(recording, "nothing")
    assert len(at_end) <= 1
    assert len(request(recording, "item")) == len(at_end) + 1
    assert len(request(recording, "thrice")) == len(at_end) + 2  # a read each, and the stream is idle then


def test_a_stream_is_waited_for_without_calls_under_way_and_a_device_with_them(recording: Recording) -> None:
    for way, is_behind in zip(WITH_CALLS, (False, True, True), strict=True):
        own = spans(recording, way)
        (call,) = (span for span in own if span.kind == "all_reduce")
        last = max((span for span in own if span.kind == "compute"), key=lambda span: span.start_ns)
        assert (last.issued_ns >= call.end_ns) == is_behind, way


def test_a_replay_has_the_recordings_waits(recording: Recording, tmp_path: Path) -> None:
    folder = keep(recording, tmp_path)
    assert play(with_free_host(make(folder))).spans == recording.spans
    alike = play(with_free_host(make(folder, ranks="alike")))
    own = [
        [(span.label, span.start_ns, span.end_ns) for span in run.spans if span.rank == 0] for run in (alike, recording)
    ]
    assert own[0] == own[1]


def test_a_single_rank_of_a_class_may_read_a_value(tmp_path: Path) -> None:
    """As the last rank prints the loss."""
    (file := tmp_path / "prints.py").write_text(
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "x = torch.ones(8, device='cuda')\noptimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones_like(x))])\n"
        "for _ in range(9):\n x.add_(1)\n if dist.get_rank() == 127:\n  x[0].item()\n"
        " x.mul_(2)\n dist.all_reduce(x)\n optimizer.step()\n"
    )
    made = play(make(file, world=(16, 8), profile="dgx_h100", steps=2))
    assert {span.rank for span in made.spans} == set(range(128))


@pytest.mark.parametrize("profile", ["emulated_200mbit", "dgx_h100"])
def test_a_thread_that_waits_for_a_call_holds_the_steps_of_its_rank_not_back(profile: str, tmp_path: Path) -> None:
    """As a checkpoint in a thread of its own: rank 1's thread begins its call after both ranks' next steps."""
    (file := tmp_path / "beside.py").write_text(
        """import threading
import torch
import torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
device = torch.device("cuda", dist.get_rank()) if torch.cuda.is_available() else torch.device("cpu")
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
beside, begun, may_begin = dist.new_group(backend="gloo"), threading.Event(), threading.Event()


def call():
    if dist.get_rank() == 1:
        may_begin.wait()
    work = dist.all_reduce(torch.ones(4), group=beside, async_op=True)
    begun.set()
    work.wait()


thread = threading.Thread(target=call)
for step in range(4):
    model(torch.ones(2, 8, device=device)).sum().backward()
    if step == 1:
        thread.start()
        if dist.get_rank() == 0:
            begun.wait()
            threading.Event().wait(0.05)  # until its thread waits for the other rank's
    dist.all_reduce(model.weight.grad)
    print(model.weight.grad.sum().item())
    optimizer.step()
    if step == 2:
        may_begin.set()
        thread.join()
"""
    )
    run = play_script(file, profile=profile, ranks=(1, 2), steps=3)
    assert len(steps_ns(run)) == 3


@pytest.mark.parametrize("profile", ["emulated_200mbit", "dgx_h100"])
def test_a_comm_hook_may_wait_for_the_future_of_its_call(profile: str, tmp_path: Path) -> None:
    (file := tmp_path / "waits.py").write_text(
        """import torch
import torch.distributed as dist
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group()
device = torch.device("cuda", dist.get_rank()) if torch.cuda.is_available() else torch.device("cpu")


def hook(state, bucket):
    summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future().wait()[0]
    done = torch.futures.Future()
    done.set_result(summed / 2)
    return done


first, second = (torch.nn.Linear(4, 4, bias=False, device=device) for _ in range(2))
optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
if device.type == "cuda":  # torch's hook for it waits, too, and needs a GPU
    _apply_optimizer_in_backward(torch.optim.SGD, second.parameters(), {"lr": 1.0})
first, second = DistributedDataParallel(first), DistributedDataParallel(second)
first.register_comm_hook(None, hook)
for _ in range(3):
    x = torch.full((1, 4), 1.0 + 2 * dist.get_rank(), device=device)
    optimizer.zero_grad()
    (first(x) + second(x)).sum().backward()
    if device.type == "cpu":
        assert torch.equal(first.module.weight.grad, torch.full((4, 4), 2.0))
    optimizer.step()
"""
    )
    assert len(steps_ns(play_script(file, profile=profile, ranks=(1, 2), steps=2))) == 2
