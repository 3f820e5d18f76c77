"""Reductions, pooling and QR decompositions as pure data."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words, back


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction(DescribedOperator):
    """A `sum`, `mean`, `amax` etc. over the middle dimension of a contiguous tensor [outer, reduced, inner].

    Examples for [8192, 256]: a sum over rows has outer 1, reduced 8192, inner 256; over columns outer 8192, reduced
    256, inner 1; over everything outer 1, inner 1. `dtype` is that of the elements read.
    """

    name: str
    dtype: str
    outer: int
    reduced: int
    inner: int

    def words(self) -> Words:
        return self.name, f"{self.outer}x{self.reduced}x{self.inner} over {self.reduced}, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Qr(DescribedOperator):
    """A reduced `linalg_qr` of `batch` matrices [rows, columns]."""

    rows: int
    columns: int
    batch: int = 1

    def words(self) -> Words:
        return "linalg_qr", f"{f'{self.batch} of ' if self.batch > 1 else ''}{self.rows}x{self.columns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(DescribedOperator):
    """A pooling over windows of `window` elements, or its backward: `inputs` elements become `outputs`.

    `with_indices`: max pooling, which writes (backward reads) an int64 index with each output.
    """

    dtype: str
    inputs: int
    outputs: int
    window: int
    with_indices: bool = False
    backward: bool = False

    def words(self) -> Words:
        name = "max_pool2d" if self.with_indices else "avg_pool2d"
        return back(name, self.backward), f"{self.inputs} to {self.outputs} by windows of {self.window}, {self.dtype}"
