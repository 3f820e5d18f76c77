"""Embedding look-up and update as torch operations, on any device; `embedding_cpu` is the compiled pass for CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from scenarios.workloads.dlrm.embedding_layout import ADAGRAD_EPSILON, Places


def load(dtype: torch.dtype) -> None:
    """Nothing is compiled here."""


def look_up(weights: Tensor, places: Places, ids: Tensor, lengths: Tensor, samples: int) -> Tensor:
    """As `embedding_cpu.look_up`."""
    chosen, bags = _by_piece(places, ids, lengths)
    pooled = [
        functional.embedding_bag(named, table, bag.cumsum(0) - bag, mode="sum")
        for table, named, bag in zip(_tables(weights, places), chosen, bags, strict=True)
    ]
    return torch.cat(pooled, dim=1)


def add(weights: Tensor, places: Places, ids: Tensor, lengths: Tensor, gradient: Tensor, scale: float) -> None:
    """As `embedding_cpu.add`."""
    chosen, bags = _by_piece(places, ids, lengths)
    for table, named, rows in zip(_tables(weights, places), chosen, _repeated(gradient, places, bags), strict=True):
        table.index_add_(0, named, rows, alpha=scale)


def adagrad(
    weights: Tensor, squares: Tensor, places: Places, ids: Tensor, lengths: Tensor, gradient: Tensor, rate: float
) -> None:
    """As `embedding_cpu.adagrad`."""
    chosen, bags = _by_piece(places, ids, lengths)
    states = squares.split_with_sizes(places.rows.tolist())
    for table, state, named, rows in zip(
        _tables(weights, places), states, chosen, _repeated(gradient, places, bags), strict=True
    ):
        unique, inverse = torch.unique(named, return_inverse=True)
        total = torch.zeros(len(unique), rows.shape[1], device=rows.device).index_add_(0, inverse, rows.float())
        state[unique] += total.square().mean(dim=1)
        scale = rate / (state[unique].sqrt() + ADAGRAD_EPSILON)
        table[unique] = (table[unique] - total * scale[:, None]).to(table.dtype)


def adagrad_all(weights: Tensor, squares: Tensor, places: Places, gradients: Tensor, rate: float) -> None:
    """As `embedding_cpu.adagrad_all`."""
    states = squares.split_with_sizes(places.rows.tolist())
    for table, state, given in zip(_tables(weights, places), states, _tables(gradients, places), strict=True):
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
