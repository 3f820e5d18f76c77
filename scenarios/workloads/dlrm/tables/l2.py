"""Computes which rows a lookup finds in the GPU's L2 cache, because it has read them before.

A lookup processes its tables one after the other, like fbgemm's table-batched embeddings, so each table has all of L2.
L2 counts as an LRU cache of whole rows, which holds the rows named in its characteristic time (`lru`). Data of other
kernels are ignored. Features of one table are consecutive, but count as if their ids alternated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from scenarios.config.scenario import Table
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids
from scenarios.workloads.dlrm.tables.lru import characteristic_time

# Halvings that find the characteristic time to 1e-4.
_HALVINGS = 18
# The fraction of that time over which the rows that further ids name are counted.
_FURTHER = 0.02


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

    held = characteristic_time(count_named, room, shortest=max(room, 1.0), halvings=_HALVINGS)
    more = count_named(held * (1 + _FURTHER)) - count_named(held)
    return held, more / (held * _FURTHER)
