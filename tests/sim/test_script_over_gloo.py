"""A script that wants gloo has gloo's calls, of a GPU's tensors through the host; other calls are the scenario's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from scenarios.config.load import load_profile
from scenarios.seam.trace import Recording, Span
from tests.sim.test_gpu_script import SCRIPTS, play_script
from tests.sim.test_script_recording import make, play

HOST = load_profile("dgx_h100").host
SIZE = 4 << 22
assert HOST.inside.host_bytes_per_s is not None
ALIKE = {"profile": "dgx_h100", "ranks": "alike", "payload": "sizes", "steps": 2}
BARRIER = """import sys
import torch
torch.distributed.init_process_group("nccl")
torch.distributed.barrier(torch.distributed.new_group(backend=sys.argv[1]))
parameter = torch.nn.Parameter(torch.ones(4, device="cuda"))
optimizer = torch.optim.SGD([parameter])
for _ in range(3):
    parameter.sum().backward()
    torch.distributed.all_reduce(parameter.grad)
    optimizer.step()
"""
CROSSING_NS = 1e9 * SIZE / HOST.inside.host_bytes_per_s


@cache
def recording(backend: str) -> Recording:
    return play_script(SCRIPTS / "over_gloo.py", backend, ranks=(2, 1), steps=2)


def of_step(backend: str) -> list[Span]:
    return [one for one in recording(backend).spans if (one.rank, one.step) == (1, 1)]


def call(backend: str, size_bytes: int) -> Span:
    (found,) = (one for one in of_step(backend) if one.kind == "all_reduce" and one.bytes_in == size_bytes)
    return found


@pytest.mark.supports("gloo requested on GPUs", "GPUs")
def test_gloo_takes_a_gpus_tensors_through_the_host() -> None:
    """What a call reads is copied behind what was launched before, and what it gives back behind it."""
    make, back = (one for one in of_step("gloo") if one.kind == "compute" and one.stream == call("gloo", SIZE).stream)
    for one in (make, back):
        assert one.end_ns - one.start_ns == pytest.approx(CROSSING_NS, rel=0.05)
    assert make.end_ns <= call("gloo", SIZE).start_ns < call("gloo", SIZE).end_ns <= back.start_ns
    assert not [one for one in of_step("nccl") if one.stream != "main"]


def test_a_ring_of_gloo_sends_as_many_bytes_over_the_network_and_in_more_messages() -> None:
    ends = [call(backend, SIZE) for backend in ("gloo", "nccl")]
    assert ends[0].bytes_sent == ends[1].bytes_sent
    assert ends[0].end_ns - ends[0].start_ns != ends[1].end_ns - ends[1].start_ns


def test_cpu_tensors_of_a_mixed_group_go_over_gloo() -> None:
    """A step with gloo's and NCCL's calls is NCCL's for the GPU's tensors and gloo's for the CPU's."""
    both = "cpu:gloo,cuda:nccl"
    for size_bytes, alone in ((SIZE, "nccl"), (16, "gloo")):
        times = [call(each, size_bytes).end_ns - call(each, size_bytes).start_ns for each in (both, alone)]
        assert times[0] == pytest.approx(times[1], rel=0.02)
    assert recording(both).info.left_out == recording("gloo").info.left_out != recording("nccl").info.left_out


def test_a_call_of_cpu_tensors_waits_for_no_gpu_and_holds_the_host() -> None:
    """The script also asserts it, as it would not end. What is launched after a wait for gloo is launched after it."""
    both = "cpu:gloo,cuda:nccl"
    of_gpu, of_host = call(both, SIZE), call(both, 16)
    assert of_host.start_ns < of_gpu.end_ns  # for which the stream waits
    after = [one for one in of_step(both) if one.kind == "compute" and one.start_ns >= of_host.end_ns]
    assert min(one.start_ns for one in after) > of_host.end_ns


def test_a_call_over_gloo_that_has_all_hosts_simulated_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (script := tmp_path / "barrier.py").write_text(BARRIER)
    hosts: list[set[int]] = []
    for backend in ("gloo", "nccl"):
        hosts.append({one.rank for one in play(make(script, backend, world=(4, 1), **ALIKE)).spans})
        noted = "note: barrier.py:4 barrier uses gloo, so all hosts are simulated"
        assert (noted in capsys.readouterr().err) == (backend == "gloo")
    assert hosts == [{0, 1, 2, 3}, {0}]
