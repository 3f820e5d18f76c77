"""Compresses each gradient of a bucket with PowerSGD as a matrix of its own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.compression.bucket import Bucket, group_size, vanilla
from scenarios.compression.local import compute, copy_cost, cost
from scenarios.compression.power_iteration import (
    Factors,
    ShapeGroup,
    add_error,
    multiply_all,
    power_iteration,
    prepare_factors,
)
from scenarios.compression.state import PowerSGDState
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import COMPRESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwiseLayout:
    """A division of a bucket into compressed and uncompressed gradients, by their places in the bucket.

    Attributes:
        sizes: elements of every gradient.
        shapes: groups of compressed matrices of equal shape.
        members: places of the gradients of each entry of `shapes`.
        plain: places of the uncompressed gradients.
        transposed: places of the matrices that lie in the bucket column by column.
    """

    sizes: tuple[int, ...]
    shapes: tuple[ShapeGroup, ...]
    members: tuple[tuple[int, ...], ...]
    plain: tuple[int, ...]
    transposed: frozenset[int] = frozenset()

    @property
    def plain_numel(self) -> int:
        return sum(self.sizes[place] for place in self.plain)

    @property
    def sent_numel(self) -> int:
        return self.plain_numel + sum(shape.p_numel + shape.q_numel for shape in self.shapes)

    def matrices(self, flat: Tensor) -> list[list[Tensor]]:
        """Return views [rows, columns] of a bucket's flat values, by entry of `shapes`."""
        pieces = flat.split_with_sizes(self.sizes)
        return [
            [self._matrix(pieces[place], shape, place in self.transposed) for place in places]
            for shape, places in zip(self.shapes, self.members, strict=True)
        ]

    @staticmethod
    def _matrix(piece: Tensor, shape: ShapeGroup, transposed: bool) -> Tensor:
        if transposed:
            return piece.view(shape.columns, shape.rows).mT
        return piece.view(shape.rows, shape.columns)


async def layerwise_powersgd(rank: Rank, state: PowerSGDState, bucket: Bucket) -> Tensor:
    """Average a bucket, its matrices approximated with `matrix_approximation_rank`; return its buffer, changed in
    place.

    A gradient is a matrix of its first extent times all others; it is compressed if that reduces the sent elements by a
    factor of `min_compression_rate`. Always three all-reduces, empty or not, as torch 2.13's `powerSGD_hook`: the
    uncompressed gradients, all P, all Q. Before `start_powerSGD_iter` the mean is exact.
    """
    if state.warming_up:
        await vanilla(rank, bucket, state.group)
        state.advance(bucket)
        return bucket.buffer()
    rank = rank.for_role(COMPRESSION)
    buffer, gradients = bucket.buffer(), bucket.gradients()
    extents = tuple(gradient.shape for gradient in gradients)
    transposed = frozenset(place for place, gradient in enumerate(gradients) if _is_transposed(gradient))
    layout = lay_out(extents, state.matrix_approximation_rank, state.min_compression_rate, transposed)
    state.count(bucket, sum(layout.sizes), layout.sent_numel)
    source = await add_error(rank, state, bucket, buffer.numel())
    await _reduce_plain(rank, state.group, layout, source=source, buffer=buffer)
    factors = await prepare_factors(rank, state, bucket, layout.shapes)
    matrices = await _operands(rank, state, layout, source)
    epsilon = state.orthogonalization_epsilon
    await power_iteration(rank, state, bucket, matrices=matrices, factors=factors, epsilon=epsilon)
    await _decompress(rank, layout, factors, matrices, buffer=buffer, stacked=state.batch_tensors_with_same_shape)
    if state.use_error_feedback:
        numel = buffer.numel()
        kernel = cost("elementwise", buffer, flops=numel, read=2 * numel, written=numel)
        await compute(rank, kernel, source.sub_, buffer, label="powersgd.keep_error")
    state.advance(bucket)
    return buffer


@functools.lru_cache(maxsize=4096)
def lay_out(
    extents: tuple[tuple[int, ...], ...], rank: int, min_rate: float, transposed: frozenset[int] = frozenset()
) -> LayerwiseLayout:
    """Divide a bucket of gradients of these shapes; compressed gradients are grouped by shape, in order of
    occurrence.
    """
    by_shape: dict[tuple[int, ...], list[int]] = {}
    plain: list[int] = []
    for place, extent in enumerate(extents):
        rows, columns = _rows_and_columns(extent)
        # Strictly less, as in torch: a matrix that only just reaches the rate is sent uncompressed.
        fits = (rows + columns) * min(rows, columns, rank) * min_rate < rows * columns
        (by_shape.setdefault((rows, columns), []) if fits else plain).append(place)
    return LayerwiseLayout(
        sizes=tuple(rows * columns for rows, columns in map(_rows_and_columns, extents)),
        shapes=tuple(
            ShapeGroup(count=len(places), rows=rows, columns=columns, rank=min(rows, columns, rank))
            for (rows, columns), places in by_shape.items()
        ),
        members=tuple(map(tuple, by_shape.values())),
        plain=tuple(plain),
        transposed=transposed,
    )


