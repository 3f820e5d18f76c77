"""Adam and LAMB on a rank's rows, with a mean of squares for each element or each row; torch operations on any device.

A row moves when a bag names it, as by the sum of its bags' gradients, and keeps its moments till then. Formulae are
those of fbgemm 1.8's kernels (`adam`, `partial_rowwise_adam`, `lamb`, `partial_rowwise_lamb` in genscript/optimizers),
which are for GPUs alone: moments of float32, corrected by the number of steps so far, and weight decay beside them,
as in AdamW. LAMB's ratio is a row's. A row of which nothing is to move stays; there fbgemm's LAMB divides 0 by 0, so
`fbgemm_limits` leaves LAMB without weight decay to this file.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scenarios.config.scenario import Optimizer
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, gradients_of, states_of, tables_of

# Arithmetic of one element of a row, each multiplication, addition, division and root as one.
STEP_FLOPS = {"adam": 14, "partial_rowwise_adam": 11, "lamb": 18, "partial_rowwise_lamb": 15}


class _MomentRows(NamedTuple):
    """Weights, their gradients' mean, and the mean of their squares: [rows, columns], the last perhaps [rows, 1]."""

    weights: Tensor
    means: Tensor
    squares: Tensor


class Moments:
    """What Adam or LAMB keeps of all rows in `weights`, flat, laid out by `places`.

    `means` are laid out as the weights; `squares` too, or one for each row, all pieces' one after the other.
    """

    def __init__(self, optimizer: Optimizer, weights: Tensor, places: Places) -> None:
        self._optimizer, self._places, self._weights = optimizer, places, weights
        states = int(places.rows.sum()) if optimizer.row_numbers else weights.numel()
        self.means = torch.zeros(weights.numel(), device=weights.device)
        self.squares = torch.zeros(states, device=weights.device)
        self.steps = 0

    def update(self, named: Named, gradient: Tensor) -> None:
        """One step on each row that bags name; the gradient is laid out as what is looked up."""
        self.steps += 1
        chosen, each = gradients_of(self._places, named, gradient)
        for rows, ids, given in zip(self._pieces(self._places), chosen, each, strict=True):
            named_rows, place = torch.unique(ids, return_inverse=True)
            total = torch.zeros(len(named_rows), given.shape[1], device=given.device).index_add_(
                0, place, given.float()
            )
            moved = self._moved(_MomentRows(*(one[named_rows] for one in rows)), total)
            for one, new in zip(rows, moved, strict=True):
                one[named_rows] = new.to(one.dtype)

    def update_all(self, gradients: Tensor) -> None:
        """One step on every row, whatever its gradient, as an optimizer of torch's on a dense parameter."""
        self.steps += 1
        places = self._places.joined()
        for rows, given in zip(self._pieces(places), tables_of(gradients, places), strict=True):
            for one, new in zip(rows, self._moved(rows, given.float()), strict=True):
                one.copy_(new)

    def _pieces(self, places: Places) -> list[_MomentRows]:
        squares = states_of(self.squares, places, by_element=not self._optimizer.row_numbers)
        of_elements = (tables_of(each, places) for each in (self._weights, self.means))
        return [_MomentRows(*each) for each in zip(*of_elements, squares, strict=True)]

    def _moved(self, rows: _MomentRows, gradient: Tensor) -> _MomentRows:
        own, weights = self._optimizer, rows.weights.float()
        square = gradient.square()
        if own.row_numbers:
            square = square.mean(dim=1, keepdim=True)
        means = own.beta1 * rows.means + (1 - own.beta1) * gradient
        squares = own.beta2 * rows.squares + (1 - own.beta2) * square
        root = (squares / (1 - own.beta2**self.steps)).sqrt() + own.epsilon
        way = means / (1 - own.beta1**self.steps) / root + own.weight_decay * weights
        if own.kind in ("lamb", "partial_rowwise_lamb"):
            length = way.norm(dim=1, keepdim=True)
            way = way * torch.where(length > 0, weights.norm(dim=1, keepdim=True) / length, 0.0)
        return _MomentRows(weights - own.learning_rate * way, means, squares)
