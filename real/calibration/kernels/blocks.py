"""What the kernel probes compute of dense layers: blocks with a forward, a backward and their costs, each one kernel.

A traced module is priced operator by operator; here a layer's operators are timed together, as they follow each other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from scenarios.seam.kernel import ELEMENT_BYTES, Kernel


@dataclass(slots=True)
class Tape:
    """What a block's forward leaves for its backward."""

    inputs: tuple[Tensor, ...]
    output: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """How many operators a pass of a block runs, and the elements that they read and write."""

    launches: int
    read: int
    written: int


class Block(ABC):
    """Some parameters and a function of them and of inputs [batch, ...]; `name` labels its kernels.

    `width_in` and `width_out` are the elements of all inputs and of the output for one sample.
    """

    def __init__(
        self, name: str, shapes: Sequence[tuple[int, ...]], dtype: str, *, width_in: int, width_out: int
    ) -> None:
        self.name = name
        self.shapes = tuple(shapes)
        self.dtype = dtype
        self.width_in, self.width_out = width_in, width_out
        self.parameters: list[Tensor] = []

    @abstractmethod
    def function(self, *inputs: Tensor) -> Tensor:
        """The forward, differentiable."""

    @abstractmethod
    def flops(self, batch: int) -> float:
        """Count the forward's flops; the backward takes twice as many, for the inputs and for the parameters."""

    @abstractmethod
    def touched(self, batch: int) -> Touched:
        """Count what the forward reads and writes."""

    @abstractmethod
    def touched_back(self, batch: int) -> Touched:
        """Count what the backward of all inputs and parameters reads and writes."""

    @property
    def parameter_count(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tape]:
        """The output, cut from the graph, and the tape. On meta only shapes: nothing is traced."""
        if inputs[0].is_meta:
            output = inputs[0].new_empty(inputs[0].shape[0], self.width_out)
            return output, Tape(inputs, output)
        leaves = tuple(tensor.detach().requires_grad_() for tensor in inputs)
        with torch.enable_grad():
            output = self.function(*leaves)
        return output.detach(), Tape(leaves, output)

    def backward(self, tape: Tape, gradient: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The gradients of the inputs and of the parameters."""
        wanted = [*tape.inputs, *self.parameters]
        if gradient.is_meta:
            like = [each.new_empty(each.shape) for each in wanted]
            return like[: len(tape.inputs)], like[len(tape.inputs) :]
        gradients = torch.autograd.grad(tape.output, wanted, gradient)
        return list(gradients[: len(tape.inputs)]), list(gradients[len(tape.inputs) :])

    def forward_kernel(self, batch: int) -> Kernel:
        return self._kernel(self.flops(batch), self.touched(batch))

    def backward_kernel(self, batch: int) -> Kernel:
        return self._kernel(2 * self.flops(batch), self.touched_back(batch))

    def _kernel(self, flops: float, touched: Touched) -> Kernel:
        element = ELEMENT_BYTES[self.dtype]
        return Kernel(
            kind="gemm",
            flops=flops,
            bytes_read=float(element * touched.read),
            bytes_written=float(element * touched.written),
            dtype=self.dtype,
            launches=touched.launches,
        )


class Linear(Block):
    """[batch, inputs] -> [batch, outputs], with ReLU unless it is the last."""

    def __init__(self, name: str, inputs: int, outputs: int, dtype: str, *, relu: bool) -> None:
        super().__init__(name, [(outputs, inputs), (outputs,)], dtype, width_in=inputs, width_out=outputs)
        self._relu = relu

    def function(self, *inputs: Tensor) -> Tensor:
        output = functional.linear(inputs[0], *self.parameters)
        return functional.relu(output) if self._relu else output

    def flops(self, batch: int) -> float:
        return 2.0 * batch * self.width_in * self.width_out

    def touched(self, batch: int) -> Touched:
        """addmm; relu."""
        given, made, relu = batch * self.width_in, batch * self.width_out, int(self._relu)
        return Touched(launches=1 + relu, read=given + self.parameter_count + relu * made, written=made + relu * made)

    def touched_back(self, batch: int) -> Touched:
        """threshold_backward for relu; a product each for the input and the weight, a sum for the bias."""
        given, made, relu = batch * self.width_in, batch * self.width_out, int(self._relu)
        return Touched(
            launches=3 + relu,
            read=given + self.width_in * self.width_out + (3 + 2 * relu) * made,
            written=given + self.parameter_count + relu * made,
        )


class Cross(Block):
    """One layer of DCNv2: x -> x0 * (W (V x) + b) + x, V [rank, width], W [width, rank].

    R. Wang et al., DCN V2, WWW 2021, equation 1 with the low-rank form of section 4.
    """

    def __init__(self, name: str, width: int, low_rank: int, dtype: str) -> None:
        shapes = [(low_rank, width), (width, low_rank), (width,)]
        super().__init__(name, shapes, dtype, width_in=2 * width, width_out=width)
        self._width, self._low_rank = width, low_rank

    def function(self, *inputs: Tensor) -> Tensor:
        first, x = inputs
        down, up, bias = self.parameters
        return first * functional.linear(functional.linear(x, down), up, bias) + x

    def flops(self, batch: int) -> float:
        return batch * self._width * (4.0 * self._low_rank + 2.0)

    def touched(self, batch: int) -> Touched:
        """mm, addmm, mul, add."""
        wide, low = batch * self._width, batch * self._low_rank
        return Touched(launches=4, read=5 * wide + low + self.parameter_count, written=3 * wide + low)

    def touched_back(self, batch: int) -> Touched:
        """Two products with the gradient, two for either factor, a sum for the bias, the two gradients of x added."""
        wide, low = batch * self._width, batch * self._low_rank
        factors = 2 * self._width * self._low_rank
        return Touched(launches=8, read=10 * wide + 3 * low + factors, written=4 * wide + low + self.parameter_count)


class Dot(Block):
    """[batch, features * dim] -> [batch, dim + pairs]: the first feature, then dot products of all pairs."""

    def __init__(self, name: str, features: int, dim: int, dtype: str) -> None:
        pairs = features * (features - 1) // 2
        super().__init__(name, [], dtype, width_in=features * dim, width_out=dim + pairs)
        self._features, self._dim = features, dim

    def function(self, *inputs: Tensor) -> Tensor:
        features = inputs[0].view(-1, self._features, self._dim)
        products = torch.bmm(features, features.transpose(1, 2))
        row, column = torch.tril_indices(self._features, self._features, -1, device=features.device)
        return torch.cat([features[:, 0], products[:, row, column]], dim=1)

    def flops(self, batch: int) -> float:
        return 2.0 * batch * self._features**2 * self._dim

    def touched(self, batch: int) -> Touched:
        """bmm, tril_indices, index, cat."""
        given, products, made = self._elements(batch)
        pairs = made - batch * self._dim
        return Touched(launches=4, read=2 * given + pairs + made, written=products + pairs + made)

    def touched_back(self, batch: int) -> Touched:
        """zeros, index_put for the pairs; select_backward for the first feature; two bmm; two sums."""
        given, products, made = self._elements(batch)
        pairs, first = made - batch * self._dim, batch * self._dim
        return Touched(
            launches=7, read=6 * given + 3 * products + 2 * pairs + first, written=5 * given + 2 * products + pairs
        )

    def _elements(self, batch: int) -> tuple[int, int, int]:
        return batch * self.width_in, batch * self._features**2, batch * self.width_out


def load_autograd(device: torch.device) -> None:
    """A first backward, of one number: torch loads 0.7 s worth of modules at it, which is no part of a step."""
    if device.type != "meta":
        leaf = torch.ones((), device=device, requires_grad=True)
        torch.autograd.grad(leaf * leaf, leaf, torch.ones_like(leaf))
