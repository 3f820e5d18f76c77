"""Layout of a rank's embedding rows in one flat tensor; lookup and update as torch operations, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from scenarios.config.scenario.optimizers import ADAGRAD_EPSILON

Array = npt.NDArray[Any]


class Places(NamedTuple):
    """The layout of pieces and keys, as int64 arrays.

    Attributes:
        rows, dims: rows and columns of each piece.
        first_rows: a piece's first row among all rows.
        offsets: a piece's first element in storage.
        pieces: the piece whose rows each key names.
        key_dims: that piece's columns.
        columns: a key's first column in pooled outputs.
    """

    rows: Array
    dims: Array
    first_rows: Array
    offsets: Array
    pieces: Array
    key_dims: Array
    columns: Array

    @staticmethod
    def of(rows: list[int], dims: list[int], keys: list[int] | None = None) -> Places:
        """Lay out pieces consecutively; `keys` are the numbers of consecutive keys of each piece, by default 1."""
        counts, widths = np.array(rows, np.int64), np.array(dims, np.int64)
        sizes = counts * widths
        pieces = np.repeat(np.arange(len(rows)), 1 if keys is None else keys)
        return Places(
            rows=counts,
            dims=widths,
            first_rows=counts.cumsum() - counts,
            offsets=sizes.cumsum() - sizes,
            pieces=pieces,
            key_dims=widths[pieces],
            columns=widths[pieces].cumsum() - widths[pieces],
        )

    def join(self) -> Places:
        """Return the layout with adjacent pieces of one width joined, for operations on all rows."""
        runs = [(sum(rows for rows, _ in run), dim) for dim, run in groupby(self.sizes, itemgetter(1))]
        return Places.of([rows for rows, _ in runs], [dim for _, dim in runs])

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The rows and columns of each piece."""
        return list(zip(self.rows.tolist(), self.dims.tolist(), strict=True))


class RankRows(NamedTuple):
    """All rows of one rank, flat, with Adagrad's float32 state: one per row, or per element, laid out as the rows.

    `epsilon` is added to the root of the state.
    """

    weights: Tensor
    places: Places
    squares: Tensor
    by_element: bool = False
    epsilon: float = ADAGRAD_EPSILON


class Named(NamedTuple):
    """The ids of all bags, key by key (rows of the key's piece), and [keys * samples] lengths of the bags.

    `weights` [ids], float32, are the factors of rows in their bags' sums; None: 1. Looked-up rows of `unpooled` bags,
    and their gradient, are flat: a row for each id, key by key. `counts` are the ids of each key, if the host knows
    them.
    """

    ids: Tensor
    lengths: Tensor
    weights: Tensor | None = None
    unpooled: bool = False
    counts: Sequence[int] | None = None

    def ids_of_keys(self, keys: int) -> list[int]:
        """Return the number of ids of each key; if the host does not know it, wait for the device."""
        if self.counts is not None:
            return list(self.counts)
        counts: list[int] = self.lengths.view(keys, -1).sum(1).tolist()
        return counts


def load(dtype: torch.dtype, travels_as: torch.dtype) -> None:
    """Do nothing: torch operations need no compilation."""


def look_up(rows: RankRows, named: Named, samples: int, dtype: torch.dtype) -> Tensor:
    """Return the sum of each bag's rows: [samples, all columns], like `embedding_cpu.look_up`."""
    chosen, bags, weights = _by_key(rows.places, named)
    tables = _tables_of_keys(rows)
    if named.unpooled:
        return torch.cat([table[ids].view(-1) for table, ids in zip(tables, chosen, strict=True)]).to(dtype)
    pooled = [
        _pool(table, ids, bag, weight, dtype)
        for table, ids, bag, weight in zip(tables, chosen, bags, weights, strict=True)
    ]
    return torch.cat(pooled, dim=1)


def add(rows: RankRows, named: Named, gradient: Tensor, scale: float) -> None:
    """Add `scale` times each bag's gradient to the rows that the bag names, like `embedding_cpu.add`."""
    chosen, each = _gradients_of_keys(rows.places, named, gradient)
    for table, ids, given in zip(_tables_of_keys(rows), chosen, each, strict=True):
        table.index_add_(0, ids, given.to(table.dtype), alpha=scale)


