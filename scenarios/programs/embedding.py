"""One rank's embedding rows: pooled look-up, gradient and update, with their costs; exchanges are left to `sparse`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from scenarios.programs.data import initial_rows
from scenarios.rank import Kernel
from scenarios.scenario import Optimizer
from scenarios.sparse.keyed_jagged import KeyedJagged

ID_BYTES = 8
LENGTH_BYTES = 8
# Added to the root of Adagrad's state, as torch.optim.Adagrad does by default.
ADAGRAD_EPSILON = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of one table: `table` is its number in the model."""

    table: int
    rows: range
    columns: range


class Rows:
    """The pieces that one rank holds, one for each key of the features that it looks up, in that order."""

    def __init__(self, pieces: Sequence[Piece], seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.pieces = tuple(pieces)
        self.weights = [
            initial_rows(piece.table, seed, piece.rows, piece.columns, device).to(dtype) for piece in self.pieces
        ]
        self._squares: list[Tensor] = []
        self._dims = [len(piece.columns) for piece in self.pieces]
        self._dtype = dtype
        self._element_bytes = dtype.itemsize
        self._dtype_name = str(dtype).removeprefix("torch.")

    def look_up(self, features: KeyedJagged) -> Tensor:
        """The sum of each bag's rows: [samples, sum of dims], columns in key order."""
        samples = _samples(features)
        if features.values.is_meta or not self.pieces:
            return features.values.new_empty(samples, sum(self._dims), dtype=self._dtype)
        return torch.cat(
            [
                functional.embedding_bag(ids, weight, offsets, mode="sum")
                for weight, (ids, offsets, _) in zip(self.weights, _bags(features), strict=True)
            ],
            dim=1,
        )

    def update(self, features: KeyedJagged, gradient: Tensor, optimizer: Optimizer) -> None:
        """One optimizer step on the rows that were looked up; `gradient` is [samples, sum of dims]."""
        if features.values.is_meta or not self.pieces:
            return
        columns = torch.split_with_sizes(gradient, self._dims, dim=1)
        for index, ((ids, _, lengths), part) in enumerate(zip(_bags(features), columns, strict=True)):
            self._update_one(index, ids, part.repeat_interleave(lengths, dim=0), optimizer)

    def dense_gradients(self, features: KeyedJagged, gradient: Tensor) -> Tensor:
        """The gradients of all pieces' weights in one flat tensor, for tables that every rank has a copy of."""
        if features.values.is_meta:
            return gradient.new_empty(sum(weight.numel() for weight in self.weights))
        result = []
        for weight, (ids, _, lengths), part in zip(
            self.weights, _bags(features), torch.split_with_sizes(gradient, self._dims, dim=1), strict=True
        ):
            whole = torch.zeros_like(weight).index_add_(0, ids, part.repeat_interleave(lengths, dim=0))
            result.append(whole.view(-1))
        return torch.cat(result)

    def update_dense(self, gradients: Tensor, optimizer: Optimizer) -> None:
        """One optimizer step on all rows, from what `dense_gradients` gave."""
        if gradients.is_meta:
            return
        for index, part in enumerate(torch.split_with_sizes(gradients, [weight.numel() for weight in self.weights])):
            weight = self.weights[index]
            everything = torch.arange(weight.shape[0], device=weight.device)
            self._update_one(index, everything, part.view_as(weight), optimizer)

    def look_up_kernel(self, features: KeyedJagged) -> Kernel:
        """Reads ids, lengths and one row for each id; writes one row for each bag."""
        ids, elements = self._touched(features)
        samples = _samples(features)
        return Kernel(
            kind="embedding_lookup",
            flops=elements,
            bytes_read=ID_BYTES * ids + LENGTH_BYTES * samples * len(self.pieces) + self._element_bytes * elements,
            bytes_written=self._element_bytes * samples * sum(self._dims),
            dtype=self._dtype_name,
        )

    def update_kernel(self, features: KeyedJagged) -> Kernel:
        """Reads ids and the bags' gradients; reads and writes one row for each id."""
        ids, elements = self._touched(features)
        return Kernel(
            kind="embedding_update",
            flops=2.0 * elements,
            bytes_read=ID_BYTES * ids + self._element_bytes * (elements + _samples(features) * sum(self._dims)),
            bytes_written=self._element_bytes * elements,
            dtype=self._dtype_name,
        )

    def dense_update_kernel(self) -> Kernel:
        """Reads weights and gradients of all rows, writes weights."""
        elements = float(sum(weight.numel() for weight in self.weights))
        return Kernel(
            kind="optimizer",
            flops=2 * elements,
            bytes_read=2 * self._element_bytes * elements,
            bytes_written=self._element_bytes * elements,
            dtype=self._dtype_name,
        )

    def _touched(self, features: KeyedJagged) -> tuple[float, float]:
        """Ids, and elements of the rows that they name."""
        per_key = features.length_per_key()
        return float(sum(per_key)), float(sum(ids * dim for ids, dim in zip(per_key, self._dims, strict=True)))

    def _update_one(self, index: int, ids: Tensor, rows: Tensor, optimizer: Optimizer) -> None:
        weight = self.weights[index]
        if optimizer.kind == "sgd":
            weight.index_add_(0, ids, rows, alpha=-optimizer.learning_rate)
            return
        unique, inverse = torch.unique(ids, return_inverse=True)
        total = torch.zeros(len(unique), rows.shape[1], device=rows.device).index_add_(0, inverse, rows.float())
        square = self._square(index)
        square[unique] += total.square().mean(dim=1)
        scale = optimizer.learning_rate / (square[unique].sqrt() + ADAGRAD_EPSILON)
        weight[unique] -= (total * scale[:, None]).to(weight.dtype)

    def _square(self, index: int) -> Tensor:
        """Row-wise Adagrad's state: the sum of mean squares of each row's gradients, one float32 a row."""
        if not self._squares:
            self._squares = [weight.new_zeros(weight.shape[0], dtype=torch.float32) for weight in self.weights]
        return self._squares[index]


def _samples(features: KeyedJagged) -> int:
    assert features.stride is not None, "every key has the same samples"
    return features.stride


def _bags(features: KeyedJagged) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each key: its ids, where each bag starts among them, and each bag's length."""
    lengths = features.lengths.to(features.values.device).view(len(features.keys), -1)
    ids = torch.split_with_sizes(features.values, features.length_per_key())
    return [(ids[key], row.cumsum(0) - row, row) for key, row in enumerate(lengths)]
