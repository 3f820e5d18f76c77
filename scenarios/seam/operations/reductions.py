"""Reductions, pooling and QR decompositions as pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A `sum`, `mean`, `amax` etc. over the middle dimension of a contiguous tensor [outer, reduced, inner].

    Examples for [8192, 256]: a sum over rows has outer 1, reduced 8192, inner 256; over columns outer 8192, reduced
    256, inner 1; over everything outer 1, inner 1. `dtype` is that of the elements read.
    """

    name: str
    dtype: str
    outer: int
    reduced: int
    inner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Qr:
    """A reduced `linalg_qr` of `batch` matrices [rows, columns]."""

    rows: int
    columns: int
    batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pooling over windows of `window` elements, or its backward: `inputs` elements become `outputs`.

    `with_indices`: max pooling, which writes (backward reads) an int64 index with each output.
    """

    dtype: str
    inputs: int
    outputs: int
    window: int
    with_indices: bool = False
    backward: bool = False