def sums(places: Places, named: Named, gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum of all gradients of each row, as a flat tensor of a rank's rows, like `embedding_cpu.sums`."""
    total = gradient.new_zeros(int((places.rows * places.dims).sum()), dtype=dtype)
    add(RankRows(total, places, total[:0]), named, gradient, 1.0)
    return total


def adagrad(rows: RankRows, named: Named, gradient: Tensor, rate: float) -> None:
    """Run one step of Adagrad on each row that bags name, with the sum of its bags' gradients."""
    chosen, each = gradients_of(rows.places, named, gradient)
    states = states_of(rows.squares, rows.places, by_element=rows.by_element)
    for table, state, ids, given in zip(tables_of(rows.weights, rows.places), states, chosen, each, strict=True):
        unique, inverse = torch.unique(ids, return_inverse=True)
        total = torch.zeros(len(unique), given.shape[1], device=given.device).index_add_(0, inverse, given.float())
        squares = total.square()
        state[unique] += squares if rows.by_element else squares.mean(dim=1, keepdim=True)
        scale = rate / (state[unique].sqrt() + rows.epsilon)
        table[unique] = (table[unique] - total * scale).to(table.dtype)


def adagrad_all(rows: RankRows, gradients: Tensor, rate: float) -> None:
    """Run one step of Adagrad on every row; `gradients` are laid out as the weights."""
    places = rows.places.join()
    states = states_of(rows.squares, places, by_element=rows.by_element)
    for table, state, given in zip(tables_of(rows.weights, places), states, tables_of(gradients, places), strict=True):
        wide = given.float()
        squares = wide.square()
        state.add_(squares if rows.by_element else squares.mean(dim=1, keepdim=True))
        table.copy_(table - wide * (rate / (state.sqrt() + rows.epsilon)))


def tables_of(flat: Tensor, places: Places) -> list[Tensor]:
    """Split a flat tensor by piece: [rows, columns]; a piece may have no rows."""
    parts = flat.split_with_sizes((places.rows * places.dims).tolist())
    return [part.view(shape) for part, shape in zip(parts, places.sizes, strict=True)]


def states_of(states: Tensor, places: Places, *, by_element: bool) -> list[Tensor]:
    """Split the state by piece: [rows, columns] or [rows, 1]."""
    if by_element:
        return tables_of(states, places)
    return [part.view(-1, 1) for part in states.split_with_sizes(places.rows.tolist())]


def _tables_of_keys(rows: RankRows) -> list[Tensor]:
    """Return the rows that each key names, [rows, columns]."""
    tables = tables_of(rows.weights, rows.places)
    return [tables[piece] for piece in rows.places.pieces.tolist()]


def _by_piece(places: Places, of_keys: Sequence[Tensor]) -> list[Tensor]:
    """Concatenate what keys of one piece have, by piece."""
    found: list[list[Tensor]] = [[] for _ in places.rows]
    for piece, given in zip(places.pieces.tolist(), of_keys, strict=True):
        found[piece].append(given)
    return [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in found]


def _by_key(places: Places, named: Named) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor | None]]:
    """Return each key's ids, its bags' lengths on the ids' device, and its weights."""
    keys = len(places.pieces)
    bags, counts = named.lengths.view(keys, -1), named.ids_of_keys(keys)
    weights = [None] * len(counts) if named.weights is None else named.weights.split_with_sizes(counts)
    return named.ids.split_with_sizes(counts), list(bags.to(named.ids.device)), weights


def _pool(table: Tensor, ids: Tensor, bag: Tensor, weights: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the sum of each bag's rows in this dtype; if weighted, or of another dtype, summed at least in float32."""
    first = bag.cumsum(0) - bag
    if weights is None and dtype == table.dtype:
        return functional.embedding_bag(ids, table, first, mode="sum")
    rows = table[ids].to(torch.promote_types(table.dtype, torch.float32))
    rows = rows if weights is None else rows * weights[:, None]
    return functional.embedding_bag(torch.arange(len(ids), device=ids.device), rows, first, mode="sum").to(dtype)


def gradients_of(places: Places, named: Named, gradient: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return each piece's ids, and for each id its row's gradient from its bag."""
    ids, gradients = (_by_piece(places, found) for found in _gradients_of_keys(places, named, gradient))
    return ids, gradients


def _gradients_of_keys(places: Places, named: Named, gradient: Tensor) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Return each key's ids, and for each id its row's gradient from its bag."""
    chosen, bags, weights = _by_key(places, named)
    dims = places.key_dims.tolist()
    if named.unpooled:
        parts = gradient.split_with_sizes([len(ids) * dim for ids, dim in zip(chosen, dims, strict=True)])
        return chosen, [part.view(-1, dim) for part, dim in zip(parts, dims, strict=True)]
    columns = gradient.split_with_sizes(dims, dim=1)
    each = [
        part.repeat_interleave(bag, dim=0, output_size=len(ids))
        for part, bag, ids in zip(columns, bags, chosen, strict=True)
    ]
    return chosen, [
        part if weight is None else part * weight[:, None] for part, weight in zip(each, weights, strict=True)
    ]
