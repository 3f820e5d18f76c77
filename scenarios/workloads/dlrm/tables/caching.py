"""Caches of rows: in GPU memory before rows in host memory, with the cost of filling it; and the GPU's L2.

The first follows fbgemm 1.x's split table-batched embeddings with their default algorithm, LRU: before a lookup,
missing rows are fetched, each replacing the least recently named row, which is written back. All cached tables of one
module share the cache, which has room for the `load_factor` share of each one's rows.

A lookup processes its tables one after the other, like fbgemm's, so each table has all of L2, which counts as an LRU
cache of whole rows. Data of other kernels are ignored. Features of one table are consecutive, but count as if their ids
alternated.

An LRU cache with room for C rows holds the rows named in the last T, its characteristic time, where s(T) = C for the
number s of distinct rows (H. Che, Y. Tung, Z. Wang, Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002); a batch
names s(T + 1) - s(T) others (P. J. Denning, S. C. Schwartz, Properties of the Working-Set Model, CACM 15(3), 1972).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from scenarios.config.scenario import Table
from scenarios.seam.kernel import Kernel
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids

# Bytes of an id, or of its sort key, and passes of a radix sort over digits of 8 bits; row numbers have four.
KEY_BYTES, SORT_PASSES = 8, 4
# Bytes of a set's tags, which a lookup reads: fbgemm's cache has 32 ways (kWarpSize), with int64 tags.
SET_BYTES = 32 * 8
# Bytes that a lookup writes for each id: the place of its row in the cache.
PLACE_BYTES = 4
# Launches: number the ids of all tables, sort, count, look for, sort by age, exchange, look up.
LAUNCHES = 7
# Upper limit of a characteristic time, and halvings that find its logarithm to 1e-9, for L2 to 1e-4.
_LONGEST, _HALVINGS, _HALVINGS_OF_L2 = 1e12, 40, 18
# The fraction of L2's characteristic time over which the rows that further ids name are counted.
_FURTHER = 0.02


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
        if self._count_named(_LONGEST) <= self.capacity:
            return math.inf
        return _characteristic_time(self._count_named, self.capacity, shortest=1 / _LONGEST, halvings=_HALVINGS)

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
        return sum(self._distinct(number, [batches * each for each in usual]) for number, usual in enumerate(self._ids))

    def _distinct(self, number: int, ids: Sequence[float]) -> float:
        piece = self.pieces[number]
        return distinct_rows(piece.table, piece.rows, ids)


def count_fetched_rows(table: Table, rows: range, ids: Sequence[float], room: float) -> float:
    """Return how many rows these ids (by feature, all in this block) read from memory; L2 has room for `room` rows."""
    named = distinct_rows(table, rows, ids)
    if named <= room:
        return named
    held, missing = _steady(table, rows, room)
    every = sum(ids)
    return min(every, room + max(every - held, 0.0) * missing)


@lru_cache(maxsize=1 << 14)
def _steady(table: Table, rows: range, room: float) -> tuple[float, float]:
    """Return the number of ids that name `room` rows, and the share of further ids that miss."""
    of_sample = expected_ids(table, rows, 1)
    shares = [count / sum(of_sample) for count in of_sample]

    def count_named(ids: float) -> float:
        return distinct_rows(table, rows, [ids * share for share in shares])

    held = _characteristic_time(count_named, room, shortest=max(room, 1.0), halvings=_HALVINGS_OF_L2)
    more = count_named(held * (1 + _FURTHER)) - count_named(held)
    return held, more / (held * _FURTHER)


def _characteristic_time(named: Callable[[float], float], room: float, *, shortest: float, halvings: int) -> float:
    """Find the time in which `room` rows are named, between `shortest` and `_LONGEST`.

    Args:
        named: returns the mean number of distinct rows named in a time; must grow with time.
        room: rows that fit into the cache.
        halvings: bisection steps on the logarithm of the time; the result is the upper end.
    """
    low, high = math.log(shortest), math.log(_LONGEST)
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if named(math.exp(middle)) < room else (low, middle)
    return math.exp(high)
