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
from scenarios.sparse.keyed_jagged import CHUNK_SUMS_LAUNCHES, KeyedJagged

ID_BYTES = 8
LENGTH_BYTES = 8
# Added to the root of Adagrad's state, as torch.optim.Adagrad does by default.
ADAGRAD_EPSILON = 1e-10
# Of `Rows._update_one` with Adagrad, in float32: the sum of the gradients of an id takes 3, its square's mean and the
# state 5, the scale 5, the step 4.
ADAGRAD_LAUNCHES = 17
SUM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of one table: `table` is its number in the model."""

    table: int
    rows: range
    columns: range


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """A part of a kernel."""

    launches: int
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0


class Rows:
    """The pieces that one rank holds, one for each key of the features that it looks up, in that order.

    With Adagrad there is a state, the sum of mean squares of each row's gradients: row-wise, one float32 a row.
    """

    def __init__(
        self, pieces: Sequence[Piece], seed: int, device: torch.device, dtype: torch.dtype, *, optimizer: Optimizer
    ) -> None:
        self.pieces = tuple(pieces)
        self.weights = [
            initial_rows(piece.table, seed, piece.rows, piece.columns, device).to(dtype) for piece in self.pieces
        ]
        self._optimizer = optimizer
        self._squares = (
            [weight.new_zeros(weight.shape[0], dtype=torch.float32) for weight in self.weights]
            if optimizer.kind == "adagrad"
            else []
        )
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

    def update(self, features: KeyedJagged, gradient: Tensor) -> None:
        """One optimizer step on the rows that were looked up; `gradient` is [samples, sum of dims]."""
        if features.values.is_meta or not self.pieces:
            return
        columns = torch.split_with_sizes(gradient, self._dims, dim=1)
        for index, ((ids, _, lengths), part) in enumerate(zip(_bags(features), columns, strict=True)):
            self._update_one(index, ids, part.repeat_interleave(lengths, dim=0))

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

    def update_dense(self, gradients: Tensor) -> None:
        """One optimizer step on all rows, from what `dense_gradients` gave."""
        if gradients.is_meta:
            return
        for index, part in enumerate(torch.split_with_sizes(gradients, [weight.numel() for weight in self.weights])):
            weight = self.weights[index]
            everything = torch.arange(weight.shape[0], device=weight.device)
            self._update_one(index, everything, part.view_as(weight))

    def look_up_kernel(self, features: KeyedJagged) -> Kernel:
        """Bags are found; ids and one row for each are read, one row for each bag is written; rows are concatenated."""
        ids, elements = self._touched(features)
        pooled = _samples(features) * sum(self._dims)
        return self._kernel(
            "embedding_lookup",
            _Cost(
                launches=self._bags_launches(1) + 1,
                flops=elements,
                bytes_read=ID_BYTES * ids + self._bags_bytes(features, 5) + self._element_bytes * (elements + pooled),
                bytes_written=self._bags_bytes(features, 4) + 2 * self._element_bytes * pooled,
            ),
        )

    def update_kernel(self, features: KeyedJagged) -> Kernel:
        """Gradients are repeated for each id, then applied to its row; as if no id came twice."""
        ids, elements = self._touched(features)
        return self._kernel("embedding_update", self._repeat(features), self._apply(ids, elements))

    def dense_gradients_kernel(self, features: KeyedJagged) -> Kernel:
        """Gradients are repeated for each id and added to as many zeros as there are weights, and concatenated."""
        ids, elements = self._touched(features)
        whole = self._element_bytes * self._weights_numel
        added = self._add(ids, elements)
        zeros_and_cat = _Cost(launches=len(self.pieces) + 1, bytes_read=whole, bytes_written=2 * whole)
        return self._kernel("embedding_update", self._repeat(features), added, zeros_and_cat)

    def dense_update_kernel(self) -> Kernel:
        """Every row is numbered, and the gradients applied to it."""
        rows = float(sum(weight.shape[0] for weight in self.weights))
        numbered = _Cost(launches=len(self.pieces), bytes_written=ID_BYTES * rows)
        return self._kernel("optimizer", numbered, self._apply(rows, self._weights_numel))

    def _kernel(self, kind: str, *costs: _Cost) -> Kernel:
        """What the costs add up to; nothing where there are no pieces."""
        return Kernel(
            kind=kind,
            flops=sum(cost.flops for cost in costs),
            bytes_read=sum(cost.bytes_read for cost in costs),
            bytes_written=sum(cost.bytes_written for cost in costs),
            dtype=self._dtype_name,
            launches=sum(cost.launches for cost in costs) if self.pieces else 0,
        )

    def _repeat(self, features: KeyedJagged) -> _Cost:
        """Of finding the bags, and of each bag's gradient once for each id: repeat_interleave and index_select."""
        ids, elements = self._touched(features)
        return _Cost(
            launches=self._bags_launches(2),
            bytes_read=self._bags_bytes(features, 5) + ID_BYTES * ids + self._element_bytes * elements,
            bytes_written=self._bags_bytes(features, 4) + ID_BYTES * ids + self._element_bytes * elements,
        )

    def _add(self, ids: float, elements: float) -> _Cost:
        """Of index_add_ for all pieces: so many rows and their elements."""
        size = self._element_bytes * elements
        read = ID_BYTES * ids + 2 * size
        return _Cost(launches=len(self.pieces), flops=2 * elements, bytes_read=read, bytes_written=size)

    def _apply(self, ids: float, elements: float) -> _Cost:
        """Of `_update_one` for all pieces: so many gradient rows and their elements."""
        if self._optimizer.kind == "sgd":
            return self._add(ids, elements)
        pieces, size = len(self.pieces), self._element_bytes * elements
        # Sums, squares, means and steps are float32, the weights' reading, change and writing of their dtype.
        wide, is_half = SUM_BYTES * elements, self._dtype != torch.float32
        return _Cost(
            launches=(ADAGRAD_LAUNCHES + 2 * is_half) * pieces,
            flops=5 * elements,
            bytes_read=4 * ID_BYTES * ids + 5 * wide + 4 * size + is_half * (wide + size),
            bytes_written=2 * ID_BYTES * ids + 4 * wide + 3 * size + is_half * (wide + size),
        )

    def _bags_launches(self, each: int) -> int:
        """Of `_bags`, with so many more for each piece."""
        return CHUNK_SUMS_LAUNCHES + (2 + each) * len(self.pieces)

    def _bags_bytes(self, features: KeyedJagged, times: int) -> float:
        """Lengths and offsets, touched so often: with their sums and whoever takes them, 5 reads and 4 writes a bag."""
        return float(times * LENGTH_BYTES * _samples(features) * len(self.pieces))

    @property
    def _weights_numel(self) -> float:
        return float(sum(weight.numel() for weight in self.weights))

    def _touched(self, features: KeyedJagged) -> tuple[float, float]:
        """Ids, and elements of the rows that they name."""
        per_key = features.length_per_key()
        return float(sum(per_key)), float(sum(ids * dim for ids, dim in zip(per_key, self._dims, strict=True)))

    def _update_one(self, index: int, ids: Tensor, rows: Tensor) -> None:
        weight, optimizer = self.weights[index], self._optimizer
        if optimizer.kind == "sgd":
            weight.index_add_(0, ids, rows, alpha=-optimizer.learning_rate)
            return
        unique, inverse = torch.unique(ids, return_inverse=True)
        total = torch.zeros(len(unique), rows.shape[1], device=rows.device).index_add_(0, inverse, rows.float())
        square = self._squares[index]
        square[unique] += total.square().mean(dim=1)
        scale = optimizer.learning_rate / (square[unique].sqrt() + ADAGRAD_EPSILON)
        weight[unique] -= (total * scale[:, None]).to(weight.dtype)


def _samples(features: KeyedJagged) -> int:
    assert features.stride is not None, "every key has the same samples"
    return features.stride


def _bags(features: KeyedJagged) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each key: its ids, where each bag starts among them, and each bag's length."""
    lengths = features.lengths.to(features.values.device).view(len(features.keys), -1)
    ids = torch.split_with_sizes(features.values, features.length_per_key())
    return [(ids[key], row.cumsum(0) - row, row) for key, row in enumerate(lengths)]
