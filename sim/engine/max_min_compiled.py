"""Solves weighted max-min fairness for flows in arrays by progressive filling, compiled by numba.

The rule and its tolerance are those of `sim.engine.max_min`, whose readable solver tests compare with this one. A
capacity's level is the common rate over weight at which it would be full; it only rises as flows stop growing. So a
heap of possibly outdated levels gives the next full capacity: the level on top is computed again, and put back if it
has risen. A flow stops when one of its capacities is full, and its rate is the lowest level among its capacities, so
neither need be stored. n flows that cross k capacities each, of which b become full, take O(n b k) operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scenarios.compiled import compiler
from sim.engine.max_min import FULL, ROUNDING_NS

Array = npt.NDArray[Any]

# The cache does not see a change of the imported constants: clear `__pycache__` after one.
_compiled = compiler(__file__)


# Two sentinel capacities come first: NONE is never full and pads rows; OVER is always full and marks a row that has
# ended, which then has infinitely many bytes left. So no inner loop needs a branch for either.
NONE, OVER, FIRST = 0, 1, 2
# An array and not None, with which a numba call took some tens of us longer.
_ONE_EACH = np.empty(0)


class Flows(NamedTuple):
    """A set of rows of flows of weight 1, each of which uses a byte of each of its capacities per byte of its own.

    `crossed` [rows, width]: numbers of capacities, from `FIRST` on. `lines` is `crossed` sorted by capacity, in
    lines[starts[c] : starts[c + 1]], so that a capacity's users are read one after the other; `places` [rows, width]
    maps an entry of `crossed` to its line. `counts` [rows, width], and `line_counts` by line: how many equal flows of
    the row cross that capacity, 0 of `NONE`; both have one dimension, and are not read, where each row is one flow.
    """

    crossed: Array
    starts: Array
    lines: Array
    places: Array
    remaining: Array
    rates: Array
    counts: Array
    line_counts: Array


class Others(NamedTuple):
    """The activities that share the flows' capacities: row r uses `per_unit` of capacities[starts[r]:starts[r + 1]]."""

    starts: Array
    capacities: Array
    per_unit: Array
    weights: Array


class Capacities(NamedTuple):
    """The speed of each capacity per unit of time, infinite for `NONE`, and the number of flows that cross it.

    `users` may be shorter: capacities that only `Others` use come last.
    """

    speeds: Array
    users: Array


class _Filling(NamedTuple):
    """A state of progressive filling, in arrays [capacities], but for `rates` [others].

    `left`: speed not yet used; `growth`: number of growing flows; `weight`: units times weight of growing others;
    `others`: number of growing others; `levels`: level at which the capacity became full, infinite before.
    """

    left: Array
    growth: Array
    weight: Array
    others: Array
    levels: Array
    rates: Array


def flows(crossed: Array, remaining: Array, rows_of: Array, counts: Array = _ONE_EACH) -> Flows:
    """Return all rows at their begin; `crossed` are uint32 numbers, `rows_of` [capacities] the rows that cross each
    capacity.
    """
    starts = np.zeros(rows_of.size + 1, np.int64)
    np.cumsum(rows_of[FIRST:], out=starts[FIRST + 1 :])
    lines, places = np.empty((starts[-1], crossed.shape[1]), np.uint32), np.empty(crossed.shape, np.uint32)
    _turn(crossed, starts[:-1].copy(), lines, places)
    line_counts = _ONE_EACH
    if counts.ndim > 1:
        is_used = crossed >= FIRST
        line_counts = np.empty(lines.shape)
        line_counts[places[is_used]] = counts[np.nonzero(is_used)[0]]
    return Flows(crossed, starts, lines, places, remaining, np.zeros(len(crossed)), counts, line_counts)


def counted_flows(crossed: Array, counts: Array, sizes: Array, speeds: Array) -> tuple[Flows, Capacities]:
    """Return rows of equal flows, and capacities that nothing else uses.

    Args:
        crossed: [rows, width] numbers of capacities, from 0 on; -1 for none, but not in the first column.
        counts: [rows, width] flows of the row on that capacity; those of the first column are all flows of the row.
        sizes: [rows] bytes of one flow.
        speeds: [capacities] bytes per unit of time.
    """
    is_used = (crossed >= 0) & (counts > 0)
    numbers = np.where(is_used, crossed + FIRST, NONE).astype(np.uint32)
    used_counts = np.where(is_used, counts, 0.0)
    rows_of = np.bincount(numbers.ravel(), minlength=FIRST + speeds.size)
    users = np.bincount(numbers.ravel(), used_counts.ravel(), FIRST + speeds.size)
    rows = flows(numbers, sizes.astype(np.float64), rows_of, used_counts)
    return rows, Capacities(np.concatenate([np.full(FIRST, np.inf), speeds]), users)


