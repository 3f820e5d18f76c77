"""Bucketizes CPU tensors with loops compiled by numba (`kernels_device` serves accelerators).

One compiled loop replaces ten numpy passes over all ids (times: docs/explanation/sparse.md). The first pass finds
buckets and counts; bags come in order, so later passes write each bucket's ids consecutively. A first call compiles
for some seconds, and leaves the code on disk for later processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.compiled import compiler
from scenarios.sparse.blocks import Blocks, Bucketized

Array = npt.NDArray[Any]
_BITS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


def bucketize(
    ids: Tensor,
    lengths: Tensor,
    batches: Sequence[int],
    blocks: Blocks,
    *,
    weights: Tensor | None,
    positions: bool,
    sequence: bool,
) -> Bucketized:
    """Bucketize ids; feature f has `batches[f]` bags; `positions` and `sequence` request these further results."""
    assigned = _Assigned.of(ids, lengths, batches, blocks)
    return Bucketized(
        lengths=assigned.lengths,
        values=assigned.scatter(assigned.local),
        weights=None if weights is None else assigned.scatter(weights),
        positions=assigned.positions(lengths) if positions else None,
        unbucketize_permute=assigned.slots() if sequence else None,
    )


def count(ids: Tensor, lengths: Tensor, batches: Sequence[int], blocks: Blocks) -> Tensor:
    """Return only the lengths of bucketized bags."""
    return _Assigned.of(ids, lengths, batches, blocks).lengths


@dataclass(frozen=True, slots=True)
class _Assigned:
    """Bucketized ids: each id's bucket and id there, and counts: `lengths` [my_size * bags], `sizes` [my_size]."""

    local: Tensor
    buckets: Array
    lengths: Tensor
    sizes: Array

    @staticmethod
    def of(ids: Tensor, lengths: Tensor, batches: Sequence[int], blocks: Blocks) -> _Assigned:
        given = _bits(ids)
        # Widened only where a divisor needs it: ids of 32 bits halve what the loop reads and writes.
        wide = given.astype(np.uint64) if blocks.largest > np.iinfo(given.dtype).max else given
        old = lengths.contiguous().numpy()
        local, buckets = np.empty_like(wide), np.empty(wide.size, np.uint8 if blocks.my_size <= 1 << 8 else np.int32)
        new, sizes = np.zeros((blocks.my_size, old.size), old.dtype), np.zeros(blocks.my_size, np.int64)
        _assign(wide, old, _FeatureLayout.of(batches, blocks, wide.dtype), _Output(local, buckets, new, sizes))
        narrow = torch.from_numpy(local.astype(given.dtype, copy=False)).view(ids.dtype)
        return _Assigned(narrow, buckets, torch.from_numpy(new.reshape(-1)), sizes)

    def scatter(self, given: Tensor) -> Tensor:
        """Reorder one item per id by bucket."""
        items = _bits(given)
        out = np.empty_like(items)
        _scatter(items, self.buckets, self._starts(), out)
        return torch.from_numpy(out).view(given.dtype)

    def positions(self, lengths: Tensor) -> Tensor:
        """Return each id's position in its old bag, by bucket."""
        out = np.empty(self.buckets.size, np.dtype(f"i{self.local.element_size()}"))
        _scatter_positions(lengths.contiguous().numpy(), self.buckets, self._starts(), out)
        return torch.from_numpy(out)

    def slots(self) -> Tensor:
        """Return the slot of each id after bucketizing."""
        out = np.empty(self.buckets.size, np.dtype(f"i{self.local.element_size()}"))
        _number(self.buckets, self._starts(), out)
        return torch.from_numpy(out)

    def _starts(self) -> Array:
        starts: Array = self.sizes.cumsum() - self.sizes
        return starts


class _Output(NamedTuple):
    """The outputs of `_assign`: `lengths` [my_size, bags], the others as in `_Assigned`."""

    local: Array
    buckets: Array
    lengths: Array
    sizes: Array


class _FeatureLayout(NamedTuple):
    """The features' blocks for `_assign`, in the ids' dtype, because numba makes mixed signs floating point.

    An id goes to bucket `id // rows`, or to the last of `bounds` [features, my_size + 1 or 0] that is not above it; ids
    from bucket `ends` on are distributed by remainder.
    """

    batches: Array
    rows: Array
    ends: Array
    total: Array
    share: Array
    bounds: Array
    keep: Array

    @staticmethod
    def of(batches: Sequence[int], blocks: Blocks, dtype: np.dtype[Any]) -> _FeatureLayout:
        return _FeatureLayout(
            batches=np.array(batches, np.int64),
            rows=blocks.rows.astype(dtype),
            ends=np.where(blocks.empty, 0, blocks.my_size).astype(dtype),
            total=blocks.total.astype(dtype),
            share=(blocks.total // blocks.my_size).astype(dtype),
            bounds=np.array(blocks.bounds, dtype) if blocks.bounds else np.empty((blocks.features, 0), dtype),
            keep=blocks.keep,
        )


def _bits(tensor: Tensor) -> Array:
    """Return the elements as unsigned integers of their width, so that numba compiles once for both signs."""
    flat = tensor.detach().contiguous()
    array: Array = flat.view(_BITS[flat.element_size()]).numpy()
    return array


_compiled = compiler(__file__)


@_compiled
def _search(row: Any, bounds: Array) -> tuple[Any, Any]:
    """Return the index of the last bound not above a row, and the row's distance from it."""
    low, high = 0, bounds.size
    while high - low > 1:
        middle = (low + high) // 2
        if row < bounds[middle]:
            high = middle
        else:
            low = middle
    # Unsigned, as the other branch's bucket is: numba makes a mix of signs floating point.
    return np.uint64(low), row - bounds[low]


@_compiled
def _assign(ids: Array, lengths: Array, of: _FeatureLayout, into: _Output) -> None:
    local, buckets, new_lengths, sizes = into.local, into.buckets, into.lengths, into.sizes
    bag = i = 0
    for f in range(of.batches.size):
        rows, end, total, share, keep = of.rows[f], of.ends[f], of.total[f], of.share[f], of.keep[f]
        for _ in range(of.batches[f]):
            for _ in range(lengths[bag]):
                row = ids[i]
                if of.bounds.size:
                    bucket, place = _search(row, of.bounds[f])
                else:
                    bucket = row // rows
                    place = row - bucket * rows
                if bucket >= end:
                    bucket, place = row % total // share, row // total
                local[i] = row if keep else place
                buckets[i] = bucket
                new_lengths[bucket, bag] += 1
                sizes[bucket] += 1
                i += 1
            bag += 1


@_compiled
def _scatter(items: Array, buckets: Array, starts: Array, out: Array) -> None:
    for i in range(items.size):
        bucket = buckets[i]
        out[starts[bucket]] = items[i]
        starts[bucket] += 1


@_compiled
def _scatter_positions(lengths: Array, buckets: Array, starts: Array, out: Array) -> None:
    i = 0
    for length in lengths:
        for position in range(length):
            bucket = buckets[i]
            out[starts[bucket]] = position
            starts[bucket] += 1
            i += 1


@_compiled
def _number(buckets: Array, starts: Array, out: Array) -> None:
    for i in range(buckets.size):
        bucket = buckets[i]
        out[i] = starts[bucket]
        starts[bucket] += 1
