"""Embedding lookup and update on CPU tensors, compiled by numba; `embedding_fbgemm` serves GPUs.

All pieces' rows lie in one tensor, so one loop serves all tables, like fbgemm's table-batched embeddings on GPUs
(docs/explanation/sparse.md has the times). Updates are applied to rows directly, without repeating gradients for ids. A
first call compiles for some seconds, and leaves the code on disk for later processes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from scenarios.compiled import compiler
from scenarios.workloads.dlrm.tables.embedding_torch import Array, Named, Places, RankRows

# A sort key is a row's number followed by the index of the id that names it: sorted keys are in the order of rows, then
# of ids.
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1

# Storage of elements: as they are, or as 16 bits of a type that numba lacks.
_PLAIN, _BFLOAT16, _FLOAT16 = 0, 1, 2
_HALVES = {torch.bfloat16: _BFLOAT16, torch.float16: _FLOAT16}
_compiled = compiler(__file__)
_inlined = njit(inline="always", error_model="numpy")  # LLVM alone leaves calls, which are three times slower


class _Elements(NamedTuple):
    """A tensor's elements for numba: their storage, its kind, and the value of each 16-bit pattern."""

    stored: Array
    kind: int
    worth: Array


class _Rows(NamedTuple):
    """A `RankRows` for numba; `sums` has room for a sum of the widest piece's rows."""

    of: _Elements
    places: Places
    squares: Array
    by_element: bool
    epsilon: float
    sums: Array


class _NamedBags(NamedTuple):
    """A `Named` for numba, with numbers by key; each unpooled id is a bag of its own.

    Attributes:
        counts: bags of each key.
        firsts: offset of the key's first row in the output.
        strides: distance between the key's rows in the output.
    """

    ids: Array
    lengths: Array
    weights: Array
    counts: Array
    firsts: Array
    strides: Array


class _Order(NamedTuple):
    """Sort keys of all ids, and the place of each id's bag in the output; only the keys are sorted."""

    keys: Array
    places: Array


@cache
def load(dtype: torch.dtype, travels_as: torch.dtype) -> None:
    """Compile all functions for rows of `dtype`, or load them from disk, outside any step."""
    weights, ids = torch.empty(0, dtype=dtype), torch.empty(0, dtype=torch.int64)
    rows, named = RankRows(weights, Places.of([], []), torch.empty(0)), Named(ids, ids)
    gradient = torch.empty(0, 0, dtype=travels_as)
    look_up(rows, named, 0, travels_as)
    adagrad_all(rows, weights, 0.0)
    add(rows, named, gradient, 0.0)
    adagrad(rows, named, gradient, 0.0)


def look_up(rows: RankRows, named: Named, samples: int, dtype: torch.dtype) -> Tensor:
    """Return the sum of each bag's rows: [samples, all columns] of this dtype, summed at least in float32.

    Unpooled: the row of each id, flat.

    Raises:
        IndexError: an id is no row of its piece.
    """
    bags, width = _bags(named, rows.places), int(rows.places.key_dims.sum())
    found = rows.weights.new_empty(int((bags.counts * rows.places.key_dims).sum()), dtype=dtype)
    _check(_look_up(_rows(rows), bags, _elements(found)), named.ids)
    return found if named.unpooled else found.view(samples, width)


def add(rows: RankRows, named: Named, gradient: Tensor, scale: float) -> None:
    """Add `scale` times each bag's gradient, laid out like `look_up`'s output, to the rows that the bag names."""
    _check(_add(_rows(rows), _bags(named, rows.places), _elements(gradient.reshape(-1)), scale), named.ids)