def _is_transposed(gradient: Tensor) -> bool:
    # DDP keeps a parameter's order in memory. Where its first extent is not the outermost, rows lie apart; the order
    # of the columns (channels last) does not matter to a product.
    return not gradient.is_contiguous() and gradient.stride(0) == 1


def _rows_and_columns(extent: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = (extent[0] if extent else 1), 1
    for length in extent[1:]:
        columns *= length
    return rows, columns


async def _reduce_plain(
    rank: Rank, group: Group | None, layout: LayerwiseLayout, *, source: Tensor, buffer: Tensor
) -> None:
    numel, count = layout.plain_numel, len(layout.plain)
    packed, pieces = buffer.new_empty(numel), source.split_with_sizes(layout.sizes)
    if count:
        plain = [pieces[place] for place in layout.plain]
        await compute(rank, copy_cost(buffer, numel), _pack, packed, plain, label="powersgd.pack")
    # Called even if empty, as in torch: the number of collectives does not depend on the model.
    await rank.all_reduce(packed, group=group, label="powersgd.uncompressed")
    if count:
        results = buffer.split_with_sizes(layout.sizes)
        targets = [results[place] for place in layout.plain]
        kernel = cost("permute", buffer, flops=numel, read=2 * numel, written=2 * numel, launches=1 + count)
        size = group_size(rank, group)
        await compute(rank, kernel, _unpack_mean, packed, size, targets, label="powersgd.unpack")


async def _operands(rank: Rank, state: PowerSGDState, layout: LayerwiseLayout, source: Tensor) -> list[Tensor]:
    """Return the matrices as operands of products: views, or with batching one stack for each shape."""
    matrices = layout.matrices(source)
    if not state.batch_tensors_with_same_shape:
        return [matrix for parts in matrices for matrix in parts]
    stacks = [_stack_of(parts) for parts in matrices]
    copied = [(stack, parts) for stack, parts in zip(stacks, matrices, strict=True) if len(parts) > 1]
    if copied:
        kernel = copy_cost(source, sum(stack.numel() for stack, _ in copied), len(copied))
        await compute(rank, kernel, _stack, copied, label="powersgd.stack")
    return stacks


def _stack_of(parts: Sequence[Tensor]) -> Tensor:
    """Return memory for a stack of these matrices; for a single matrix, a view."""
    # A view, so that products of a single matrix write straight into the bucket without a copy.
    return parts[0].unsqueeze(0) if len(parts) == 1 else parts[0].new_empty((len(parts), *parts[0].shape))


async def _decompress(
    rank: Rank, layout: LayerwiseLayout, factors: Factors, matrices: Sequence[Tensor], *, buffer: Tensor, stacked: bool
) -> None:
    results = layout.matrices(buffer)
    outputs = [matrix for parts in results for matrix in parts]
    copied: list[tuple[Tensor, list[Tensor]]] = []
    if stacked:
        # Stacks of several matrices are copies without further use: they hold the products before these are unstacked.
        pairs = list(zip(matrices, results, strict=True))
        outputs = [stack if len(parts) > 1 else _stack_of(parts) for stack, parts in pairs]
        copied = [(stack, parts) for stack, parts in pairs if len(parts) > 1]
    products = [(p, q.mT, out) for out, (p, q) in zip(outputs, factors.of_matrices(stacked), strict=True)]
    read = factors.p_memory.numel() + factors.q_memory.numel()
    await multiply_all(rank, factors, products, read=read, written=factors.numel, label="powersgd.decompress")
    if copied:
        launches = sum(len(parts) for _, parts in copied)
        kernel = copy_cost(buffer, sum(stack.numel() for stack, _ in copied), launches)
        await compute(rank, kernel, _unstack, copied, label="powersgd.unstack")


def _pack(packed: Tensor, pieces: list[Tensor]) -> None:
    torch.cat(pieces, out=packed)


def _unpack_mean(packed: Tensor, size: int, targets: Sequence[Tensor]) -> None:
    packed.div_(size)
    for target, piece in zip(targets, packed.split_with_sizes([target.numel() for target in targets]), strict=True):
        target.copy_(piece)


def _stack(copied: Sequence[tuple[Tensor, list[Tensor]]]) -> None:
    for stack, parts in copied:
        torch.stack(parts, out=stack)


def _unstack(copied: Sequence[tuple[Tensor, list[Tensor]]]) -> None:
    for stack, parts in copied:
        for piece, matrix in zip(stack, parts, strict=True):
            matrix.copy_(piece)
