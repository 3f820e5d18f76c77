"""A rank's embedding rows in one flat tensor on its device, updated by `embedding_cpu`, `embedding_torch` or `moments`.

Copied tables are held in such a tensor on every device: their gradients are dense, and summed over ranks.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, RankRows, states_of, tables_of
from scenarios.workloads.dlrm.tables.moments import Moments
from scenarios.workloads.dlrm.tables.prices import RowPrices


class FlatRows:
    """The rows of the pieces in `prices`, with their optimizer's float32 state.

    Adagrad keeps the sum of mean squares of each row's gradients, or of each element's squares; Adam and LAMB keep
    `Moments`; SGD keeps nothing.
    """

    def __init__(self, prices: RowPrices, device: torch.device, kernels: ModuleType) -> None:
        """Allocate the rows; `kernels` is the module that looks them up and updates them, such as `embedding_cpu`."""
        self._optimizer, self._travels_as, self._kernels = prices.optimizer, prices.travels_as, kernels
        sizes = [(len(piece.rows), len(piece.columns), piece.keys) for piece in prices.pieces]
        self._places = places = Places.of(*([size[part] for size in sizes] for part in range(3)))
        self._flat = torch.empty(prices.elements, dtype=prices.dtype, device=device)
        own, by_element = prices.optimizer, prices.optimizer.state == "element"
        states = (prices.elements if by_element else int(places.rows.sum())) if own.kind == "adagrad" else 0
        self._storage = RankRows(self._flat, places, torch.zeros(states, device=device), by_element, own.epsilon)
        self._moments = Moments(own, self._flat, places) if own.has_moments else None
        kernels.load(prices.dtype, prices.travels_as)

    @property
    def weights(self) -> list[Tensor]:
        """The rows by piece, [rows, columns]."""
        return tables_of(self._flat, self._places)

    @property
    def states(self) -> list[Tensor]:
        """The optimizer's state by piece, the first kind of all pieces before the second."""
        if self._moments is not None:
            each = [(self._moments.means, True), (self._moments.squares, not self._optimizer.row_numbers)]
        else:
            each = [(self._storage.squares, self._storage.by_element)] if self._optimizer.kind == "adagrad" else []
        return [part for state, by_element in each for part in states_of(state, self._places, by_element=by_element)]

    def look_up(self, named: Named, samples: int) -> Tensor:
        """Return the sum of each bag's rows, or each id's row."""
        found: Tensor = self._kernels.look_up(self._storage, named, samples, self._travels_as)
        return found

    def fill(self, named: Named) -> None:
        """Do nothing: rows are on the device."""

    def update(self, named: Named, gradient: Tensor) -> None:
        """Run one optimizer step on the rows that bags name."""
        rate = self._optimizer.learning_rate
        if self._moments is not None:
            self._moments.update(named, gradient)
        elif self._optimizer.kind == "sgd":
            self._kernels.add(self._storage, named, gradient, -rate)
        else:
            self._kernels.adagrad(self._storage, named, gradient, rate)

    def dense_gradients(self, named: Named, gradient: Tensor) -> Tensor:
        """Return the gradients of all weights, flat."""
        total: Tensor = self._kernels.sums(self._places, named, gradient, self._flat.dtype)
        return total

    def update_dense(self, gradients: Tensor) -> None:
        """Run one optimizer step on all rows; `gradients` are laid out as the weights."""
        gradients = gradients.to(self._flat.dtype)
        rate = self._optimizer.learning_rate
        if self._moments is not None:
            self._moments.update_all(gradients)
        elif self._optimizer.kind == "sgd":
            self._flat.sub_(gradients, alpha=rate)
        else:
            self._kernels.adagrad_all(self._storage, gradients, rate)
