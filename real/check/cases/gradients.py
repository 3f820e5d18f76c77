"""Checks the averaging of gradient buckets while a backward pass computes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from real.check.cases.case import Case, RankGroups
from real.check.cases.error_classes import torch_dtype, whole
from scenarios.config.scenario import Buckets
from scenarios.modules.ddp_buckets import GradientReducer
from scenarios.seam.kernel import Kernel


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientsCase(Case):
    """A model's gradients, averaged in buckets of `first_bytes` and then `cap_bytes`; each rank's order differs by
    step.

    `shapes` are the parameters' shapes. Gradients are whole multiples of the number of ranks, so that means are exact;
    with `fractions` they are not.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    first_bytes: int = 1
    cap_bytes: int = 1
    dtype: str = "float32"
    steps: int = 1
    fractions: bool = False
    seed: int = 0

    @property
    def rounding(self) -> float:
        """The largest rounding error of divisions, and of sums in any order, of numbers up to 2."""
        return 2 * torch.finfo(torch_dtype(self.dtype)).eps * self.hosts * self.gpus if self.fractions else 0.0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Return each gradient's position (bucket, element), and the averages of each step."""
        buckets = Buckets(first_bytes=self.first_bytes, cap_bytes=self.cap_bytes)
        reducer = GradientReducer(here.aside, self.shapes, dtype=torch_dtype(self.dtype), buckets=buckets)
        tensors: list[Tensor] = []
        for step in range(self.steps):
            for index in self._order(here.rank.rank, step):
                reducer.add(index, self._gradient(here.rank.rank, step, index).to(here.rank.device))
                # Computation between gradients lets reductions overlap with it, as in a backward pass.
                await here.rank.compute(Kernel(kind="gemm"), int)
            averages = await reducer.finish()
            tensors += [] if tensors else [_places(averages)]
            # The reducer's views are valid until the next step's gradients arrive.
            tensors += [average.clone() for average in averages]
        return tensors

    def oracle(self) -> list[list[Tensor]]:
        """Fill buckets from the last parameter on, and compute the means in one process."""
        ranks = self.hosts * self.gpus
        tensors = [self._assign()]
        for step in range(self.steps):
            for index in range(len(self.shapes)):
                total = sum(self._gradient(rank, step, index).double() for rank in range(ranks))
                tensors.append((torch.as_tensor(total) / ranks).to(torch_dtype(self.dtype)))
        return [tensors] * ranks

    def _assign(self) -> Tensor:
        places: list[tuple[int, int]] = []
        bucket = start = 0
        for shape in reversed(self.shapes):
            places.append((bucket, start))
            start += prod(shape)
            if start * torch_dtype(self.dtype).itemsize >= (self.cap_bytes if bucket else self.first_bytes):
                bucket, start = bucket + 1, 0
        return torch.tensor(places[::-1], dtype=torch.int64).view(-1, 2)

    def _order(self, rank: int, step: int) -> list[int]:
        order = list(range(len(self.shapes)))
        random.Random(repr((self.seed, rank, step))).shuffle(order)
        return order

    def _gradient(self, rank: int, step: int, index: int) -> Tensor:
        factor = 0.37 if self.fractions else self.hosts * self.gpus
        numbers = whole(self.dtype, range(-4, 5), self.seed, rank, step, index, numel=prod(self.shapes[index]))
        return (numbers * factor).view(self.shapes[index])


def _places(views: list[Tensor]) -> Tensor:
    """Return for each view the number of its buffer (0: that of the last view) and its offset in it: [views, 2]."""
    buffers = list(dict.fromkeys(id(view._base) for view in reversed(views)))
    places = [(buffers.index(id(view._base)), view.storage_offset()) for view in views]
    return torch.tensor(places, dtype=torch.int64).view(-1, 2)
