"""Which rows a look-up finds in the GPU's L2 cache, because it has read them before.

A look-up goes through its tables one after the other, as fbgemm's table-batched embeddings do, so each table has all
of L2 for itself. L2 counts as an LRU cache of whole rows: with room for C of them it holds what the last T ids named,
where T ids name C rows (H. Che, Y. Tung, Z. Wang, Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002). What other
kernels left there is forgotten.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scenarios.config.scenario import Table
from scenarios.workloads.dlrm.ids.distribution import distinct_rows

# Halvings of the interval in which the logarithm of T lies: T is known to 1e-4.
_HALVINGS = 18
_MOST_IDS = 1e12
# Over which part of T the rows are counted that further ids name.
_FURTHER = 0.02


def rows_fetched(table: Table, rows: range, ids: float, room: float) -> float:
    """How many rows so many ids, all in this block, read from memory, where L2 has room for `room` rows."""
    named = distinct_rows(table, rows, ids)
    if named <= room:
        return named
    held, missing = _steady(table, rows, room)
    return min(ids, room + max(ids - held, 0.0) * missing)


@lru_cache(maxsize=1 << 14)
def _steady(table: Table, rows: range, room: float) -> tuple[float, float]:
    """The ids that name as many rows as there is room for, and the share of further ones that miss."""
    low, high = math.log(max(room, 1.0)), math.log(_MOST_IDS)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if distinct_rows(table, rows, math.exp(middle)) < room else (low, middle)
    held = math.exp(high)
    more = distinct_rows(table, rows, held * (1 + _FURTHER)) - distinct_rows(table, rows, held)
    return held, more / (held * _FURTHER)
