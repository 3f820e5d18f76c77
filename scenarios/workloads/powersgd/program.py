"""The program `powersgd`: forward, backward and the reduction of gradients, optionally compressed, without data or
losses.

A parameter's backward pass is the matrix product that makes its gradient; its forward pass, if any, is such a product
whose result is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from scenarios.compression.local import cost
from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.scenario import GradientReduction, Optimizer, Scenario
from scenarios.modules.ddp_buckets import GradientReducer, Shape, check_compression, reduction_parts
from scenarios.modules.memory import memory_rows
from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel
from scenarios.seam.memory import BATCH, GRADIENTS, PARAMETERS, MemoryPart
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.roles import DENSE, OPTIMIZER
from scenarios.seam.trace import MemoryRow
from scenarios.workloads.powersgd.config import step_effort

# Windows of the pool of random numbers start at multiples of these, modulo the slack: all three are primes, so that
# neighbouring steps and parameters use different numbers.
_STEP_STRIDE, _PARAMETER_STRIDE, _SLACK = 1021, 389, 4093


class PowerSGDProgram(Program):
    """A program with steps of: forward, backward over the gradients in reverse with concurrent reduction, and SGD.

    Records `gradient_norm`, the 2-norm of all averaged gradients, each step.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._gradients = scenario, GradientReduction.of(scenario.workload)
        self._dtype: torch.dtype = getattr(torch, self._gradients.dtype)
        self._forward_work = Products(self._gradients.shapes, self._gradients.forward_flops)
        self._backward_work = Products(self._gradients.shapes, self._gradients.backward_flops)
        self._pool_numel = max(self._forward_work.pool_numel, self._backward_work.pool_numel)
        self.host_classes = uniform_host_classes(scenario)
        self.memory = self._memory()
        self.effort = step_effort(scenario)
        check_compression(scenario, self._gradients.shapes, self._dtype)

    async def __call__(self, rank: Rank) -> None:
        reducer = GradientReducer(
            rank.stream("gradients"),
            self._gradients.shapes,
            dtype=self._dtype,
            buckets=self._scenario.workload.buckets,
            compression=self._scenario.workload.compression,
        )
        parameters = [torch.zeros(shape, dtype=self._dtype, device=rank.device) for shape in self._gradients.shapes]
        pool = draw_pool(
            self._scenario.run.seed,
            rank.rank,
            self._backward_work,
            dtype=self._dtype,
            device=rank.device,
            numel=self._pool_numel,
        )
        numbers = range(len(parameters))
        for step in range(self._scenario.run.steps):
            await rank.barrier(label="start")
            with rank.step(step):
                for index in numbers if self._forward_work.samples else ():
                    await self._product(rank, self._forward_work, pool, step, index, label="forward")
                for index in reversed(numbers):
                    work = self._product(rank, self._backward_work, pool, step, index, label="backward")
                    reducer.add(index, await work)
                gradients = await reducer.finish()
                kernel = update_cost(parameters)
                norm = await rank.compute(kernel, update_sgd, parameters, gradients, label="update", role=OPTIMIZER)
                rank.record("gradient_norm", norm)

    def _product(self, rank: Rank, work: Products, pool: Tensor, step: int, index: int, *, label: str) -> Work[Tensor]:
        """Issue the product of a parameter in a pass."""
        inputs, kernel = work.inputs(pool, step, index), work.cost(index, pool)
        shape = self._gradients.shapes[index]
        return rank.compute(kernel, weight_gradient, *inputs, shape, label=f"{label}.{index}", role=DENSE)

    def _memory(self) -> tuple[MemoryRow, ...]:
        shapes, scenario = self._gradients.shapes, self._scenario
        parameter_bytes = sum(map(prod, shapes)) * self._dtype.itemsize
        parts = (
            MemoryPart("parameters", parameter_bytes, kind=PARAMETERS),
            MemoryPart("gradients", parameter_bytes, kind=GRADIENTS),
            MemoryPart("operands", self._pool_numel * self._dtype.itemsize, kind=BATCH),
            *reduction_parts(shapes, self._dtype, scenario.workload.buckets, scenario.workload.compression),
        )
        return memory_rows(scenario, parts, self.host_classes)


