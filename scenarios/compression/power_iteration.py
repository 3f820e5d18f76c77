"""Runs one step of power iteration, which both PowerSGD algorithms share: P = M Q, Q = M^T P, and their reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.compression.bucket import Bucket, group_size
from scenarios.compression.local import compute, copy_cost, cost
from scenarios.compression.orthogonalise import (
    REFILL_LAUNCHES,
    orthogonalise,
    orthogonalise_cost,
    refill_zero_columns,
)
from scenarios.compression.state import PowerSGDState, draw_normal
from scenarios.seam.arguments import dtype_name
from scenarios.seam.operations.of_tensors import product_of
from scenarios.seam.rank import Rank

_FEW_COLUMNS = 4

Product = tuple[Tensor, Tensor, Tensor]  # left, right, output


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeGroup:
    """A set of `count` matrices of one shape, approximated with `rank` columns, rank <= rows and columns."""

    count: int
    rows: int
    columns: int
    rank: int

    @property
    def numel(self) -> int:
        return self.count * self.rows * self.columns

    @property
    def p_numel(self) -> int:
        return self.count * self.rows * self.rank

    @property
    def q_numel(self) -> int:
        return self.count * self.columns * self.rank


@dataclass(frozen=True, slots=True)
class Factors:
    """A bucket's P and Q: of all matrices in one flat memory each, which is reduced at once, and as views.

    `p` and `q` are the views by entry of `shapes`: (count, rows, rank) and (count, columns, rank).
    """

    shapes: tuple[ShapeGroup, ...]
    p_memory: Tensor
    q_memory: Tensor
    p: list[Tensor]
    q: list[Tensor]

    @classmethod
    def over(cls, shapes: tuple[ShapeGroup, ...], p_memory: Tensor, q_memory: Tensor) -> Factors:
        """Return the factors with views over two memories of the right size."""
        p = p_memory.split_with_sizes([shape.p_numel for shape in shapes])
        q = q_memory.split_with_sizes([shape.q_numel for shape in shapes])
        return cls(
            shapes,
            p_memory,
            q_memory,
            [view.view(shape.count, shape.rows, shape.rank) for view, shape in zip(p, shapes, strict=True)],
            [view.view(shape.count, shape.columns, shape.rank) for view, shape in zip(q, shapes, strict=True)],
        )

    @property
    def numel(self) -> int:
        return sum(shape.numel for shape in self.shapes)

    def of_matrices(self, stacked: bool) -> list[tuple[Tensor, Tensor]]:
        """Return P and Q of each matrix (2-D), or of each stack of matrices (3-D)."""
        if stacked:
            return list(zip(self.p, self.q, strict=True))
        return [pair for p, q in zip(self.p, self.q, strict=True) for pair in zip(p.unbind(), q.unbind(), strict=True)]


async def prepare_factors(rank: Rank, state: PowerSGDState, bucket: Bucket, shapes: tuple[ShapeGroup, ...]) -> Factors:
    """Return this step's P, undefined yet, and Q: the values kept by warm start, or a fresh draw."""
    index, like = bucket.index(), bucket.buffer()
    if index in state.p_memory_dict:
        return Factors.over(shapes, state.p_memory_dict[index], state.q_memory_dict[index])
    p_memory = like.new_empty(sum(shape.p_numel for shape in shapes))
    q_memory = like.new_empty(sum(shape.q_numel for shape in shapes))
    factors = Factors.over(shapes, p_memory, q_memory)
    await _draw(rank, state, factors)
    if state.warm_start:
        state.p_memory_dict[index], state.q_memory_dict[index] = p_memory, q_memory
        if state.survive_zero_matrices:
            state.reserve_dict[index] = q_memory.clone()
    return factors


async def _draw(rank: Rank, state: PowerSGDState, factors: Factors) -> None:
    # torch's normal numbers depend on the size of a draw: draw a stack at once only where torch's hook does.
    stacked = state.batch_tensors_with_same_shape
    targets = [q for _, q in factors.of_matrices(stacked)]
    memory = factors.q_memory
    numel, launches = memory.numel(), 2 * len(targets)  # a draw and a copy each
    kernel = cost("elementwise", memory, flops=numel, read=numel, written=2 * numel, launches=launches)
    await compute(rank, kernel, draw_normal, state.next_seed(), targets, label="powersgd.draw")


async def power_iteration(
    rank: Rank,
    state: PowerSGDState,
    bucket: Bucket,
    *,
    matrices: Sequence[Tensor],
    factors: Factors,
    epsilon: float,
) -> None:
    """Fill P with an orthonormal basis and Q with the mean of M^T P; the mean of M is then about P Q^T.

    `matrices` are 2-D, or 3-D stacks, in the order of `factors.shapes`. P is reduced as a sum: orthogonalisation
    removes its scale.
    """
    group, safe = state.group, state.survive_zero_matrices
    stacked = bool(matrices) and matrices[0].dim() > 2
    pairs = factors.of_matrices(stacked)
    # Warm start alone can keep a collapsed column from step to step.
    reserve = state.reserve_dict.get(bucket.index()) if safe else None
    await _orthonormal_q(rank, factors, epsilon, safe=safe, reserve=reserve)
    products = [(matrix, q, p) for matrix, (p, q) in zip(matrices, pairs, strict=True)]
    numel, p_numel, q_numel = factors.numel, factors.p_memory.numel(), factors.q_memory.numel()
    await multiply_all(rank, factors, products, read=numel + q_numel, written=p_numel, label="powersgd.compress")
    # Summed before it is orthogonalised, so that all ranks hold the same basis.
    await rank.all_reduce(factors.p_memory, group=group, label="powersgd.P")
    kernel = orthogonalise_cost(factors.p_memory, factors.p, epsilon, safe)
    await compute(rank, kernel, _orthogonalise_all, factors.p, epsilon, safe, label="powersgd.orthogonalise")
    products = [(matrix.mT, p, q) for matrix, (p, q) in zip(matrices, pairs, strict=True)]
    await multiply_all(rank, factors, products, read=numel + p_numel, written=q_numel, label="powersgd.project")
    await rank.all_reduce(factors.q_memory, group=group, label="powersgd.Q")
    kernel = cost("elementwise", factors.q_memory, flops=q_numel, read=q_numel, written=q_numel)
    await compute(rank, kernel, factors.q_memory.div_, group_size(rank, group), label="powersgd.divide")


