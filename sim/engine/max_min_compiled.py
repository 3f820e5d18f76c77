"""The arithmetic of many flows on shared capacities, compiled by numba; which flows there are is left to `bundle`.

Progressive filling of weighted max-min fairness, as `sharing.max_min_rates` defines it. A capacity's level, the common
rate by weight at which it would be full, only rises while flows stop growing. So a heap of levels as they once were
gives the next full capacity: what comes out is looked at again, and put back where its level has risen since. A flow
has stopped when one of its capacities is full, and its rate is the lowest level among them: neither need be noted.
n flows that cross k capacities each, of which b are full in the end, take n b looks at k numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]

# Both as in `sharing`: relative slack in which a capacity counts as full; an end that is a whole ns but for rounding.
_FULL = 1e-12
_ROUNDING_NS = 1e-6

_compiled = njit(cache=True, nogil=True, error_model="numpy")


# The first two capacities stand for none: one is never full, the other always. Rows are filled up with the one; what is
# over gets the other, and infinitely many bytes to go, so that no loop need ask.
NONE, OVER, FIRST = 0, 1, 2


class Flows(NamedTuple):
    """Rows that use a byte of each of their capacities for each byte of theirs, all with a weight of 1.

    `crossed` [rows, width]: numbers of capacities, from `FIRST` on. `lines` repeats it by capacity, lines[starts[c] :
    starts[c + 1]], so that a capacity's users are read one after the other; `places` [rows, width] says where.
    """

    crossed: Array
    starts: Array
    lines: Array
    places: Array
    remaining: Array
    rates: Array


class Others(NamedTuple):
    """What shares capacities with them: row r uses `per_unit` of capacities[starts[r] : starts[r + 1]]."""

    starts: Array
    capacities: Array
    per_unit: Array
    weights: Array


def flows(crossed: Array, remaining: Array, counts: Array) -> Flows:
    """All rows under way: `crossed` as uint32 numbers; `counts`: how many cross each capacity."""
    starts = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts[FIRST:], out=starts[FIRST + 1 :])
    lines, places = np.empty((starts[-1], crossed.shape[1]), np.uint32), np.empty(crossed.shape, np.uint32)
    _turn(crossed, starts[:-1].copy(), lines, places)
    return Flows(crossed, starts, lines, places, remaining, np.zeros(len(crossed)))


@_compiled
def solve(many: Flows, few: Others, per_ns: Array, counts: Array, within_ns: float) -> tuple[float, float, Array]:
    """Give each row its rate, in bytes/ns. How long until the next are over; how long the last of them would take; and
    the rates of the others, in amount/ns.

    Rows that end `within_ns` of the first are over together, at the mean of their ends by rate: then what some would
    still have to do and what others have had too much of are equally many bytes. What is over already waits for none.

    `per_ns`: what each capacity gives, infinitely much of none; `counts`: rows of `many` that use it. Capacities that
    none of `many` uses come last and are not counted.
    """
    levels, rates = _fill(many, few, per_ns, counts)
    first = max(0.0, np.ceil(_set_rates(many, levels) - _ROUNDING_NS))
    last = first + (within_ns if first else 0.0) + _ROUNDING_NS
    moved, rate = 0.0, 0.0
    for row in range(many.rates.size):
        if many.remaining[row] <= last * many.rates[row]:
            moved += max(0.0, many.remaining[row])
            rate += many.rates[row]
    return max(first, np.ceil(moved / rate - _ROUNDING_NS)), last, rates


@_compiled
def _fill(many: Flows, few: Others, per_ns: Array, counts: Array) -> tuple[Array, Array]:
    """The level at which each capacity is full, infinite if it never is; and the rates of the others."""
    size = per_ns.size
    left, growth = per_ns.copy(), np.zeros(size)
    growth[: counts.size] = counts
    weight, others = np.zeros(size), np.zeros(size, np.int64)
    for row in range(few.weights.size):
        for place in range(few.starts[row], few.starts[row + 1]):
            weight[few.capacities[place]] += few.per_unit[place] * few.weights[row]
            others[few.capacities[place]] += 1
    levels, rates = np.full(size, np.inf), np.full(few.weights.size, np.inf)
    levels[OVER] = 0.0
    heap, keys, end = np.empty(size, np.int64), np.zeros(size), 0
    for capacity in range(FIRST, size):
        if growth[capacity] or others[capacity]:
            keys[capacity] = _level(left[capacity], growth[capacity] + weight[capacity])
            heap[end] = capacity
            end += 1
            _rise(heap, keys, end - 1)
    reached = 0.0
    while end:
        full = heap[0]
        is_used, level = growth[full] or others[full], _level(left[full], growth[full] + weight[full])
        if is_used and level > keys[full] * (1 + _FULL):
            keys[full] = level
            _sink(heap, keys, end)
            continue
        end -= 1
        heap[0] = heap[end]
        _sink(heap, keys, end)
        if is_used:
            # Where rounding has eaten what is left of a capacity, its users stop at the last level.
            reached = max(reached, level)
            if full < counts.size:
                _stop(many, full, reached, levels, left, growth)
            if others[full]:
                _stop_others(few, full, reached, rates, left, weight, others)
            levels[full] = reached
    return levels, rates


@_compiled
def _set_rates(many: Flows, levels: Array) -> float:
    """How long until the first is over."""
    first, width = np.inf, many.crossed.shape[1]
    for row in range(many.rates.size):
        rate = levels[many.crossed[row, 0]]
        for place in range(1, width):
            rate = min(rate, levels[many.crossed[row, place]])
        many.rates[row] = rate
        first = min(first, many.remaining[row] / rate)
    return first


@_compiled
def advance(
    many: Flows, elapsed_ns: float, last_ns: float, counts: Array, ended: Array, free: Array
) -> tuple[int, int]:
    """Book what was done since rates were set; what would have ended within `last_ns` of that is over.

    The numbers of those rows are written to `ended`, and to `free` those of capacities that no row uses any more; how
    many there are of each is returned. `counts`, of what uses each capacity, are lowered.
    """
    count, are_free = _due(many.remaining, many.rates, last_ns, ended), 0
    book(many.remaining, many.rates, elapsed_ns)
    for row in ended[:count]:
        are_free = _end(many, row, counts, free, are_free)
    return count, are_free


@_compiled
def _due(remaining: Array, rates: Array, last_ns: float, ended: Array) -> int:
    count = 0
    for row in range(rates.size):
        if remaining[row] <= last_ns * rates[row]:
            ended[count] = row
            count += 1
    return count


@_compiled
def book(remaining: Array, rates: Array, elapsed_ns: float) -> None:
    """What was done in that time."""
    for row in range(rates.size):
        remaining[row] -= elapsed_ns * rates[row]


@_compiled
def _end(many: Flows, row: int, counts: Array, free: Array, are_free: int) -> int:
    for column in range(many.crossed.shape[1]):
        capacity = many.crossed[row, column]
        if capacity >= FIRST:
            many.lines[many.places[row, column], 0] = OVER
            counts[capacity] -= 1
            if not counts[capacity]:
                free[are_free] = capacity
                are_free += 1
    many.crossed[row, 0] = OVER
    many.remaining[row] = np.inf
    return are_free


@_compiled
def _turn(crossed: Array, next_places: Array, lines: Array, places: Array) -> None:
    """Rows by capacity; `next_places`: where those of each begin."""
    for row in range(crossed.shape[0]):
        for column in range(crossed.shape[1]):
            capacity = crossed[row, column]
            if capacity >= FIRST:
                places[row, column] = next_places[capacity]
                lines[next_places[capacity]] = crossed[row]
                next_places[capacity] += 1


@_compiled
def _level(left: float, growth: float) -> float:
    return left / growth if growth > 0 else 0.0


@_compiled
def _stop(many: Flows, full: int, reached: float, levels: Array, left: Array, growth: Array) -> None:
    """The users of a full capacity grow no further; from those that did not grow any more, nothing is taken."""
    width = many.lines.shape[1]
    for line in range(many.starts[full], many.starts[full + 1]):
        lowest = levels[many.lines[line, 0]]
        for place in range(1, width):
            lowest = min(lowest, levels[many.lines[line, place]])
        one = 1.0 if lowest == np.inf else 0.0
        rate = reached * one
        for place in range(width):
            capacity = many.lines[line, place]
            rest = left[capacity] - rate
            left[capacity] = rest if rest > 0 else 0.0
            growth[capacity] -= one


@_compiled
def _stop_others(
    few: Others, full: int, reached: float, rates: Array, left: Array, weight: Array, counts: Array
) -> None:
    for row in range(rates.size):
        places = range(few.starts[row], few.starts[row + 1])
        uses = False
        for place in places:
            uses = uses or few.capacities[place] == full
        if not uses or rates[row] < np.inf:
            continue
        rates[row] = few.weights[row] * reached
        for place in places:
            capacity, share = few.capacities[place], few.per_unit[place] * few.weights[row]
            counts[capacity] -= 1
            weight[capacity] = weight[capacity] - share if counts[capacity] else 0.0
            left[capacity] = max(0.0, left[capacity] - share * reached)


@_compiled
def _rise(heap: Array, keys: Array, place: int) -> None:
    """Put the item at that place where it belongs, above."""
    item = heap[place]
    while place and keys[item] < keys[heap[(place - 1) // 2]]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = item


@_compiled
def _sink(heap: Array, keys: Array, end: int) -> None:
    """Put the first item where it belongs."""
    item, place = heap[0], 0
    while 2 * place + 1 < end:
        child = 2 * place + 1
        if child + 1 < end and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[item] <= keys[heap[child]]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = item
