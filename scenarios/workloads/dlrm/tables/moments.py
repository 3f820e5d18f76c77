"""Adam and LAMB on a rank's rows, with a mean of squares for each element or each row; torch operations on any device.

A row moves when a bag names it, by the sum of its bags' gradients; otherwise it keeps its moments. Formulae are those
of fbgemm 1.8's kernels (`adam`, `partial_rowwise_adam`, `lamb`, `partial_rowwise_lamb` in genscript/optimizers), which
exist only for GPUs: float32 moments, corrected by the number of steps so far, and decoupled weight decay as in AdamW.
LAMB's ratio is computed by row. A row with a change of 0 stays; fbgemm's LAMB divides 0 by 0 there, so `fbgemm_limits`
leaves LAMB without weight decay to this file.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scenarios.config.scenario import Optimizer
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, gradients_of, states_of, tables_of

# FLOPs for one element of a row; a multiplication, addition, division or root counts as one.
STEP_FLOPS = {"adam": 14, "partial_rowwise_adam": 11, "lamb": 18, "partial_rowwise_lamb": 15}


class _MomentRows(NamedTuple):
    """Weights, the mean of their gradients, and the mean of the squares: [rows, columns]; squares may be [rows, 1]."""

    weights: Tensor
    means: Tensor
    squares: Tensor


class Moments:
    """The state of Adam or LAMB for all rows in `weights`, flat, laid out by `places`.

    `means` are laid out as the weights; so are `squares`, unless there is one for each row.
    """

    def __init__(self, optimizer: Optimizer, weights: Tensor, places: Places) -> None:
        self._optimizer, self._places, self._weights = optimizer, places, weights
        states = int(places.rows.sum()) if optimizer.row_numbers else weights.numel()
        self.means = torch.zeros(weights.numel(), device=weights.device)
        self.squares = torch.zeros(states, device=weights.device)
        self.steps = 0

    def update(self, named: Named, gradient: Tensor) -> None:
        """Run one step on each row that bags name; the gradient is laid out as the output of a lookup."""
        self.steps += 1
        chosen, each = gradients_of(self._places, named, gradient)
        for rows, ids, given in zip(self._pieces(self._places), chosen, each, strict=True):
            named_rows, place = torch.unique(ids, return_inverse=True)
            total = torch.zeros(len(named_rows), given.shape[1], device=given.device).index_add_(
                0, place, given.float()
            )
            moved = self._move(_MomentRows(*(one[named_rows] for one in rows)), total)
            for one, new in zip(rows, moved, strict=True):
                one[named_rows] = new.to(one.dtype)

    def update_all(self, gradients: Tensor) -> None:
        """Run one step on every row, for any gradient, like torch.optim on a dense parameter."""
        self.steps += 1
        places = self._places.join()
        for rows, given in zip(self._pieces(places), tables_of(gradients, places), strict=True):
            for one, new in zip(rows, self._move(rows, given.float()), strict=True):
                one.copy_(new)

    def _pieces(self, places: Places) -> list[_MomentRows]:
        squares = states_of(self.squares, places, by_element=not self._optimizer.row_numbers)
        of_elements = (tables_of(each, places) for each in (self._weights, self.means))
        return [_MomentRows(*each) for each in zip(*of_elements, squares, strict=True)]

    def _move(self, rows: _MomentRows, gradient: Tensor) -> _MomentRows:
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
