"""What a script computes again in its backward pass: HFU counts it, MFU does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.analysis.step_breakdown import utilisation_of
from reports.run import Run
from reports.sections.run.headline import arithmetic
from tests.sim.test_gpu_script import play_script

BATCH, DIM, LAYERS = 4096, 1024, 4
PRODUCT = 2.0 * BATCH * DIM * DIM
SCRIPT = f"""
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

class Again(torch.autograd.Function):  # anyone's own checkpointing
    @staticmethod
    def forward(ctx, layer, x):
        ctx.layer = layer
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layer.weight_of(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer.weight_of(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad

class Layer(nn.Linear):
    def weight_of(self, x):
        return torch.relu(x @ self.weight.t())
    def forward(self, x):
        return self.weight_of(x)

layers = nn.Sequential(*(Layer({DIM}, {DIM}, bias=False) for _ in range({LAYERS}))).cuda()
optimizer = torch.optim.SGD(layers.parameters(), 0.1)
how = sys.argv[1]
for _ in range(3):
    x = torch.randn({BATCH}, {DIM}, device="cuda", requires_grad=True)
    if how == "sequential":
        y = checkpoint_sequential(layers, {LAYERS}, x, use_reentrant=False)
    else:
        y = x
        for layer in layers:
            if how in ("reentrant", "plain"):
                y = checkpoint(layer, y, use_reentrant=how == "reentrant")
            elif how == "function":
                y = checkpoint(lambda z: layer.weight_of(z), y, use_reentrant=False)
            elif how == "own":
                y = Again.apply(layer, y)
            else:
                y = layer(y)
    if how == "penalty":
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        y = slope
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run_of(how: str, folder: Path) -> Run:
    file = folder / "layers.py"
    file.write_text(SCRIPT)
    return Run.of(play_script(file, how, ranks=(1, 1), steps=2))


@pytest.mark.parametrize("how", ["plain", "reentrant", "sequential", "function", "own"])
def test_hfu_counts_recomputation_and_mfu_does_not(how: str, tmp_path: Path) -> None:
    """Three products a layer, one forward and two backward; the forward's is computed twice."""
    run = run_of(how, tmp_path)
    again = LAYERS - (how == "sequential")  # which keeps the last segment's
    (done,) = run.flops_of([1]).to_dict("records")
    # Elementwise operators count with the products that they are traced with: less than 1 % of them.
    assert done["recomputed_flops"] == pytest.approx(again * PRODUCT, rel=0.01)
    assert done["flops"] - done["recomputed_flops"] == pytest.approx(3 * LAYERS * PRODUCT, rel=0.01)
    found = utilisation_of(run)
    assert found is not None
    executed = 1 + again / (3 * LAYERS)
    assert found.hfu / found.mfu == pytest.approx(executed, rel=0.01)
    assert found.hardware_flops_per_s / found.flops_per_s == pytest.approx(executed, rel=0.01)
    (line,) = arithmetic(run)
    assert f"MFU {100 * found.mfu:.1f} %, HFU {100 * found.hfu:.1f} % of " in line
    assert line.endswith("with recomputation)")


@pytest.mark.parametrize("how", ["none", "penalty"])
def test_without_checkpointing_hfu_equals_mfu(how: str, tmp_path: Path) -> None:
    """A gradient of a gradient is the model's own, though its backward pass records a graph."""
    run = run_of(how, tmp_path)
    (done,) = run.flops_of([1]).to_dict("records")
    assert done["recomputed_flops"] == 0
    # With a penalty: forward, back to the input, and each of these two for its gradients.
    products = {"none": 3, "penalty": 4}[how]
    assert done["flops"] >= products * LAYERS * PRODUCT * 0.99
    found = utilisation_of(run)
    assert found is not None
    assert found.mfu == found.hfu
    assert "recomputation" not in arithmetic(run)[0]
