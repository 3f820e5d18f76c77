"""Dense layers that the kernel probes time: modules of dlrm's dense part, a forward and a backward kernel each.

A traced module is priced operator by operator; here a layer's operators are timed together, in sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scenarios.seam.kernel import ELEMENT_BYTES, Kernel
from scenarios.workloads.dlrm.dense import Cross, Dot


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over a batch: its flops, the operators run (`launches`), and the elements that they read and write."""

    flops: float
    launches: int
    read: int
    written: int

    def kernel(self, dtype: str) -> Kernel:
        """Return the pass as one kernel."""
        element = ELEMENT_BYTES[dtype]
        return Kernel(
            kind="gemm",
            flops=self.flops,
            bytes_read=float(element * self.read),
            bytes_written=float(element * self.written),
            dtype=dtype,
            launches=self.launches,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedBlock:
    """A module with inputs [batch, width] for each of `widths`, output [batch, `width_out`], and costs of its passes.

    The backward pass computes gradients of all inputs and parameters; its flops are twice the forward's.
    """

    module: nn.Module
    widths: tuple[int, ...]
    width_out: int
    ahead: Pass
    back: Pass

    def forward(self, *inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the inputs as leaves of the graph, and the output; on meta only shapes, without tracing."""
        if inputs[0].is_meta:
            return [*inputs], inputs[0].new_empty(inputs[0].shape[0], self.width_out)
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        with torch.enable_grad():
            return leaves, self.module(*leaves)

    def backward(self, leaves: list[Tensor], output: Tensor, gradient: Tensor) -> list[Tensor]:
        """Return the gradients of the inputs and of the parameters."""
        wanted = [*leaves, *self.module.parameters()]
        if gradient.is_meta:
            return [each.new_empty(each.shape) for each in wanted]
        return list(torch.autograd.grad(output, wanted, gradient))


def linear(batch: int, inputs: int, outputs: int) -> ProbedBlock:
    """Make a layer with ReLU: addmm and relu; backward threshold_backward, two products, and a sum for the bias."""
    module = _make_module(lambda: nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()))
    given, made, weights, flops = batch * inputs, batch * outputs, inputs * outputs, 2.0 * batch * inputs * outputs
    return ProbedBlock(
        module=module,
        widths=(inputs,),
        width_out=outputs,
        ahead=Pass(flops=flops, launches=2, read=given + weights + outputs + made, written=2 * made),
        back=Pass(
            flops=2 * flops, launches=4, read=given + weights + 5 * made, written=given + weights + outputs + made
        ),
    )


def cross(batch: int, width: int, low_rank: int) -> ProbedBlock:
    """Make a layer of DCNv2: mm, addmm, mul and add.

    The backward pass has two products with the gradient, two for either factor, a sum for the bias, and adds the two
    gradients of x.
    """
    wide, low, factors = batch * width, batch * low_rank, 2 * width * low_rank
    flops = batch * width * (4.0 * low_rank + 2.0)
    return ProbedBlock(
        module=_make_module(lambda: Cross(width, low_rank)),
        widths=(width, width),
        width_out=width,
        ahead=Pass(flops=flops, launches=4, read=5 * wide + low + factors + width, written=3 * wide + low),
        back=Pass(
            flops=2 * flops, launches=8, read=10 * wide + 3 * low + factors, written=4 * wide + low + factors + width
        ),
    )


def dot(batch: int, features: int, dim: int) -> ProbedBlock:
    """Make dot products of all pairs: bmm, tril_indices, index and cat.

    The backward pass has zeros and index_put for the pairs, select_backward for the first feature, two bmm, and two
    sums.
    """
    given, products, first = batch * features * dim, batch * features**2, batch * dim
    pairs, flops = batch * (features * (features - 1) // 2), 2.0 * batch * features**2 * dim
    return ProbedBlock(
        module=Dot(features, dim),
        widths=(features * dim,),
        width_out=(first + pairs) // batch,
        ahead=Pass(flops=flops, launches=4, read=2 * given + 2 * pairs + first, written=products + 2 * pairs + first),
        back=Pass(
            flops=2 * flops,
            launches=7,
            read=6 * given + 3 * products + 2 * pairs + first,
            written=5 * given + 2 * products + pairs,
        ),
    )


def _make_module(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a module on meta, whose parameters get values later."""
    with torch.device("meta"):
        return make()


def load_autograd(device: torch.device) -> None:
    """Run a small backward pass, so that torch loads its modules (0.7 s) before any timed step."""
    if device.type != "meta":
        leaf = torch.ones((), device=device, requires_grad=True)
        torch.autograd.grad(leaf * leaf, leaf, torch.ones_like(leaf))
