"""Sorts, scans and fbgemm's operators on jagged tensors as pure data."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(DescribedOperator):
    """A `sort` or `argsort` of `rows` rows of `elements` keys of `key_bytes`, each with an int64 position.

    `bits` is the number of bits in which keys can differ: all of them unless the caller knows the greatest key.
    """

    elements: int
    rows: int = 1
    key_bytes: int = 8
    bits: int = 64

    def words(self) -> Words:
        return "sort", f"{self.rows}x{self.elements} keys of {self.key_bytes} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(DescribedOperator):
    """A `cumsum` or similar, or fbgemm's `asynchronous_complete_cumsum`, over all of `elements` elements."""

    elements: int
    element_bytes: int = 8

    def words(self) -> Words:
        return "cumsum", f"{self.elements} of {self.element_bytes} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteSparse(DescribedOperator):
    """fbgemm's `permute_2D_sparse_data` of `bags` lengths and `ids` ids, with `id_bytes` per id and weight."""

    bags: int
    ids: int
    id_bytes: int = 8

    def words(self) -> Words:
        return "permute_2D_sparse_data", f"{about(self.ids)} ids in {self.bags} bags"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketizeSparse(DescribedOperator):
    """fbgemm's `block_bucketize_sparse_features`: distributes `ids` ids in `bags` bags to `buckets` row blocks."""

    bags: int
    ids: int
    buckets: int = 1
    id_bytes: int = 8

    def words(self) -> Words:
        return "block_bucketize_sparse_features", f"{about(self.ids)} ids in {self.bags} bags to {self.buckets}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutePooled(DescribedOperator):
    """fbgemm's `permute_pooled_embs`: reorders `size_bytes` of pooled embeddings by table."""

    size_bytes: int

    def words(self) -> Words:
        return "permute_pooled_embs", f"{self.size_bytes} bytes"