def no_others() -> Others:
    """Return an empty `Others`."""
    return Others(np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


@_compiled
def solve(many: Flows, few: Others, capacities: Capacities, within_ns: float) -> tuple[float, float, Array]:
    """Set each row's rate, in bytes/ns; return the time to the next end, the end of the last row merged into it, and
    the rates of the others, in amount/ns.

    Rows whose ends are up to `within_ns` after the first end together, at the mean of their ends weighted by rate: at
    that time the bytes that some still lack equal those that others have had too many. Rows with no bytes left merge
    with none.
    """
    levels, rates = _fill(many, few, capacities)
    first = max(0.0, np.ceil(_set_rates(many, levels) - ROUNDING_NS))
    last = first + (within_ns if first else 0.0) + ROUNDING_NS
    return max(first, np.ceil(_mean_end(many, last) - ROUNDING_NS)), last, rates


@_compiled
def set_rates(many: Flows, few: Others, capacities: Capacities) -> Array:
    """Set each row's rate, in bytes per unit of time; return the rates of the others."""
    levels, rates = _fill(many, few, capacities)
    _set_rates(many, levels)
    return rates


@_compiled
def duration(many: Flows, few: Others, capacities: Capacities, within: float) -> float:
    """Return the time until the last flow of `many` ends if no other flow begins; `many` is empty afterwards.

    Args:
        many: flows; flows that end at nearly the same time are ended together, as in `solve`.
        few: other activities, which keep their share of the capacities throughout.
        capacities: the capacities; their speeds give the unit of time.
        within: how far apart in time flows may end to be ended together.
    """
    now, left = 0.0, many.rates.size
    while left:
        levels, _ = _fill(many, few, capacities)
        first = max(0.0, _set_rates(many, levels))
        # `FULL` in place of `ROUNDING_NS`: the unit of time is the caller's, so a slack in ns has no meaning here.
        last = first * (1 + FULL) + (within if first else 0.0)
        elapsed = _mean_end(many, last)
        ended, _ = advance(many, capacities.users, elapsed, last)
        left -= ended.size
        now += elapsed
    return now


@_compiled
def _fill(many: Flows, few: Others, capacities: Capacities) -> tuple[Array, Array]:
    """Return the level at which each capacity is full, infinite if it never is, and the rates of the others."""
    state = _begin(few, capacities)
    size = capacities.speeds.size
    heap, keys, end = np.empty(size, np.int64), np.zeros(size), 0
    for capacity in range(FIRST, size):
        if state.growth[capacity] or state.others[capacity]:
            keys[capacity] = _level(state, capacity)
            heap[end] = capacity
            end += 1
            _rise(heap, keys, end - 1)
    reached = 0.0
    while end:
        full = heap[0]
        is_used, level = state.growth[full] or state.others[full], _level(state, full)
        # The level on top of the heap was outdated: sink it to its place and look again.
        if is_used and level > keys[full] * (1 + FULL):
            keys[full] = level
            _sink(heap, keys, end)
            continue
        end -= 1
        heap[0] = heap[end]
        _sink(heap, keys, end)
        if is_used:
            # Where rounding has eaten what is left of a capacity, its users stop at the last level.
            reached = max(reached, level)
            if full < capacities.users.size:
                _stop(many, full, reached, state)
            if state.others[full]:
                _stop_others(few, full, reached, state)
            state.levels[full] = reached
    return state.levels, state.rates


@_compiled
def _begin(few: Others, capacities: Capacities) -> _Filling:
    """Return the state in which no speed is used and all flows grow."""
    size = capacities.speeds.size
    left, growth = capacities.speeds.copy(), np.zeros(size)
    growth[: capacities.users.size] = capacities.users
    weight, others = np.zeros(size), np.zeros(size, np.int64)
    for row in range(few.weights.size):
        for place in range(few.starts[row], few.starts[row + 1]):
            weight[few.capacities[place]] += few.per_unit[place] * few.weights[row]
            others[few.capacities[place]] += 1
    levels = np.full(size, np.inf)
    # Level 0 makes a row that has ended count as stopped, so it takes nothing from its other capacities.
    levels[OVER] = 0.0
    return _Filling(left, growth, weight, others, levels, np.full(few.weights.size, np.inf))


@_compiled
def _level(state: _Filling, capacity: int) -> float:
    """Return the common rate over weight at which the capacity would be full, if nothing else stopped its users."""
    growth = state.growth[capacity] + state.weight[capacity]
    return state.left[capacity] / growth if growth > 0 else 0.0


@_compiled
def _count(counts: Array, row: int, place: int) -> float:
    """Return how many flows of the row cross that capacity; numba drops the branch that `counts`' type rules out."""
    return 1.0 if counts.ndim == 1 else counts[row, place]


@_compiled
def _stop(many: Flows, full: int, reached: float, state: _Filling) -> None:
    """Fix the rate of the growing users of a full capacity, and subtract it from their other capacities."""
    width = many.lines.shape[1]
    levels, left, growth = state.levels, state.left, state.growth
    for line in range(many.starts[full], many.starts[full + 1]):
        lowest = levels[many.lines[line, 0]]
        for place in range(1, width):
            lowest = min(lowest, levels[many.lines[line, place]])
        # A flow that another full capacity has stopped before takes nothing more.
        one = 1.0 if lowest == np.inf else 0.0
        for place in range(width):
            capacity, stopped = many.lines[line, place], one * _count(many.line_counts, line, place)
            rest = left[capacity] - reached * stopped
            left[capacity] = rest if rest > 0 else 0.0
            growth[capacity] -= stopped


@_compiled
def _stop_others(few: Others, full: int, reached: float, state: _Filling) -> None:
    for row in range(state.rates.size):
        places = range(few.starts[row], few.starts[row + 1])
        uses = False
        for place in places:
            uses = uses or few.capacities[place] == full
        if not uses or state.rates[row] < np.inf:
            continue
        state.rates[row] = few.weights[row] * reached
        for place in places:
            capacity, share = few.capacities[place], few.per_unit[place] * few.weights[row]
            state.others[capacity] -= 1
            # Counted, as in `max_min`: what subtractions leave of a weight would be a growth without users.
            state.weight[capacity] = state.weight[capacity] - share if state.others[capacity] else 0.0
            state.left[capacity] = max(0.0, state.left[capacity] - share * reached)


@_compiled
def _set_rates(many: Flows, levels: Array) -> float:
    """Set the rows' rates and return the time to the first end."""
    first, width = np.inf, many.crossed.shape[1]
    for row in range(many.rates.size):
        rate = levels[many.crossed[row, 0]]
        for place in range(1, width):
            rate = min(rate, levels[many.crossed[row, place]])
        many.rates[row] = rate
        first = min(first, many.remaining[row] / rate)
    return first


@_compiled
def _mean_end(many: Flows, last: float) -> float:
    """Return the mean end, weighted by rate, of the rows that end by `last`."""
    moved, rate = 0.0, 0.0
    for row in range(many.rates.size):
        if many.remaining[row] <= last * many.rates[row]:
            count = _count(many.counts, row, 0)
            moved += count * max(0.0, many.remaining[row])
            rate += count * many.rates[row]
    return moved / rate


@_compiled
def advance(many: Flows, users: Array, elapsed: float, last: float) -> tuple[Array, Array]:
    """Move all rows on by `elapsed`, and end those that would end by `last`.

    Return their row numbers, and the numbers of the capacities that no row uses any more. `users`, of capacities, are
    lowered.
    """
    ended, count = np.empty(many.rates.size, np.int32), 0
    for row in range(many.rates.size):
        if many.remaining[row] <= last * many.rates[row]:
            ended[count] = row
            count += 1
    # After the ended rows are found: `last` counts from the bytes before this move.
    book(many.remaining, many.rates, elapsed)
    freed, are_free = np.empty(users.size, np.int32), 0
    for row in ended[:count]:
        for column in range(many.crossed.shape[1]):
            capacity = many.crossed[row, column]
            if capacity >= FIRST:
                # Both copies of the row are marked, as loops over capacities read `lines` and loops over rows
                # `crossed`.
                many.lines[many.places[row, column], 0] = OVER
                users[capacity] -= _count(many.counts, row, column)
                if not users[capacity]:
                    freed[are_free] = capacity
                    are_free += 1
        many.crossed[row, 0] = OVER
        many.remaining[row] = np.inf
    return ended[:count], freed[:are_free]


@_compiled
def book(remaining: Array, rates: Array, elapsed: float) -> None:
    """Subtract the bytes moved in `elapsed` at the current rates."""
    for row in range(rates.size):
        remaining[row] -= elapsed * rates[row]


@_compiled
def _turn(crossed: Array, next_places: Array, lines: Array, places: Array) -> None:
    """Invert `crossed` [rows, columns] (the capacities of each row): copy each row to a line of each of its capacities.

    Args:
        crossed: the capacities that each row crosses.
        next_places: the first free line of each capacity; advanced.
        lines: filled with rows, sorted by capacity.
        places: [rows, columns] filled with the line of each entry.
    """
    for row in range(crossed.shape[0]):
        for column in range(crossed.shape[1]):
            capacity = crossed[row, column]
            if capacity >= FIRST:
                places[row, column] = next_places[capacity]
                lines[next_places[capacity]] = crossed[row]
                next_places[capacity] += 1


@_compiled
def _rise(heap: Array, keys: Array, place: int) -> None:
    """Sift the item at `place` up the heap."""
    item = heap[place]
    while place and keys[item] < keys[heap[(place - 1) // 2]]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = item


@_compiled
def _sink(heap: Array, keys: Array, end: int) -> None:
    """Sift the first item down the heap."""
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
