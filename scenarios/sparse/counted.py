"""Numbers of ids in place of ids and lengths, for a simulation without values, where each rank may know all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class BlockCounts(Protocol):
    """A function that counts the ids of each rank's batch by block of rows, or the distinct ones: [ranks, blocks]."""

    def __call__(self, key: str, rows: int, blocks: int, *, is_distinct: bool) -> Ints: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedIds:
    """Numbers of ids of all ranks: `by_rank` [ranks, keys]; of distinct ids if `is_distinct`."""

    by_rank: Ints
    in_blocks: BlockCounts
    is_distinct: bool = False

    def permute(self, order: Sequence[int]) -> CountedIds:
        """Return the numbers of the keys at the positions `order`, in that order."""
        return replace(self, by_rank=self.by_rank[:, list(order)])

    def distinct(self, keys: Sequence[str]) -> CountedIds:
        """Return the numbers of distinct ids of these keys."""
        found = [self.in_blocks(key, 0, 1, is_distinct=True) for key in keys]
        return CountedIds(by_rank=np.concatenate(found, 1), in_blocks=self.in_blocks, is_distinct=True)

    def bucketize(self, keys: Sequence[str], block_sizes: Sequence[int], buckets: int) -> CountedIds:
        """Return the numbers of the keys' ids in each bucket of rows: all keys of bucket 0, then of bucket 1."""
        cuts = zip(keys, block_sizes, strict=True)
        found = [self.in_blocks(key, rows, buckets, is_distinct=self.is_distinct) for key, rows in cuts]
        return replace(self, by_rank=np.stack(found, 2).reshape(len(self.by_rank), -1))

    def of_rank(self, rank: int) -> tuple[int, ...]:
        """Return the numbers of a rank, by key."""
        return tuple(self.by_rank[rank].tolist())
