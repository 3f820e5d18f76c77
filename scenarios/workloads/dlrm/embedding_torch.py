"""Embedding look-up and update as torch operations, on any device; `embedding_cpu` is the compiled pass for CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from scenarios.workloads.dlrm.embedding_layout import ADAGRAD_EPSILON, Named, Places, Storage


def load(dtype: torch.dtype) -> None:
    """Nothing is compiled here."""


def look_up(rows: Storage, named: Named, samples: int) -> Tensor:
    """As `embedding_cpu.look_up`."""
    chosen, bags = _by_piece(rows.places, *named)
    pooled = [
        functional.embedding_bag(ids, table, bag.cumsum(0) - bag, mode="sum")
        for table, ids, bag in zip(_tables(rows.weights, rows.places), chosen, bags, strict=True)
    ]
    return torch.cat(pooled, dim=1)


def add(rows: Storage, named: Named, gradient: Tensor, scale: float) -> None:
    """As `embedding_cpu.add`."""
    chosen, bags = _by_piece(rows.places, *named)
    each = _repeated(gradient, rows.places, bags)
    for table, ids, given in zip(_tables(rows.weights, rows.places), chosen, each, strict=True):
        table.index_add_(0, ids, given, alpha=scale)


def adagrad(rows: Storage, named: Named, gradient: Tensor, rate: float) -> None:
    """As `embedding_cpu.adagrad`."""
    chosen, bags = _by_piece(rows.places, *named)
    states = rows.squares.split_with_sizes(rows.places.rows.tolist())
    each = _repeated(gradient, rows.places, bags)
    for table, state, ids, given in zip(_tables(rows.weights, rows.places), states, chosen, each, strict=True):
        unique, inverse = torch.unique(ids, return_inverse=True)
        total = torch.zeros(len(unique), given.shape[1], device=given.device).index_add_(0, inverse, given.float())
        state[unique] += total.square().mean(dim=1)
        scale = rate / (state[unique].sqrt() + ADAGRAD_EPSILON)
        table[unique] = (table[unique] - total * scale[:, None]).to(table.dtype)


def adagrad_all(rows: Storage, gradients: Tensor, rate: float) -> None:
    """As `embedding_cpu.adagrad_all`."""
    states = rows.squares.split_with_sizes(rows.places.rows.tolist())
    for table, state, given in zip(
        _tables(rows.weights, rows.places), states, _tables(gradients, rows.places), strict=True
    ):
        wide = given.float()
        state.add_(wide.square().mean(dim=1))
        table.copy_(table - wide * (rate / (state.sqrt() + ADAGRAD_EPSILON))[:, None])


def _tables(flat: Tensor, places: Places) -> list[Tensor]:
    """Of each piece, [rows, columns]."""
    parts = flat.split_with_sizes((places.rows * places.dims).tolist())
    return [part.view(rows, -1) for part, rows in zip(parts, places.rows.tolist(), strict=True)]


def _by_piece(places: Places, ids: Tensor, lengths: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Each piece's ids, and the lengths of its bags on their device."""
    bags = lengths.view(len(places.rows), -1)
    return ids.split_with_sizes(bags.sum(1).tolist()), list(bags.to(ids.device))


def _repeated(gradient: Tensor, places: Places, bags: Sequence[Tensor]) -> list[Tensor]:
    """Of each piece, each bag's gradient once for each of its ids."""
    parts = gradient.split_with_sizes(places.dims.tolist(), dim=1)
    return [part.repeat_interleave(bag, dim=0) for part, bag in zip(parts, bags, strict=True)]