class Products:
    """The matrix products that stand for a pass: (samples x rows)^T (samples x columns) makes a gradient.

    `samples` is chosen so that the products of all parameters take about `flops`; with 0 a gradient is copied. Operands
    are windows of one pool of random numbers, at offsets that depend on step and parameter: drawing new numbers would
    take measured time.
    """

    def __init__(self, shapes: Sequence[Shape], flops: float) -> None:
        self._extents = [_rows_and_columns(shape) for shape in shapes]
        self._numel = sum(map(prod, self._extents))
        self._flops = flops
        self.samples = round(flops / (2 * self._numel)) if self._numel else 0

    @property
    def pool_numel(self) -> int:
        """Number of random numbers in the pool from which all products' operands are cut."""
        return _SLACK + max((sum(self._operand_numels(index)) for index in range(len(self._extents))), default=0)

    def inputs(self, pool: Tensor, step: int, index: int) -> tuple[Tensor, Tensor]:
        """Return a product's operands: (samples, rows) and (samples, columns); without samples the gradient and
        nothing.
        """
        start = (step * _STEP_STRIDE + index * _PARAMETER_STRIDE) % _SLACK
        left, right = self._operand_numels(index)
        middle, lines = start + left, self.samples or 1
        return pool[start:middle].view(lines, -1), pool[middle : middle + right].view(lines, -1)

    def cost(self, index: int, like: Tensor) -> Kernel:
        """Return the kernel of a parameter's product, with flops in proportion to its elements."""
        numel = prod(self._extents[index])
        flops = self._flops * numel / self._numel if numel else 0.0
        return cost("gemm", like, flops=flops, read=sum(self._operand_numels(index)), written=numel)

    def _operand_numels(self, index: int) -> tuple[int, int]:
        rows, columns = self._extents[index]
        return (self.samples * rows, self.samples * columns) if self.samples else (rows * columns, 0)


def draw_pool(
    seed: int, rank: int, work: Products, *, dtype: torch.dtype, device: torch.device, numel: int | None = None
) -> Tensor:
    """Return this rank's random numbers, `numel` or as many as `work` needs, scaled to gradients of variance about 1.

    The numbers are drawn on the CPU in float32.
    """
    numel = work.pool_numel if numel is None else numel
    if device.type == "meta":
        return torch.empty(numel, dtype=dtype, device=device)
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, rank]).generate_state(1)[0]))
    pool = torch.randn(numel, generator=generator)
    return pool.mul_(max(work.samples, 1) ** -0.25).to(device=device, dtype=dtype)


def weight_gradient(left: Tensor, right: Tensor, shape: Shape) -> Tensor:
    """Return the product of the operands, or a copy if there is only one."""
    if left.is_meta:
        # torch's product of meta tensors would import symbolic algebra, which takes a second.
        return left.new_empty(shape)
    return (torch.mm(left.mT, right) if right.numel() else left.clone()).view(shape)


def update_sgd(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor], learning_rate: float = Optimizer().learning_rate
) -> Tensor:
    """Apply plain SGD in place; return the 2-norm of all gradients, as one float32 (float64 for float64) number."""
    wide = torch.promote_types(gradients[0].dtype, torch.float32)
    if gradients[0].is_meta:
        return gradients[0].new_empty((), dtype=wide)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient, alpha=learning_rate)
    norms = torch.stack([torch.linalg.vector_norm(each, dtype=wide) for each in gradients])
    total: Tensor = torch.linalg.vector_norm(norms)
    return total


def update_cost(parameters: Sequence[Tensor]) -> Kernel:
    """Return the update's kernel: parameters are read and written, gradients read twice (update and norm)."""
    numel = sum(parameter.numel() for parameter in parameters)
    launches = 2 * len(parameters) + 2
    return cost("optimizer", parameters[0], flops=4 * numel, read=3 * numel, written=numel, launches=launches)


def _rows_and_columns(shape: Shape) -> tuple[int, int]:
    return (shape[0], prod(shape[1:])) if shape else (1, 1)
