"""Gradients: buckets that are averaged while a backward pass computes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from real.check.cases.bits import torch_dtype, whole
from real.check.cases.case import Case, RankGroups
from scenarios.config.scenario import Buckets
from scenarios.modules.ddp_buckets import GradientReducer
from scenarios.seam.kernel import Kernel


@dataclass(frozen=True, kw_only=True, repr=False)
class Gradients(Case):
    """Parameters of `shapes`, in buckets of `first_bytes` and then `cap_bytes`; in each step each rank's order differs.

    Gradients are whole multiples of the number of ranks, so that means are exact; `fractions` are not.
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
        """Where each gradient lies (bucket, element), and the averages of each step."""
        buckets = Buckets(first_bytes=self.first_bytes, cap_bytes=self.cap_bytes)
        reducer = GradientReducer(here.aside, self.shapes, dtype=torch_dtype(self.dtype), buckets=buckets)
        found: list[Tensor] = []
        for step in range(self.steps):
            for index in self._order(here.rank.rank, step):
                reducer.add(index, self._gradient(here.rank.rank, step, index).to(here.rank.device))
                await here.rank.compute(Kernel(kind="gemm"), int)
            averages = await reducer.finish()
            found += [] if found else [_places(averages)]
            found += [average.clone() for average in averages]
        return found

    def oracle(self) -> list[list[Tensor]]:
        """Buckets fill from the last parameter on; means of one process."""
        ranks = self.hosts * self.gpus
        found = [self._assigned()]
        for step in range(self.steps):
            for index in range(len(self.shapes)):
                total = sum(self._gradient(rank, step, index).double() for rank in range(ranks))
                found.append((torch.as_tensor(total) / ranks).to(torch_dtype(self.dtype)))
        return [found] * ranks

    def _assigned(self) -> Tensor:
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
    """By the buffers that they are views of, last first."""
    buffers = list(dict.fromkeys(id(view._base) for view in reversed(views)))
    places = [(buffers.index(id(view._base)), view.storage_offset()) for view in views]
    return torch.tensor(places, dtype=torch.int64).view(-1, 2)