async def add_error(rank: Rank, state: PowerSGDState, bucket: Bucket, numel: int) -> Tensor:
    """Return the bucket's values plus the error of earlier steps, flat, with zeros up to `numel`.

    With error feedback the result is the error's own memory, from which `keep_error` subtracts what was sent: no copy
    is needed. Without, it is the bucket's buffer, or a padded copy.
    """
    buffer = bucket.buffer()
    if state.use_error_feedback:
        error = state.error_dict.get(bucket.index())
        if error is None:
            error = state.error_dict[bucket.index()] = buffer.new_zeros(numel)
        sent = buffer.numel()
        kernel = cost("elementwise", buffer, flops=sent, read=2 * sent, written=sent)
        await compute(rank, kernel, error[:sent].add_, buffer, label="powersgd.add_error")
        return error
    if buffer.numel() == numel:
        return buffer
    padded = buffer.new_zeros(numel)
    await compute(rank, copy_cost(buffer, numel), padded[: buffer.numel()].copy_, buffer, label="powersgd.pad")
    return padded


async def _orthonormal_q(rank: Rank, factors: Factors, epsilon: float, *, safe: bool, reserve: Tensor | None) -> None:
    if reserve is not None:
        numel = reserve.numel()
        spare = Factors.over(factors.shapes, factors.p_memory, reserve)
        launches = REFILL_LAUNCHES * len(factors.q)
        kernel = cost("elementwise", reserve, flops=2 * numel, read=4 * numel, written=2 * numel, launches=launches)
        await compute(rank, kernel, _refill_all, factors.q, spare.q, label="powersgd.refill")
    kernel = orthogonalise_cost(factors.q_memory, factors.q, epsilon, safe)
    await compute(rank, kernel, _orthogonalise_all, factors.q, epsilon, safe, label="powersgd.orthogonalise")


def _orthogonalise_all(factors: Sequence[Tensor], epsilon: float, safe: bool) -> None:
    for factor in factors:
        orthogonalise(factor, epsilon, safe)


def _refill_all(factors: Sequence[Tensor], reserves: Sequence[Tensor]) -> None:
    for factor, reserve in zip(factors, reserves, strict=True):
        refill_zero_columns(factor, reserve)


async def multiply_all(
    rank: Rank, factors: Factors, products: Sequence[Product], *, read: float, written: float, label: str
) -> None:
    """Run the products of one phase of a power iteration (P = M Q, Q = M^T P, or P Q^T) as one computation.

    Args:
        rank: this rank.
        factors: the factors P and Q of all matrices.
        products: left and right operand and output of each product.
        read: bytes read.
        written: bytes written.
        label: name of the computation.
    """
    flops = 2 * sum(shape.numel * shape.rank for shape in factors.shapes)
    launches = sum(_multiply_launches(left, right) for left, right, _ in products)
    dtype = dtype_name(factors.p_memory)
    operations = tuple(product_of(left, right, dtype) for left, right, out in products if out.numel())
    kernel = cost(
        "gemm", factors.p_memory, flops=flops, read=read, written=written, launches=launches, operations=operations
    )
    await compute(rank, kernel, _multiply_each, products, label=label)


def _multiply_each(products: Sequence[Product]) -> None:
    for left, right, out in products:
        multiply(left, right, out)


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write the product of matrices, or of stacks of matrices, into `out`.

    With few columns on the right, or a transposed matrix on the left, the product's transpose is computed instead:
    oneMKL, which torch 2.13 uses on CPUs, then takes half the time (`python -m benchmarks.powersgd`: 22 ms and 9 ms, 30
    ms and 18 ms for a ResNet-50 with two columns). A product of a column and a row needs no sum.
    """
    if left.shape[-1] == 1:
        torch.mul(left, right, out=out)
    elif left.dim() > 2:
        torch.bmm(left, right, out=out)
    elif _is_by_transpose(left, right):
        out.copy_(torch.mm(right.mT.contiguous(), left.mT).mT)
    else:
        torch.mm(left, right, out=out)


def _multiply_launches(left: Tensor, right: Tensor) -> int:
    if left.shape[-1] == 1 or left.dim() > 2 or not _is_by_transpose(left, right):
        return 1
    return 2 if right.stride(0) == 1 else 3  # the right matrix is copied unless its transpose is contiguous


def _is_by_transpose(left: Tensor, right: Tensor) -> bool:
    return right.shape[-1] <= _FEW_COLUMNS or not left.is_contiguous()
