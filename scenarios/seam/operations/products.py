"""Descriptions of matrix products, as their law takes them; needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scenarios.seam.operations.operation import DescribedOperator, Words, back, by

# Alignment, in bytes, beyond which wider loads gain nothing.
FULL_ALIGNMENT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(DescribedOperator):
    """A product [rows, inner] x [inner, columns] of matrices, repeated `batch` times.

    Attributes:
        dtype: of the arithmetic: "float32" on CUDA cores, "tf32" of float32 operands, "bfloat16", "float16", "float64".
        left_is_transposed: the left operand's contiguous dimension in memory is rows, as in a weight's gradient; else
            `inner`.
        right_is_transposed: the right operand's contiguous dimension is `inner`, as in `linear`; else `columns`.
        left_alignment, right_alignment, result_alignment: greatest power of two, at most 16 bytes, that divides the
            operand's address and the bytes between its rows.
    """

    batch: int = 1
    rows: int
    columns: int
    inner: int
    dtype: str
    left_is_transposed: bool = False
    right_is_transposed: bool = False
    left_alignment: int = FULL_ALIGNMENT
    right_alignment: int = FULL_ALIGNMENT
    result_alignment: int = FULL_ALIGNMENT

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiplication and an addition counted as two."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner

    def words(self) -> Words:
        is_linear = self.batch == 1 and self.right_is_transposed and not self.left_is_transposed
        left = "^T" if self.left_is_transposed else ""
        right = "^T" if self.right_is_transposed and not is_linear else ""
        batch = f"{self.batch} of " if self.batch > 1 else ""
        shapes = f"{batch}{self.rows}x{self.inner}{left} x {self.columns}{right}, {self.dtype}"
        return "linear" if is_linear else "bmm" if self.batch > 1 else "mm", shapes


# Cells of recurrent layers, with the products of each step, which are computed as one.
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence(DescribedOperator):
    """The steps of a recurrent layer in one direction, without the products of all steps' inputs.

    Each step multiplies a state [batch, state] by [state, gates * hidden], or back, and applies the cell to the result.

    Attributes:
        batch: samples of a step; their mean where sequences differ in length.
        state: size of the state between steps: `hidden`, or a projection of it.
        is_packed: sequences may differ in length.
    """

    cell: Literal["lstm", "gru", "rnn"]
    steps: int
    batch: int
    hidden: int
    state: int
    dtype: str
    is_packed: bool = False
    is_backward: bool = False

    @property
    def gates(self) -> int:
        """Number of products of each step."""
        return GATES[self.cell]

    @property
    def flops(self) -> float:
        """Floating-point operations of the products."""
        return 2.0 * self.steps * self.batch * self.state * self.gates * self.hidden

    def words(self) -> Words:
        return back(self.cell, self.is_backward), f"{self.steps} steps of {by(self.batch, self.hidden)}, {self.dtype}"


def alignment(contiguous: int, element_bytes: int) -> int:
    """Return the alignment in bytes of an unpadded matrix whose contiguous dimension has `contiguous` elements."""
    row_bytes = contiguous * element_bytes
    return min(row_bytes & -row_bytes, FULL_ALIGNMENT) if row_bytes else FULL_ALIGNMENT


def product(
    rows: int,
    columns: int,
    inner: int,
    *,
    dtype: str,
    element_bytes: int,
    batch: int = 1,
    right_is_transposed: bool = False,
) -> Product:
    """Return the product of contiguous matrices [rows, inner] and [inner, columns], the right one optionally
    transposed.
    """
    return Product(
        batch=batch,
        rows=rows,
        columns=columns,
        inner=inner,
        dtype=dtype,
        right_is_transposed=right_is_transposed,
        left_alignment=alignment(inner, element_bytes),
        right_alignment=alignment(inner if right_is_transposed else columns, element_bytes),
        result_alignment=alignment(columns, element_bytes),
    )


def linear(rows: int, inner: int, columns: int, dtype: str, *, element_bytes: int) -> Product:
    """Return the product of `torch.nn.functional.linear`: [rows, inner] by a weight [columns, inner]."""
    return product(rows, columns, inner, dtype=dtype, element_bytes=element_bytes, right_is_transposed=True)


def linear_input_gradient(rows: int, inner: int, columns: int, dtype: str, *, element_bytes: int) -> Product:
    """Return the product of the gradient of a linear layer's input: [rows, columns] by the weight [columns, inner]."""
    return product(rows, inner, columns, dtype=dtype, element_bytes=element_bytes)


def linear_weight_gradient(rows: int, inner: int, columns: int, dtype: str, *, element_bytes: int) -> Product:
    """Return the product of the gradient of a linear layer's weight: [columns, rows] by the input [rows, inner]."""
    return Product(
        rows=columns,
        columns=inner,
        inner=rows,
        dtype=dtype,
        left_is_transposed=True,
        left_alignment=alignment(columns, element_bytes),
        right_alignment=alignment(inner, element_bytes),
        result_alignment=alignment(inner, element_bytes),
    )