def sums(places: Places, named: Named, gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums of each row's gradients, flat, of this dtype; gradients are laid out like `look_up`'s output."""
    total = gradient.new_zeros(int((places.rows * places.dims).sum()), dtype=dtype)
    add(RankRows(total, places, torch.empty(0)), named, gradient, 1.0)
    return total


def adagrad(rows: RankRows, named: Named, gradient: Tensor, rate: float) -> None:
    """Run one step of Adagrad on each row that bags name, with the sum of its bags' gradients."""
    bags = _bags(named, rows.places)
    order = _Order(np.empty(named.ids.numel(), np.int64), np.empty(named.ids.numel(), np.int64))
    _check(_number(rows.places, bags, order), named.ids)
    # By row, then by id: a row's gradients are summed in one order in every run, and the row is updated once.
    order.keys.sort()
    _adagrad(_rows(rows), bags, order, _elements(gradient.reshape(-1)), rate)


def adagrad_all(rows: RankRows, gradients: Tensor, rate: float) -> None:
    """Run one step of Adagrad on every row; `gradients` are laid out as the weights."""
    _adagrad_all(_rows(rows), _elements(gradients), rate)


def _rows(rows: RankRows) -> _Rows:
    # Bags are summed in float32 at least: sums in 16 bits would lose small rows.
    wide = np.float64 if rows.weights.dtype == torch.float64 else np.float32
    sums = np.empty(int(rows.places.dims.max(initial=0)), wide)
    return _Rows(_elements(rows.weights), rows.places, rows.squares.numpy(), rows.by_element, rows.epsilon, sums)


def _bags(named: Named, places: Places) -> _NamedBags:
    ids, lengths, keys = named.ids.numpy(), named.lengths.numpy(), places.pieces.size
    weights = np.empty(0, np.float32) if named.weights is None else np.ascontiguousarray(named.weights.numpy())
    if not named.unpooled:
        counts = np.full(keys, lengths.size // max(keys, 1))
        return _NamedBags(ids, lengths, weights, counts, places.columns, np.full(keys, places.key_dims.sum()))
    counts = lengths.reshape(keys, -1).sum(1)
    sizes = counts * places.key_dims
    return _NamedBags(ids, np.ones(ids.size, lengths.dtype), weights, counts, sizes.cumsum() - sizes, places.key_dims)


def _elements(tensor: Tensor) -> _Elements:
    """Return a tensor's elements, made contiguous, because numba would compile again for other strides."""
    kind = _HALVES.get(tensor.dtype, _PLAIN)
    if kind == _PLAIN:
        return _Elements(np.ascontiguousarray(tensor.numpy()), kind, np.empty(0, np.float32))
    return _Elements(np.ascontiguousarray(tensor.view(torch.uint16).numpy()), kind, _WORTHS[tensor.dtype])


def _worths(dtype: torch.dtype) -> Array:
    every: Array = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype).float().numpy()
    return every


_WORTHS = {dtype: _worths(dtype) for dtype in _HALVES}


def _check(outside: int, ids: Tensor) -> None:
    if outside >= 0:
        raise IndexError(f"ids[{outside}] = {int(ids[outside])}: expected a row of its table")


@_inlined
def _take(row: Array, worth: Array, share: Any, total: Array) -> None:
    """Add `share` times a row to `total`; LLVM vectorizes loops over slices."""
    if worth.size:
        for j in range(total.size):
            total[j] += share * worth[np.int64(row[j])]
    else:
        for j in range(total.size):
            total[j] += share * row[j]


@_inlined
def _share(weights: Array, i: int) -> Any:
    """Return the weight of an id's row in its bag."""
    return weights[i] if weights.size else np.float32(1)


@_inlined
def _put(row: Array, of: _Elements, scale: float, total: Array) -> None:
    """Add `scale` times `total` to a row, rounding once; for 16-bit rows `total` is overwritten."""
    if of.kind == _PLAIN:
        for j in range(total.size):
            row[j] += scale * total[j]
        return
    for j in range(total.size):
        total[j] = of.worth[np.int64(row[j])] + scale * total[j]
    _store(row, of.kind, total)


@_inlined
def _store(row: Array, kind: int, total: Array) -> None:
    if kind == _PLAIN:
        row[:] = total
        return
    bits = total.view(np.int32)
    for j in range(total.size):
        row[j] = _round(total[j], bits[j], kind)


@_compiled
def _round(value: Any, bits: Any, kind: int) -> Any:
    """Return the 16 bits nearest to a float32, ties to even; `bits` are those of `value`."""
    sign, size = (bits >> 16) & 0x8000, bits & 0x7FFFFFFF
    if kind == _BFLOAT16:
        # NaN first: adding the rounding bit could turn it into infinity.
        if size > 0x7F800000:
            return sign | 0x7FC0
        return sign | ((size + 0x7FFF + ((size >> 16) & 1)) >> 16)
    if size > 0x7F800000:
        return sign | 0x7E00
    if size >= 0x47800000:  # 65536 and more
        return sign | 0x7C00
    if size < 0x38800000:  # numbers below 2**-14 are multiples of 2**-24
        return sign | np.int64(np.rint(abs(np.float64(value)) * 16777216.0))
    return sign | ((size - 0x38000000 + 0xFFF + ((size >> 13) & 1)) >> 13)


@_compiled
def _look_up(into: _Rows, bags: _NamedBags, found: _Elements) -> int:
    of, places, sums, ids = into.of, into.places, into.sums, bags.ids
    i = bag = 0
    for key in range(places.pieces.size):
        piece, place = places.pieces[key], bags.firsts[key]
        dim, rows = places.dims[piece], places.rows[piece]
        total = sums[:dim]
        for _ in range(bags.counts[key]):
            total[:] = 0
            for _ in range(bags.lengths[bag]):
                if ids[i] < 0 or ids[i] >= rows:
                    return i
                start = places.offsets[piece] + ids[i] * dim
                _take(of.stored[start : start + dim], of.worth, _share(bags.weights, i), total)
                i += 1
            _store(found.stored[place : place + dim], found.kind, total)
            place += bags.strides[key]
            bag += 1
    return -1


@_compiled
def _add(into: _Rows, bags: _NamedBags, given: _Elements, scale: float) -> int:
    of, places, sums, ids = into.of, into.places, into.sums, bags.ids
    i = bag = 0
    for key in range(places.pieces.size):
        piece, place = places.pieces[key], bags.firsts[key]
        dim, rows = places.dims[piece], places.rows[piece]
        total = sums[:dim]
        for _ in range(bags.counts[key]):
            for _ in range(bags.lengths[bag]):
                if ids[i] < 0 or ids[i] >= rows:
                    return i
                total[:] = 0
                _take(given.stored[place : place + dim], given.worth, _share(bags.weights, i), total)
                start = places.offsets[piece] + ids[i] * dim
                _put(of.stored[start : start + dim], of, scale, total)
                i += 1
            place += bags.strides[key]
            bag += 1
    return -1


@_compiled
def _number(places: Places, bags: _NamedBags, order: _Order) -> int:
    """Write each id's sort key and its bag's place; return the index of the first id outside its piece, or -1."""
    ids = bags.ids
    i = bag = 0
    for key in range(places.pieces.size):
        piece, place = places.pieces[key], bags.firsts[key]
        rows, first = places.rows[piece], places.first_rows[piece]
        for _ in range(bags.counts[key]):
            for _ in range(bags.lengths[bag]):
                if ids[i] < 0 or ids[i] >= rows:
                    return i
                order.keys[i] = ((first + ids[i]) << _ID_BITS) | i
                order.places[i] = place
                i += 1
            place += bags.strides[key]
            bag += 1
    return -1


@_compiled
def _adagrad(into: _Rows, bags: _NamedBags, order: _Order, given: _Elements, rate: float) -> None:
    of, places, sums, keys = into.of, into.places, into.sums, order.keys
    i = piece = 0
    while i < keys.size:
        row = keys[i] >> _ID_BITS
        while row >= places.first_rows[piece] + places.rows[piece]:
            piece += 1
        dim = places.dims[piece]
        total = sums[:dim]
        total[:] = 0
        while i < keys.size and keys[i] >> _ID_BITS == row:
            which = keys[i] & _ID_MASK
            place = order.places[which]
            _take(given.stored[place : place + dim], given.worth, _share(bags.weights, which), total)
            i += 1
        start = places.offsets[piece] + (row - places.first_rows[piece]) * dim
        scale = _scale(into, row, start, total, rate)
        _put(of.stored[start : start + dim], of, -scale, total)


@_compiled
def _adagrad_all(into: _Rows, given: _Elements, rate: float) -> None:
    of, places, sums = into.of, into.places, into.sums
    for piece in range(places.dims.size):
        dim = places.dims[piece]
        total = sums[:dim]
        for row in range(places.rows[piece]):
            start = places.offsets[piece] + row * dim
            total[:] = 0
            _take(given.stored[start : start + dim], given.worth, np.float32(1), total)
            scale = _scale(into, places.first_rows[piece] + row, start, total, rate)
            _put(of.stored[start : start + dim], of, -scale, total)


@_inlined
def _scale(into: _Rows, row: int, start: int, total: Array, rate: float) -> Any:
    """Add a row's gradient to its Adagrad state, and return the factor by which the row moves along `total`.

    If there is state for each element, `total` is divided by the roots, and the factor is the rate.
    """
    squares = into.squares
    if into.by_element:
        for j in range(total.size):
            squares[start + j] += total[j] * total[j]
            total[j] /= np.sqrt(squares[start + j]) + into.epsilon
        return rate
    square = 0.0
    for j in range(total.size):
        square += total[j] * total[j]
    squares[row] += square / total.size
    return rate / (np.sqrt(squares[row]) + into.epsilon)
