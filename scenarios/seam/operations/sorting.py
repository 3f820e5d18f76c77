"""Sorts, scans and fbgemm's operators on jagged tensors as pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """A `sort` or `argsort` of `rows` rows of `elements` keys of `key_bytes`, each with an int64 position.

    `bits` is the number of bits in which keys can differ: all of them unless the caller knows the greatest key.
    """

    elements: int
    rows: int = 1
    key_bytes: int = 8
    bits: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A `cumsum` or similar, or fbgemm's `asynchronous_complete_cumsum`, over all of `elements` elements."""

    elements: int
    element_bytes: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteSparse:
    """fbgemm's `permute_2D_sparse_data` of `bags` lengths and `ids` ids, with `id_bytes` per id and weight."""

    bags: int
    ids: int
    id_bytes: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketizeSparse:
    """fbgemm's `block_bucketize_sparse_features`: distributes `ids` ids in `bags` bags to `buckets` row blocks."""

    bags: int
    ids: int
    buckets: int = 1
    id_bytes: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutePooled:
    """fbgemm's `permute_pooled_embs`: reorders `size_bytes` of pooled embeddings by table."""

    size_bytes: int
