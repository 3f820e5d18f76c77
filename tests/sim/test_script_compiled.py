"""What torch.compile is given is priced as the kernels that a compiler would make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import play_script

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
    (file := tmp_path / "train.py").write_text(BODY)
    return play_script(file, how, profile="hgx_h200", ranks=(1, 1), steps=2)


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
@pytest.mark.supports("`torch.compile`", "GPUs")
def test_elementwise_operators_join_forward_and_back(tmp_path: Path, how: str, eager: tuple[int, float, float]) -> None:
    """The same arithmetic in less than half of the bytes: each activation has eight operators forward and more back."""
    took_ns, flops, moved = figures(run(tmp_path, how))
    assert flops == pytest.approx(eager[1], rel=0.02)  # DDP divides gradients
    assert moved < 0.5 * eager[2]
    assert took_ns < 0.85 * eager[0]


def test_disabled_compilation_changes_no_figure(tmp_path: Path, eager: tuple[int, float, float]) -> None:
    assert figures(run(tmp_path, "disabled")) == eager


MEMORY = """
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

dist.init_process_group("nccl")
N, D, V = 4096, 1024, 8192
half, single = N * V * 2, N * V * 4  # of logits


class Gelu(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


x = torch.randn(N, D, device="cuda")
target = torch.randint(V, (N,), device="cuda")
head = nn.Linear(D, V, bias=False, device="cuda")
short = nn.Linear(D, V, bias=False, device="cuda", dtype=torch.bfloat16)
deep = nn.Sequential(nn.Linear(D, D), Gelu(), nn.Linear(D, D), Gelu()).cuda()
added = nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, D, bias=False)).cuda()
dropping = nn.Sequential(nn.Linear(D, D), nn.Dropout(0.1), nn.Linear(D, D)).cuda()
optimizer = torch.optim.SGD([*head.parameters(), *short.parameters(), *deep.parameters(), *dropping.parameters()])
optimizer.add_param_group({"params": list(added.parameters())})


def autocast_loss(x):
    with torch.autocast("cuda", torch.bfloat16):
        return F.cross_entropy(head(x), target)


def policy(context, operator, *_, **__):
    return CheckpointPolicy.MUST_SAVE if operator == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


def products_kept(x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(lambda x: x + added(x), x, use_reentrant=False, context_fn=contexts)


def loss_alone(function):
    return lambda x: function(short(x.bfloat16()))


def of_logits(logits):
    return F.cross_entropy(logits.float(), target)


def measured(call):
    "Return the bytes that are there for a backward pass, and at most in it, beside those of before."
    optimizer.zero_grad()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss = call(x)
    kept = torch.cuda.memory_allocated() - before
    loss.mean().backward()
    peak = torch.cuda.max_memory_allocated() - before
    del loss
    optimizer.zero_grad()
    assert torch.cuda.memory_allocated() == before, torch.cuda.memory_allocated() - before
    return kept, peak


def near(found, wanted):
    assert wanted <= found < wanted + (1 << 20), (found / half, wanted / half)


for call in (autocast_loss, loss_alone(of_logits), deep, products_kept):  # cuBLAS's workspaces
    call(x).mean().backward()
optimizer.step()
operands = N * D * 2  # in bfloat16: x, of which the gradient of the weight is made
kept, peak = measured(autocast_loss)
near(kept, operands + half + single)
near(peak, operands + half + 2 * single)
kept, peak = measured(torch.compile(autocast_loss))
near(kept, operands + half)
near(peak, operands + half + D * V * 2)  # the gradient of the logits lies where they were
kept, peak = measured(loss_alone(of_logits))
near(kept, operands + single)
kept, peak = measured(loss_alone(torch.compile(of_logits)))
near(kept, operands + half)
each = N * D * 4
kept, peak = measured(deep)
assert kept > 8 * each, kept / each
kept, peak = measured(torch.compile(deep))
near(kept, 4 * each)  # what the linear layers give, and what they are given
assert peak < 6 * each, peak / each
near(measured(products_kept)[0], 3 * each)  # two products, and the sum
near(measured(torch.compile(products_kept))[0], 2 * each)  # of the second product no gradient needs anything
with torch.no_grad():
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.compile(deep)(x)
    near(torch.cuda.max_memory_allocated() - before, 2 * each)
assert measured(dropping)[0] == measured(torch.compile(dropping))[0]  # masks are not drawn anew
dist.destroy_process_group()
"""


def test_compiled_memory_equals_the_tensors_that_a_compiler_keeps(tmp_path: Path) -> None:
    """The script asserts it, by hand arithmetic, of losses, activations and masks, compiled and as they are."""
    (file := tmp_path / "train.py").write_text(MEMORY)
    play_script(file, profile="hgx_h200", ranks=(1, 1), steps=1)
