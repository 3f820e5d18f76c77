"""Merges rows of tables: all calls of one description become one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from scenarios.kernel_tables.row import MeasuredOperator


def merge_rows(tables: Iterable[Iterable[MeasuredOperator]]) -> list[MeasuredOperator]:
    """Return one row for each description and state of caches, with the mean over the calls of all tables."""
    by_key: dict[object, list[MeasuredOperator]] = defaultdict(list)
    for rows in tables:
        for row in rows:
            by_key[row.operations, row.is_cold].append(row)
    return [_mean(rows) for rows in by_key.values()]


def _mean(rows: list[MeasuredOperator]) -> MeasuredOperator:
    calls = sum(row.calls for row in rows)
    us = sum(row.us * row.calls for row in rows) / calls
    return MeasuredOperator(operations=rows[0].operations, us=us, calls=calls, is_cold=rows[0].is_cold)
