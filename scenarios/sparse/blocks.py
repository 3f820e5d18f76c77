"""The input and output values of bucketizing: blocks of rows, and bags cut by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketized:
    """Bags cut by bucket: bucket 0's bags of every feature and sample, then bucket 1's.

    `lengths` is [my_size * bags]. `values`, and `weights` and `positions` (in the old bag) if requested, are laid out
    by it. `unbucketize_permute[i]` is the slot of id i.
    """

    lengths: Tensor
    values: Tensor
    weights: Tensor | None = None
    positions: Tensor | None = None
    unbucketize_permute: Tensor | None = None

    def to(self, device: torch.device, lengths_device: torch.device) -> Bucketized:
        """Copy to other devices."""
        parts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "lengths"}
        moved: dict[str, Any] = {name: None if part is None else part.to(device) for name, part in parts.items()}
        return Bucketized(lengths=self.lengths.to(lengths_device), **moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks of each feature's rows that `my_size` buckets hold; columns have one item per feature.

    A bucket holds `rows` rows (at least 1), or the rows from one of the feature's `bounds` to the next; `empty`
    features have no rows. An id past the last bucket becomes `id // total` in the bucket of block `id % total`, where
    `total` blocks are divided evenly among buckets. Ids are unchanged if `keep`.
    """

    my_size: int
    rows: Column
    total: Column
    empty: npt.NDArray[np.bool_]
    keep: npt.NDArray[np.bool_]
    bounds: tuple[tuple[int, ...], ...] | None = None

    @staticmethod
    def of(
        block_sizes: Sequence[int] | Tensor,
        my_size: int,
        *,
        total_num_blocks: Sequence[int] | Tensor | None = None,
        block_bucketize_pos: Sequence[Sequence[int] | Tensor] | None = None,
        keep_orig_idx: bool | Sequence[bool] = False,
    ) -> Blocks:
        """Make blocks from the arguments of `block_bucketize`.

        Raises:
            RuntimeError: the arguments do not fit each other.
        """
        if my_size < 1:
            raise RuntimeError(f"block_bucketize: my_size = {my_size}, expected at least 1")
        sizes = np.asarray(block_sizes, dtype=np.int64)
        for feature in np.flatnonzero(sizes < 0)[:1]:
            raise RuntimeError(f"block_bucketize: block_sizes[{feature}] = {sizes[feature]}, expected at least 0")
        total = _total(total_num_blocks, sizes, my_size)
        keep = np.full(sizes.size, keep_orig_idx) if isinstance(keep_orig_idx, bool) else np.array(keep_orig_idx, bool)
        _check_count("keep_orig_idx", keep.size, sizes)
        return Blocks(
            my_size=my_size,
            # At least 1, as an empty feature's rows divide its ids, too; `empty` then sends them on by remainder.
            rows=np.maximum(sizes * (total // my_size), 1),
            # With bounds the number of blocks has no effect: ids past the last bound go by `my_size` alone.
            total=total if block_bucketize_pos is None else np.full_like(total, my_size),
            empty=(sizes == 0) & (block_bucketize_pos is None),
            keep=keep,
            bounds=None if block_bucketize_pos is None else _bounds(block_bucketize_pos, sizes, my_size),
        )

    @property
    def features(self) -> int:
        return self.rows.size

    @property
    def largest(self) -> int:
        """The largest number by which an id is compared or divided."""
        ends = [bounds[-1] for bounds in self.bounds or ()]
        return max(self.my_size, *ends, int(self.total.max(initial=1)), int(self.rows.max(initial=1)))


def _total(given: Sequence[int] | Tensor | None, sizes: Column, my_size: int) -> Column:
    if given is None:
        return np.full(sizes.size, my_size, dtype=np.int64)
    total = np.asarray(given, dtype=np.int64)
    _check_count("total_num_blocks", total.size, sizes)
    for feature in np.flatnonzero((total % my_size != 0) | (total < my_size))[:1]:
        raise RuntimeError(
            f"block_bucketize: total_num_blocks[{feature}] = {total[feature]}, expected a multiple of my_size {my_size}"
        )
    return total


def _bounds(given: Sequence[Sequence[int] | Tensor], sizes: Column, my_size: int) -> tuple[tuple[int, ...], ...]:
    _check_count("block_bucketize_pos", len(given), sizes)
    made = tuple(tuple(int(row) for row in rows) for rows in given)
    for feature, rows in enumerate(made):
        ascending = all(low <= high for low, high in pairwise(rows))
        if len(rows) != my_size + 1 or rows[0] != 0 or not ascending:
            raise RuntimeError(
                f"block_bucketize: block_bucketize_pos[{feature}] = {list(rows)},"
                f" expected {my_size + 1} ascending rows that start with 0"
            )
    return made


def _check_count(name: str, given: int, sizes: Column) -> None:
    if given != sizes.size:
        raise RuntimeError(f"block_bucketize: {name} has {given} items, expected one a feature: {sizes.size}")
