"""Compresses a whole bucket with PowerSGD as one square matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scenarios.compression.bucket import Bucket, vanilla
from scenarios.compression.local import compute, cost
from scenarios.compression.power_iteration import Factors, ShapeGroup, add_error, power_iteration, prepare_factors
from scenarios.compression.state import PowerSGDState
from scenarios.seam.rank import Rank
from scenarios.seam.roles import COMPRESSION


async def batched_powersgd(rank: Rank, state: PowerSGDState, bucket: Bucket) -> Tensor:
    """Average a bucket of n elements, approximated with `matrix_approximation_rank`; return its buffer, changed in
    place.

    The bucket is a square matrix, row by row, with zeros at its end. Two all-reduces of side x rank elements, as torch
    2.13's `batched_powerSGD_hook` intends. `orthogonalization_epsilon`, `min_compression_rate` and
    `batch_tensors_with_same_shape` have no effect. Before `start_powerSGD_iter` the mean is exact.

    Raises:
        ValueError: the rank exceeds the square's side; on every rank, before any message is sent.
    """
    if state.warming_up:
        await vanilla(rank, bucket, state.group)
        state.advance(bucket)
        return bucket.buffer()
    buffer, side = bucket.buffer(), square_side(bucket.buffer().numel())
    square = ShapeGroup(count=1, rows=side, columns=side, rank=state.matrix_approximation_rank)
    state.count(bucket, buffer.numel(), square.p_numel + square.q_numel)
    if square.rank > side:
        raise ValueError(
            f"bucket {bucket.index()}: matrix_approximation_rank = {square.rank}: expected {side} or less,"
            f" the side of the square that holds {buffer.numel()} elements"
        )
    rank = rank.for_role(COMPRESSION)
    matrix = (await add_error(rank, state, bucket, side * side)).view(side, side)
    factors = await prepare_factors(rank, state, bucket, (square,))
    # torch's batched hook does not use the epsilon of its state.
    await power_iteration(rank, state, bucket, matrices=[matrix], factors=factors, epsilon=0.0)
    await _decompress(rank, bucket, matrix, factors, keep_error=state.use_error_feedback)
    state.advance(bucket)
    return buffer


def square_side(numel: int) -> int:
    """Return the side of the smallest square with at least `numel` elements."""
    side = math.isqrt(numel)
    return side if side * side == numel else side + 1


async def _decompress(rank: Rank, bucket: Bucket, matrix: Tensor, factors: Factors, *, keep_error: bool) -> None:
    buffer, p, q = bucket.buffer(), factors.p[0][0], factors.q[0][0]
    # Whole rows of the result go straight into the buffer, which has no room for the rest of the square.
    rows = buffer.numel() // max(len(q), 1)
    # The last rows lie partly or wholly in the padding, so they need memory of their own.
    tail = buffer.new_empty((len(q) - rows, len(q)))
    flops, read = 2 * p.numel() * len(q), p.numel() + q.numel()
    kernel = cost("gemm", buffer, flops=flops, read=read, written=matrix.numel(), launches=3)
    await compute(rank, kernel, _reconstruct, buffer, tail, p, q, label="powersgd.decompress")
    if keep_error:
        numel = matrix.numel()
        kernel = cost("elementwise", buffer, flops=numel, read=2 * numel, written=numel, launches=2)
        await compute(rank, kernel, _keep_error, matrix.view(-1), buffer, tail, label="powersgd.keep_error")


def _reconstruct(buffer: Tensor, tail: Tensor, p: Tensor, q: Tensor) -> None:
    rows, side = len(p) - len(tail), len(q)
    torch.mm(p[:rows], q.mT, out=buffer[: rows * side].view(rows, side))
    torch.mm(p[rows:], q.mT, out=tail)
    buffer[rows * side :] = tail.view(-1)[: buffer.numel() - rows * side]


def _keep_error(error: Tensor, buffer: Tensor, tail: Tensor) -> None:
    whole = error.numel() - tail.numel()
    # Methods, because `error[:whole] -= ...` would copy the result onto itself.
    error[:whole].sub_(buffer[:whole])
    error[whole:].sub_(tail.view(-1))
