"""What torch.compile is given is priced as the kernels that a compiler would make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import played

BODY = """
import sys
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
HOW = sys.argv[1]


class Gelu(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


model = nn.Sequential(nn.Linear(2048, 2048), Gelu(), nn.Linear(2048, 2048), Gelu()).cuda()
call = model
if HOW == "module":
    call = torch.compile(model)
elif HOW == "here":
    model.compile()
elif HOW == "function":
    call = torch.compile(lambda x: model(x))
elif HOW == "decorator":
    call = torch.compile(dynamic=False)(lambda x: model(x))
elif HOW == "disabled":
    call = torch.compile(model, disable=True)
if HOW == "ddp":
    call = torch.compile(nn.parallel.DistributedDataParallel(model))
sgd = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
x = torch.randn(8192, 2048, device="cuda")
for _ in range(5):
    call(x).square().mean().backward()
    sgd.step()
    sgd.zero_grad()
"""


def run(tmp_path: Path, how: str) -> Recording:
    file = tmp_path / "train.py"
    file.write_text(BODY)
    return played(file, how, profile="hgx_h200", ranks=(1, 1), steps=2)


def figures(recording: Recording) -> tuple[int, float, float]:
    """Return the last step's time in ns, its flops and the bytes that it moves."""
    spans = [span for span in recording.spans if span.step == 1]
    (step,) = [span for span in spans if span.kind == "step"]
    computed = [span for span in spans if span.kind == "compute"]
    moved = sum(span.bytes_read + span.bytes_written for span in computed)
    return step.end_ns - step.start_ns, sum(span.flops for span in computed), moved


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, float, float]:
    return figures(run(tmp_path_factory.mktemp("eager"), "eager"))


@pytest.mark.parametrize("how", ["module", "here", "function", "decorator", "ddp"])
def test_elementwise_operators_join_forward_and_back(tmp_path: Path, how: str, eager: tuple[int, float, float]) -> None:
    """The same arithmetic in less than half of the bytes: each activation has eight operators forward and more back."""
    took_ns, flops, moved = figures(run(tmp_path, how))
    assert flops == pytest.approx(eager[1], rel=0.02)  # DDP divides gradients
    assert moved < 0.5 * eager[2]
    assert took_ns < 0.85 * eager[0]


def test_what_is_not_compiled_stays_as_it_is(tmp_path: Path, eager: tuple[int, float, float]) -> None:
    assert figures(run(tmp_path, "disabled")) == eager
