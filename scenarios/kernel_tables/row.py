"""A row of a table of measured operators, and rows of several tables as those of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from scenarios.seam.operations.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOperator:
    """A measured time of `operations`, which one call runs one after the other; most calls run one.

    Attributes:
        us: mean time in us of all kernels of a call on an otherwise idle GPU, without gaps between kernels.
        calls: number of calls in the mean.
        is_cold: whether caches held nothing of the inputs.
    """

    operations: tuple[Operation, ...]
    us: float
    calls: int = 1
    is_cold: bool = False


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
