"""One rank's embedding rows: lookup (pooled or not), gradient and update; `prices` has their costs."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from scenarios.workloads.dlrm.batches import initial_rows
from scenarios.workloads.dlrm.tables import embedding_fbgemm, embedding_torch
from scenarios.workloads.dlrm.tables.embedding_fbgemm import FbgemmRows
from scenarios.workloads.dlrm.tables.embedding_torch import Named
from scenarios.workloads.dlrm.tables.flat import FlatRows
from scenarios.workloads.dlrm.tables.prices import Features, RowPrices, samples_of

# Elements drawn at once: a table in host memory may be larger than its GPU's memory.
_DRAWN_AT_ONCE = 1 << 26


class Rows:
    """A rank's embedding rows: those of the pieces of tables in `prices`, ordered by the features that name them.

    Rows on CUDA devices are held by fbgemm, each piece in the memory of its kernel, if fbgemm is installed and supports
    them; otherwise all rows are on the device. `is_copy`: every rank has the same rows.
    """

    def __init__(
        self, prices: RowPrices, seed: int, device: torch.device, *, is_copy: bool = False, looks_ahead: bool = False
    ) -> None:
        """Draw the rows; `looks_ahead`: a batch's rows may be read before those of the previous batch are updated."""
        self.prices = prices
        self._held: FlatRows | FbgemmRows
        library = library_of(device)
        if library == "fbgemm" and prices.pieces and not is_copy and embedding_fbgemm.trains(prices, device):
            self._held = FbgemmRows(prices, device, looks_ahead=looks_ahead)
        else:
            kernels = kernels_of(device, prices.dims, prices.dtype, prices.travels_as)
            self._held = FlatRows(prices, device, kernels)
        for piece, weight in zip(prices.pieces, self._held.weights, strict=True):
            at_once = max(1, _DRAWN_AT_ONCE // max(1, len(piece.columns)))
            for begin in range(0, len(piece.rows), at_once):
                rows = piece.rows[begin : begin + at_once]
                # Drawn by row number, so that values do not depend on how tables are cut, nor on the number of ranks.
                drawn = initial_rows(piece.table, seed, rows, piece.columns, device=device)
                weight[begin : begin + len(rows)].copy_(drawn)

    @property
    def weights(self) -> list[Tensor]:
        """The rows by piece, [rows, columns]."""
        return self._held.weights

    @property
    def states(self) -> list[Tensor]:
        """The optimizer's float32 state by piece; for Adam and LAMB the means of all pieces, then the squares."""
        return self._held.states

    def look_up(self, features: Features) -> Tensor:
        """Return the sum of each bag's rows, times weights if there are any; columns in key order."""
        if features.values.is_meta or not self.prices.pieces:
            return features.values.new_empty(self.prices.found_shape(features), dtype=self.prices.travels_as)
        return self._held.look_up(self._name_rows(features), samples_of(features))

    def fill(self, features: Features) -> None:
        """Fetch the rows that caches miss, before they are looked up."""
        if not features.values.is_meta:
            self._held.fill(self._name_rows(features))

    def update(self, features: Features, gradient: Tensor) -> None:
        """Run one optimizer step on the rows that were looked up."""
        if not features.values.is_meta and self.prices.pieces:
            self._held.update(self._name_rows(features), gradient)

    def dense_gradients(self, features: Features, gradient: Tensor) -> Tensor:
        """Return the gradients of all pieces' weights in one flat tensor, for copied tables."""
        if features.values.is_meta:
            return gradient.new_empty(self.prices.elements, dtype=self.prices.dtype)
        assert isinstance(self._held, FlatRows), "copies are flat"
        return self._held.dense_gradients(self._name_rows(features), gradient)

    def update_dense(self, gradients: Tensor) -> None:
        """Run one optimizer step on all rows, with the `dense_gradients` after reduction, in any dtype."""
        if not gradients.is_meta:
            assert isinstance(self._held, FlatRows), "copies are flat"
            self._held.update_dense(gradients)

    def _name_rows(self, features: Features) -> Named:
        counts = [round(ids) for ids in features.length_per_key()]
        return Named(features.values, features.lengths, features.weights, self.prices.unpooled, counts)


def library_of(device: torch.device) -> Literal["numba", "fbgemm", "torch"]:
    """Return the compiler of the lookup and update kernels for a device; "torch" is a chain of torch operators."""
    if device.type == "cpu":
        return "numba"
    return "fbgemm" if device.type == "cuda" and embedding_fbgemm.is_installed(device) else "torch"


def kernels_of(device: torch.device, dims: Iterable[int], dtype: torch.dtype, travels_as: torch.dtype) -> ModuleType:
    """Return the module that looks up rows of these dims and dtype on this device."""
    library = library_of(device)
    if library == "numba":
        from scenarios.workloads.dlrm.tables import embedding_cpu  # noqa: PLC0415  (loads numba, which takes a while)

        return embedding_cpu
    if library == "fbgemm" and embedding_fbgemm.takes(dims, dtype, travels_as):
        return embedding_fbgemm
    return embedding_torch
