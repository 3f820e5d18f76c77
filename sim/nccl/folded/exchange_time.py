"""How long an exchange takes by itself whose transfers are alike in large numbers, each sort of them in one row.

Max-min fair rates by progressive filling, as `sharing.max_min_rates` defines it; transfers of one sort have one rate.
On a capacity a row counts for as many transfers of its sort as cross it there. Compiled by numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]

# Rows that would end within this share of what the busiest capacity needs for its bytes end together.
_MERGED_SHARE = 2e-3
# Relative slack in which a capacity counts as full.
_FULL = 1e-9

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def seconds(crossed: Array, counts: Array, sizes: Array, per_s: Array) -> float:
    """Until the last is through.

    Args:
        crossed: [rows, width] numbers of capacities, -1 for none.
        counts: [rows, width] transfers of the row's sort on that capacity.
        sizes: [rows] bytes of one transfer, more than 0.
        per_s: [capacities] bytes/s.
    """
    rows, width = crossed.shape
    starts, lines = _by_capacity(crossed, per_s.size)
    remaining, rates, is_over = sizes.copy(), np.zeros(rows), np.zeros(rows, np.bool_)
    loads = np.zeros(per_s.size)
    for row in range(rows):
        for place in range(width):
            if crossed[row, place] >= 0:
                loads[crossed[row, place]] += counts[row, place] * sizes[row]
    within, now, left = _MERGED_SHARE * (loads / per_s).max(), 0.0, rows
    while left:
        _fill(crossed, counts, per_s, starts, lines, is_over, rates)
        first = np.inf
        for row in range(rows):
            if not is_over[row]:
                first = min(first, remaining[row] / rates[row])
        # What ends a little later ends with the first, at the mean of their ends by rate: no byte is won or lost.
        moved, rate = 0.0, 0.0
        for row in range(rows):
            if not is_over[row] and remaining[row] <= (first + within) * rates[row]:
                weight = counts[row, 0]
                moved += weight * remaining[row]
                rate += weight * rates[row]
        elapsed = moved / rate
        for row in range(rows):
            if is_over[row]:
                continue
            if remaining[row] <= (first + within) * rates[row]:
                is_over[row] = True
                left -= 1
            remaining[row] -= elapsed * rates[row]
        now += elapsed
    return now


@_compiled
def _by_capacity(crossed: Array, capacities: int) -> tuple[Array, Array]:
    """The rows that cross each capacity: lines[starts[c] : starts[c + 1]]."""
    rows, width = crossed.shape
    starts = np.zeros(capacities + 1, np.int64)
    for row in range(rows):
        for place in range(width):
            if crossed[row, place] >= 0:
                starts[crossed[row, place] + 1] += 1
    starts = np.cumsum(starts)
    ends, lines = starts.copy(), np.zeros(starts[-1], np.int64)
    for row in range(rows):
        for place in range(width):
            capacity = crossed[row, place]
            if capacity >= 0:
                lines[ends[capacity]] = row
                ends[capacity] += 1
    return starts, lines


@_compiled
def _fill(
    crossed: Array, counts: Array, per_s: Array, starts: Array, lines: Array, is_over: Array, rates: Array
) -> None:
    """Set the rates of all that is not over."""
    left, growth, growing = per_s.copy(), np.zeros(per_s.size), 0
    for row in range(rates.size):
        rates[row] = 0.0
        if not is_over[row]:
            growing += 1
            for place in range(crossed.shape[1]):
                if crossed[row, place] >= 0:
                    growth[crossed[row, place]] += counts[row, place]
    reached = 0.0
    while growing:
        level = np.inf
        for capacity in range(per_s.size):
            if growth[capacity] > _FULL:
                level = min(level, left[capacity] / growth[capacity])
        reached = max(reached, level)
        for capacity in range(per_s.size):
            if growth[capacity] > _FULL and left[capacity] / growth[capacity] <= reached * (1 + _FULL):
                rows = lines[starts[capacity] : starts[capacity + 1]]
                growing -= _stop(crossed, counts, rows, reached, is_over, rates, left, growth)
                growth[capacity] = 0.0


@_compiled
def _stop(
    crossed: Array,
    counts: Array,
    rows: Array,
    level: float,
    is_over: Array,
    rates: Array,
    left: Array,
    growth: Array,
) -> int:
    """Those of these rows that still grow do so no further; how many they are."""
    stopped = 0
    for row in rows:
        if is_over[row] or rates[row] > 0:
            continue
        rates[row] = level
        stopped += 1
        for place in range(crossed.shape[1]):
            capacity = crossed[row, place]
            if capacity >= 0:
                left[capacity] = max(0.0, left[capacity] - counts[row, place] * level)
                growth[capacity] -= counts[row, place]
    return stopped
