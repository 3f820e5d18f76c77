"""A cache in GPU memory of rows in host memory: what a batch misses in the steady state, and what filling it costs.

Behaves as fbgemm 1.x's split table-batched embeddings with their default algorithm, LRU: before a batch is looked up,
those of its rows that are not in the cache are fetched, each in the place of the row that was named the longest ago,
which is written back. All cached tables of one module share the cache, which has room for each one's `load_factor`.

P. J. Denning, S. C. Schwartz, Properties of the Working-Set Model, CACM 15(3), 1972: rows named in the last T batches
are s(T) in the mean, and a batch names s(T + 1) - s(T) others. The cache holds what its
characteristic time names (`lru`).
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

# A set's tags, of which a look-up reads all: fbgemm's cache has 32 ways (kWarpSize), tags of int64.
SET_BYTES = 32 * 8
# What a look-up leaves for each id: where its row is in the cache.
PLACE_BYTES = 4
# Ids of all tables numbered through, sorted and counted, looked for, sorted by age, exchanged, looked up.
LAUNCHES = 7
# The logarithm of the characteristic time is known to 1e-9.
_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedPiece:
    """Rows of a table, of which the cache has room for `load_factor`; `row_bytes` of its weights."""

    table: Table
    rows: range
    row_bytes: int
    load_factor: float


class RowCache:
    """One rank's cache of pieces whose rows are in host memory; `samples` of each batch ask for them.

    Ids are as `distinct_rows` has them: independent draws, of files too, whose order counts for nothing. Numbers of
    them are by piece, and of each by feature of its table.
    """

    def __init__(self, pieces: Sequence[CachedPiece], samples: int) -> None:
        self.pieces = tuple(pieces)
        self._ids = [expected_ids(piece.table, piece.rows, samples) for piece in pieces]

    @cached_property
    def capacity(self) -> float:
        """Rows that there is room for."""
        return sum(piece.load_factor * len(piece.rows) for piece in self.pieces)

    @cached_property
    def batches(self) -> float:
        """The characteristic time: the cache holds what so many batches name. Infinite if it has room for all."""
        if self._named(math.inf) <= self.capacity:
            return math.inf
        return characteristic_time(self._named, self.capacity, halvings=_HALVINGS)

    def misses(self, ids: Sequence[Sequence[float]]) -> list[float]:
        """Count the rows that a batch names and that are not in the cache; by piece, with so many `ids` for each."""
        if math.isinf(self.batches):
            return [0.0 for _ in ids]
        found = []
        for number, (usual, now) in enumerate(zip(self._ids, ids, strict=True)):
            before = [self.batches * each for each in usual]
            after = [held + more for held, more in zip(before, now, strict=True)]
            found.append(max(0.0, self._distinct(number, after) - self._distinct(number, before)))
        return found

    def fill_kernel(self, ids: Sequence[Sequence[float]], dtype: str) -> Kernel:
        """Look all ids up, fetch the rows that are missing, and write back as many."""
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

    def _named(self, batches: float) -> float:
        """Rows that so many batches name."""
        if math.isinf(batches):
            batches = LONGEST
        return sum(self._distinct(number, [batches * each for each in usual]) for number, usual in enumerate(self._ids))

    def _distinct(self, number: int, ids: Sequence[float]) -> float:
        piece = self.pieces[number]
        return distinct_rows(piece.table, piece.rows, ids)
