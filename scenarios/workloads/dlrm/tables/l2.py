"""Which rows a look-up finds in the GPU's L2 cache, because it has read them before.

A look-up goes through its tables one after the other, as fbgemm's table-batched embeddings do, so each table has all
of L2 for itself. L2 counts as an LRU cache of whole rows, which holds what the ids of its characteristic time named
(`lru`). What other kernels left there is forgotten. Features of one table, which follow each other, count as if their
ids alternated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from scenarios.config.scenario import Table
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids
from scenarios.workloads.dlrm.tables.lru import characteristic_time

# The characteristic time is known to 1e-4.
_HALVINGS = 18
# Over which part of it the rows are counted that further ids name.
_FURTHER = 0.02


def rows_fetched(table: Table, rows: range, ids: Sequence[float], room: float) -> float:
    """How many rows so many ids, by feature and all in this block, read from memory, where L2 has room for `room`."""
    named = distinct_rows(table, rows, ids)
    if named <= room:
        return named
    held, missing = _steady(table, rows, room)
    every = sum(ids)
    return min(every, room + max(every - held, 0.0) * missing)


@lru_cache(maxsize=1 << 14)
def _steady(table: Table, rows: range, room: float) -> tuple[float, float]:
    """The ids that name as many rows as there is room for, and the share of further ones that miss."""
    of_sample = expected_ids(table, rows, 1)
    shares = [count / sum(of_sample) for count in of_sample]

    def named(ids: float) -> float:
        return distinct_rows(table, rows, [ids * share for share in shares])

    held = characteristic_time(named, room, shortest=max(room, 1.0), halvings=_HALVINGS)
    more = named(held * (1 + _FURTHER)) - named(held)
    return held, more / (held * _FURTHER)
