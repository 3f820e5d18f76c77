"""Makes descriptions of matrix products from torch's tensors, with their memory layout."""

from __future__ import annotations

from torch import Tensor

from scenarios.seam.operations.products import FULL_ALIGNMENT, Product, alignment


def product_of(left: Tensor, right: Tensor, dtype: str) -> Product:
    """Return the product of [(batch,) rows, inner] and [(batch,) inner, columns]; a vector is one column or row.

    `dtype` is the arithmetic's. The result is contiguous.
    """
    left = left[None] if left.dim() == 1 else left
    right = right[:, None] if right.dim() == 1 else right
    left_step, left_is_transposed = _rows(left)
    right_step, right_is_transposed = _rows(right)
    columns = right.shape[-1]
    return Product(
        batch=left.shape[0] if left.dim() == 3 else 1,
        rows=left.shape[-2],
        columns=columns,
        inner=left.shape[-1],
        dtype=dtype,
        left_is_transposed=left_is_transposed,
        right_is_transposed=right_is_transposed,
        left_alignment=_alignment(left, left_step),
        right_alignment=_alignment(right, right_step),
        result_alignment=alignment(columns, left.element_size()),
    )


def _alignment(tensor: Tensor, row_elements: int) -> int:
    """Return the alignment in bytes of a matrix whose rows lie `row_elements` apart: at most 16."""
    step = row_elements * tensor.element_size()
    begin = int(tensor.storage_offset()) * tensor.element_size()
    both = step | begin | FULL_ALIGNMENT
    return both & -both


def _rows(matrix: Tensor) -> tuple[int, bool]:
    """Return the distance between rows in elements, and whether the last dimension is not the contiguous one."""
    outer, inner = matrix.stride()[-2:]
    rows, columns = matrix.shape[-2:]
    if inner == 1 or columns == 1:
        return (outer if rows > 1 else columns), inner != 1 and rows > 1
    return inner, True
