"""Operators that read or write rows by index as pure data, and their backward passes."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(DescribedOperator):
    """An `embedding`, `index_select` or `gather` of `rows` whole rows of `dim` elements, `unique` of them distinct.

    `unique` 0: unknown; all are taken as distinct.
    """

    rows: int
    dim: int
    dtype: str
    unique: int = 0

    def words(self) -> Words:
        return "gather of rows", f"{self.rows}x{self.dim}, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(DescribedOperator):
    """An `index` by tensors, or `index_put_` without accumulation: `elements` elements, each found by its index.

    `indices` is the number of int64 index tensors; `source_elements` is the size of the indexed tensor.
    """

    elements: int
    dtype: str
    indices: int = 1
    source_elements: int = 0

    def words(self) -> Words:
        source = f" of {self.source_elements}" if self.source_elements else ""
        return "index", f"{self.elements}{source}, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPut(DescribedOperator):
    """An `index_put_` with accumulation, the backward of `index`: indices are sorted, values of equal ones summed.

    Attributes:
        slices: elements before the indexed dimensions (8,192 for the backward of `z[:, i, j]`).
        count: number of indices.
        inner: elements behind the indexed dimensions.
        target_elements: size of the tensor that is added to.
        is_contiguous: the values are contiguous; else they are copied first.
    """

    slices: int
    count: int
    inner: int
    dtype: str
    target_elements: int
    is_contiguous: bool = True

    def words(self) -> Words:
        shapes = f"{self.slices}x{self.count}x{self.inner} into {self.target_elements}, {self.dtype}"
        return "index_put_, accumulating", shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingBackward(DescribedOperator):
    """An `embedding_dense_backward`: `ids` rows of `dim` elements are summed into a table of `table_rows` zeros."""

    ids: int
    dim: int
    dtype: str
    table_rows: int

    def words(self) -> Words:
        return "embedding_dense_backward", f"{self.ids}x{self.dim} into {self.table_rows} rows, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterAdd(DescribedOperator):
    """A `scatter_add`, `index_add` or `scatter_reduce`: `elements` elements are added by atomic operations."""

    elements: int
    dtype: str
    target_elements: int

    def words(self) -> Words:
        return "scatter_add", f"{self.elements} into {self.target_elements}, {self.dtype}"
