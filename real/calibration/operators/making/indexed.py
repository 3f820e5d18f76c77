"""Creates operators that read or write by index, concatenations and copies from their descriptions."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from real.calibration.operators.making.arena import Arena, CannotMakeError, Made, near_square, torch_dtype
from scenarios.seam.operations.moves import Cat, HostCopy
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd

_aten = torch.ops.aten
# Rows of a table for each id, where the description does not give the table's size.
_ROWS_AN_ID = 4
_WIDTH = 128


def gather(one: Gather, arena: Arena) -> Made:
    """Return the lookup of rows by `embedding`, with the described number of unique rows."""
    unique = one.unique or one.rows
    rows = max(unique, min(_ROWS_AN_ID * unique, 1 << 24))
    dtype = torch_dtype(one.dtype)
    while rows > unique and rows * one.dim * dtype.itemsize > arena.size_bytes:
        rows = max(unique, rows // 2)
    table, ids = arena.tensor((rows, one.dim), dtype), arena.ids(one.rows, rows, unique=unique)
    arena.result(one.rows * one.dim, dtype)
    return Made(lambda: _aten.embedding.default(table, ids))


def index(one: Index, arena: Arena) -> Made:
    """Return `index` by one to three tensors, or a write of elements where no source is described.

    Two indices address the elements below the diagonal of square matrices where they can, as in a recommender's
    interaction.

    Raises:
        CannotMakeError: the source cannot be divided among the indices.
    """
    dtype = torch_dtype(one.dtype)
    if not one.source_elements:
        if one.indices != 1:
            raise CannotMakeError("a write by several indices into a tensor that is not described")
        target = arena.tensor((one.elements,), dtype, is_changed=True)
        values, places = arena.tensor((one.elements,), dtype), arena.ids(one.elements, one.elements)
        return Made(lambda: _aten.index_put_.default(target, [places], values))
    arena.result(one.elements, dtype)
    side = _triangle(one.elements, one.source_elements) if one.indices == 2 else 0
    if side:
        given = arena.tensor((one.source_elements // side**2, side, side), dtype)
        listed: list[Tensor | None] = [None, *_below_diagonal(arena, side)]
    else:
        shape = near_square(one.source_elements, one.indices)
        given = arena.tensor(shape, dtype)
        listed = [arena.ids(one.elements, extent) for extent in shape]
    return Made(lambda: _aten.index.Tensor(given, listed))


def index_put(one: IndexPut, arena: Arena) -> Made:
    """Return the accumulating `index_put_`.

    Raises:
        CannotMakeError: the extents before and behind the index do not divide the target's elements.
    """
    rows = one.target_elements // max(one.slices * one.inner, 1)
    if rows * one.slices * one.inner != one.target_elements or one.is_contiguous != (one.slices == 1):
        raise CannotMakeError("no target of these extents")
    dtype = torch_dtype(one.dtype)
    before = (one.slices,) if one.slices > 1 else ()
    behind = (one.inner,) if one.inner > 1 else ()
    side = math.isqrt(rows)
    if before and side**2 == rows and 2 * one.count == side * (side - 1):
        target = arena.tensor((*before, side, side, *behind), dtype, is_changed=True)
        places = _below_diagonal(arena, side)
    else:
        target = arena.tensor((*before, rows, *behind), dtype, is_changed=True)
        places = [arena.ids(one.count, rows)]
    listed = [*(None for _ in before), *places]
    values = arena.tensor((*before, one.count, *behind), dtype)
    arena.result(values.numel(), dtype)
    function = _aten.index_put_.default
    return Made(lambda: function(target, listed, values, True))


def embedding_backward(one: EmbeddingBackward, arena: Arena) -> Made:
    """Return the sum of gradients into a table of zeros."""
    gradient = arena.tensor((one.ids, one.dim), torch_dtype(one.dtype))
    ids = arena.ids(one.ids, one.table_rows)
    arena.result(one.table_rows * one.dim, gradient.dtype)
    back = _aten.embedding_dense_backward.default
    return Made(lambda: back(gradient, ids, one.table_rows, -1, False))


def scatter_add(one: ScatterAdd, arena: Arena) -> Made:
    """Return the addition of elements to a vector."""
    dtype = torch_dtype(one.dtype)
    target = arena.tensor((one.target_elements,), dtype, is_changed=True)
    source, ids = arena.tensor((one.elements,), dtype), arena.ids(one.elements, one.target_elements)
    return Made(lambda: _aten.scatter_add_.default(target, 0, ids, source))


def cat(one: Cat, arena: Arena) -> Made:
    """Return the concatenation of `inputs` tensors, one behind the other or column by column.

    Raises:
        CannotMakeError: this number of tensors cannot have this number of elements.
    """
    dtype, count = torch_dtype(one.dtype), one.inputs
    arena.result(one.elements, dtype)
    if one.dims <= 1:
        sizes = _parts(one.elements, count)
        step = 1 if one.contiguous else 2
        pieces = [arena.tensor((size,), dtype, (step,)) for size in sizes]
        return Made(lambda: _aten.cat.default(pieces, 0))
    rows = _rows(one.elements, count)
    outer = [1] * (one.dims - 2)
    if outer:  # dimensions before the rows that no kernel can merge with them
        outer[0] = 2 if rows % 2 == 0 else 1
        rows //= outer[0]
    widths = _parts(one.elements // (rows * math.prod(outer)), count)
    if not widths[-1] or rows * math.prod(outer) == 1:
        raise CannotMakeError(f"{count} tensors cannot make {one.elements} elements in {one.dims} dimensions")
    gap = 8 if one.dims > 2 else 0  # slices, which no kernel copies as if they were contiguous
    pieces = []
    for width in widths:
        shape = (*outer, rows, width)
        pieces.append(arena.tensor(shape, dtype, _rows_apart(shape, width + gap)))
    return Made(lambda: _aten.cat.default(pieces, one.dims - 1))


def host_copy(one: HostCopy, arena: Arena) -> Made:
    """Return the copy between the host's memory and a GPU's.

    Raises:
        CannotMakeError: the device is no GPU.
    """
    if arena.device.type != "cuda":
        raise CannotMakeError("copies to and from the host need a GPU")
    there = arena.tensor((one.size_bytes,), torch.uint8, is_changed=True)
    here = arena.host(one.size_bytes, is_pinned=one.pinned)
    target, source = (there, here) if one.to_gpu else (here, there)
    run = partial(target.copy_, source, non_blocking=one.pinned)
    return Made(run, waits=not one.pinned)


def _triangle(elements: int, source: int) -> int:
    """Return the side of square matrices whose elements below the diagonal may be the indices; 0 if there is none."""
    beside = source - 2 * elements
    if beside <= 0 or source % beside:
        return 0
    side = source // beside
    return side if side > 1 and source % side**2 == 0 else 0


def _below_diagonal(arena: Arena, side: int) -> list[Tensor]:
    return list(torch.tril_indices(side, side, -1, device=arena.device).unbind())


def _rows(elements: int, count: int) -> int:
    """Return the number of rows of `count` tensors that have `elements` elements in all, in rows of about 128 elements.

    The number divides the elements.
    """
    for width in (_WIDTH, 64, 256, 32, 16, 8, 4, 2, 1):
        if elements % (width * count) == 0 and elements > width * count:
            return elements // (width * count)
    most = elements // count
    wanted = max(2, most // _WIDTH)
    around = (rows for apart in range(wanted) for rows in (wanted - apart, wanted + apart))
    return next((rows for rows in around if 1 < rows <= most and elements % rows == 0), 1)


def _parts(whole: int, count: int) -> list[int]:
    """Divide a number as evenly as possible."""
    ends = [whole * place // count for place in range(count + 1)]
    return sorted((end - begin for begin, end in pairwise(ends)), reverse=True)


def _rows_apart(shape: tuple[int, ...], apart: int) -> tuple[int, ...]:
    steps = [1, apart]
    for extent in reversed(shape[1:-1]):
        steps.append(steps[-1] * extent)
    return tuple(reversed(steps))[-len(shape) :]
