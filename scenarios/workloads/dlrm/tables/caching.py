"""A cache in GPU memory of rows in host memory: misses of a batch in steady state, and the cost of filling it.

Follows fbgemm 1.x's split table-batched embeddings with their default algorithm, LRU: before a lookup, missing rows are
fetched, each replacing the least recently named row, which is written back. All cached tables of one module share the
cache, which has room for the `load_factor` share of each one's rows.

P. J. Denning, S. C. Schwartz, Properties of the Working-Set Model, CACM 15(3), 1972: the last T batches name s(T) rows
in the mean, and a batch names s(T + 1) - s(T) others. The cache holds the rows named in its characteristic time
(`lru`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from scenarios.config.scenario import Table
from scenarios.seam.kernel import Kernel
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids
from scenarios.workloads.dlrm.tables.lru import LONGEST, characteristic_time
from scenarios.workloads.dlrm.tables.sorting import KEY_BYTES, SORT_PASSES

# Bytes of a set's tags, which a lookup reads: fbgemm's cache has 32 ways (kWarpSize), with int64 tags.
SET_BYTES = 32 * 8
# Bytes that a lookup writes for each id: the place of its row in the cache.
PLACE_BYTES = 4
# Launches: number the ids of all tables, sort, count, look for, sort by age, exchange, look up.
LAUNCHES = 7
# Halvings that find the logarithm of the characteristic time to 1e-9.
_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedPiece:
    """A table's rows with a cache for `load_factor` of them; `row_bytes` of weights each."""

    table: Table
    rows: range
    row_bytes: int
    load_factor: float


class RowCache:
    """One rank's cache of pieces with rows in host memory, used by `samples` samples of each batch.

    Ids are drawn independently, as in `distinct_rows`; the order of ids from files is ignored. Numbers of ids are by
    piece, and within a piece by feature of its table.
    """

    def __init__(self, pieces: Sequence[CachedPiece], samples: int) -> None:
        self.pieces = tuple(pieces)
        self._ids = [expected_ids(piece.table, piece.rows, samples) for piece in pieces]

    @cached_property
    def capacity(self) -> float:
        """The number of rows that fit into the cache."""
        return sum(piece.load_factor * len(piece.rows) for piece in self.pieces)

    @cached_property
    def batches(self) -> float:
        """The characteristic time in batches: the cache holds the rows that these batches name; infinite if all fit."""
        if self._count_named(math.inf) <= self.capacity:
            return math.inf
        return characteristic_time(self._count_named, self.capacity, halvings=_HALVINGS)

    def misses(self, ids: Sequence[Sequence[float]]) -> list[float]:
        """Return by piece how many rows a batch names that are not cached; `ids` are numbers by piece and feature."""
        if math.isinf(self.batches):
            return [0.0 for _ in ids]
        found = []
        for number, (usual, now) in enumerate(zip(self._ids, ids, strict=True)):
            # What the cache holds is what the batches of its characteristic time have named: misses are what is added.
            before = [self.batches * each for each in usual]
            after = [held + more for held, more in zip(before, now, strict=True)]
            found.append(max(0.0, self._distinct(number, after) - self._distinct(number, before)))
        return found

    def fill_kernel(self, ids: Sequence[Sequence[float]], dtype: str) -> Kernel:
        """Return the kernel that looks up all ids, fetches missing rows, and writes back as many."""
        named = sum(self._distinct(number, count) for number, count in enumerate(ids))
        total = float(sum(map(sum, ids)))
        missing = sum(count * piece.row_bytes for count, piece in zip(self.misses(ids), self.pieces, strict=True))
        sorting = SORT_PASSES * KEY_BYTES * total
        return Kernel(
            kind="embedding_lookup",
            bytes_read=KEY_BYTES * total + sorting + SET_BYTES * (named + total) + missing,
            bytes_written=KEY_BYTES * total + sorting + PLACE_BYTES * total + missing,
            host_read=missing,
            host_written=missing,
            dtype=dtype,
            launches=LAUNCHES,
        )

    def _count_named(self, batches: float) -> float:
        """Return the number of rows that `batches` batches name."""
        if math.isinf(batches):
            batches = LONGEST
        return sum(self._distinct(number, [batches * each for each in usual]) for number, usual in enumerate(self._ids))

    def _distinct(self, number: int, ids: Sequence[float]) -> float:
        piece = self.pieces[number]
        return distinct_rows(piece.table, piece.rows, ids)
