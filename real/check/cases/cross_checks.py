"""Checks calls that move arbitrary bits of every dtype (Gather, Broadcast, Messages) and that reduce whole numbers."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from real.check.cases.case import WORLD, Case, GroupSpec, RankGroups
from real.check.cases.error_classes import arbitrary, torch_dtype, whole
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


@dataclass(frozen=True, kw_only=True, repr=False)
class _GroupCall(Case):
    """A collective of each group at `place`."""

    place: GroupSpec = WORLD
    dtype: str = "float32"

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Return the tensor that a member ends with."""
        ((rank, group),) = here.join([self.place])
        return [await self._call(rank, group)] if rank.rank in group else []

    def oracle(self) -> list[list[Tensor]]:
        """Return the tensor that each member of each group must end with."""
        tensors: list[list[Tensor]] = [[] for _ in range(self.hosts * self.gpus)]
        for members in self.place.members(self.hosts, self.gpus):
            for rank, tensor in zip(members, self._results(members), strict=True):
                tensors[rank] = [tensor]
        return tensors

    async def _call(self, rank: Rank, group: Group) -> Tensor:
        raise NotImplementedError

    def _results(self, members: tuple[int, ...]) -> Sequence[Tensor]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, repr=False)
class AllGatherCase(_GroupCall):
    """An all_gather_into_tensor of `numel` elements a rank; `in_place`: the input is this rank's part of the output."""

    numel: int = 1
    in_place: bool = False
    seed: int = 0

    async def _call(self, rank: Rank, group: Group) -> Tensor:
        mine = arbitrary(self.dtype, self.numel, self.seed, rank.rank).to(rank.device)
        gathered = arbitrary(self.dtype, self.numel * group.size, self.seed).to(rank.device)
        if self.in_place:
            part = gathered.view(group.size, -1)[group.index(rank.rank)]
            mine = part.copy_(mine)
        return await rank.all_gather_into_tensor(gathered, mine, group)

    def _results(self, members: tuple[int, ...]) -> Sequence[Tensor]:
        parts = [arbitrary(self.dtype, self.numel, self.seed, rank) for rank in members]
        return [torch.cat(parts)] * len(members)


@dataclass(frozen=True, kw_only=True, repr=False)
class Broadcast(_GroupCall):
    """A broadcast from the member of each group at index `source`, modulo the group's size."""

    shape: tuple[int, ...] = (1,)
    source: int = 0
    seed: int = 0

    async def _call(self, rank: Rank, group: Group) -> Tensor:
        return await rank.broadcast(self._of(rank.rank).to(rank.device), self._source(group.ranks), group)

    def _results(self, members: tuple[int, ...]) -> Sequence[Tensor]:
        return [self._of(self._source(members))] * len(members)

    def _source(self, members: tuple[int, ...]) -> int:
        return members[self.source % len(members)]

    def _of(self, rank: int) -> Tensor:
        return arbitrary(self.dtype, torch.Size(self.shape).numel(), self.seed, rank).view(self.shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class Messages(Case):
    """A list of sends and receives, (source, target, elements) each, all issued in this order before the first is
    awaited.
    """

    dtype: str = "float32"
    messages: tuple[tuple[int, int, int], ...] = ()
    seed: int = 0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Return the tensors that this rank received."""
        rank, sent, received = here.rank, [], []
        for at, (source, target, numel) in enumerate(self.messages):
            if rank.rank == source:
                sent.append(rank.send(arbitrary(self.dtype, numel, self.seed, at).to(rank.device), target))
            elif rank.rank == target:
                received.append(rank.recv(arbitrary(self.dtype, numel, self.seed).to(rank.device), source))
        tensors = [await work for work in received]
        for work in sent:
            await work
        return tensors

    def oracle(self) -> list[list[Tensor]]:
        """Return the tensors sent to each rank, in order."""
        tensors: list[list[Tensor]] = [[] for _ in range(self.hosts * self.gpus)]
        for at, (_, target, numel) in enumerate(self.messages):
            tensors[target].append(arbitrary(self.dtype, numel, self.seed, at))
        return tensors


@dataclass(frozen=True, kw_only=True, repr=False)
class ReductionCase(_GroupCall):
    """An all_reduce of `numel` whole numbers, or with `scatters` a reduce_scatter_tensor of `numel` a member.

    Numbers are so small that their sums and products are exact in every dtype; `big` numbers are exact in integers
    only.
    """

    numel: int = 1
    op: str = "sum"
    scatters: bool = False
    big: bool = False
    seed: int = 0

    async def _call(self, rank: Rank, group: Group) -> Tensor:
        input = self._of(rank.rank, group.size).to(rank.device)
        if not self.scatters:
            return await rank.all_reduce(input, OPS[self.op], group)
        output = whole(self.dtype, (3,), numel=self.numel).to(rank.device)
        return await rank.reduce_scatter_tensor(output, input, OPS[self.op], group)

    def _results(self, members: tuple[int, ...]) -> Sequence[Tensor]:
        """Reduce with Python's arithmetic, cut to the dtype's width."""
        columns = zip(*(self._of(rank, len(members)).tolist() for rank in members), strict=True)
        results = _tensor([self._combine(column) for column in columns], self.dtype)
        return results.view(len(members), -1).unbind() if self.scatters else [results] * len(members)

    def _combine(self, column: tuple[complex, ...]) -> complex:
        if self.op in ("min", "max"):
            return {"min": min, "max": max}[self.op](column)  # type: ignore[type-var]
        if self.op == "product":
            return functools.reduce(operator.mul, column)
        total = sum(column)
        return total if self.op == "sum" else _divide(total, len(column))

    def _of(self, rank: int, size: int) -> Tensor:
        numel = self.numel * (size if self.scatters else 1)
        if not self.big or torch_dtype(self.dtype).is_floating_point or torch_dtype(self.dtype).is_complex:
            is_unsigned = self.dtype.startswith("uint")
            return whole(self.dtype, (1, 2) if is_unsigned else (-2, -1, 1, 2), self.seed, rank, numel=numel)
        limits = torch.iinfo(torch_dtype(self.dtype))
        return whole(self.dtype, (limits.min // 8, limits.max // 8 - 1, 7), self.seed, rank, numel=numel)


OPS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
}


def _divide(total: complex, by: int) -> complex:
    """Divide; integers round towards zero, as torch's "trunc" does."""
    if isinstance(total, int):
        return abs(total) // by * (1 if total > 0 else -1)
    return complex(total.real / by, total.imag / by) if isinstance(total, complex) else total / by


def _tensor(values: list[complex], dtype: str) -> Tensor:
    kind = torch_dtype(dtype)
    if kind.is_complex:
        parts = list(chain.from_iterable((complex(value).real, complex(value).imag) for value in values))
        return torch.tensor(parts, dtype=torch.float64).view(torch.complex128).to(kind)
    if kind.is_floating_point:
        return torch.tensor(values, dtype=torch.float64).to(kind)
    # Python's integers are unbounded: cut to the width, as an overflow in torch wraps around.
    wrapped = [int(value.real) % (1 << 8 * kind.itemsize) for value in values]
    return torch.tensor([value - (1 << 64) if value >> 63 else value for value in wrapped], dtype=torch.int64).to(kind)
