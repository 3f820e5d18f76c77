"""The pooled output exchanges where batch sizes differ by key: embeddings travel flat.

`pooled` is flat: source by source in the order in which the input exchange gives them, for each its samples of every
key of this rank, for each the key's dims (TorchRec 1.8.0's order). A forward gives this rank's own samples, flat, key
by key in the order in which the keys were sent. Every backward is the exact transpose of its forward.

`strides` [keys of this rank][sources] is what the input exchange gave (`KeyedJagged.stride_per_key_per_rank`), `own`
the samples that this rank sent of every key (`KeyedJagged.stride_per_key`). A rank without samples takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from torch import Tensor

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse.output_dist import LABEL, LABEL_BACKWARD, copy_to_all, sum_to_owner

Strides = Sequence[Sequence[int]]


class VariableBatchEmbeddingDist(Protocol):
    """What all have in common; the arguments of `backward` are those of the forward that it undoes."""

    async def forward(self, rank: Rank, pooled: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        """Flat embeddings of all sources to those of this rank's own samples.

        Raises:
            ValueError: numbers of keys, sources or elements that do not fit each other.
        """
        ...

    async def backward(self, rank: Rank, grad: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        """The gradient of what `forward` gave to the gradient of `pooled`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableBatchTwEmbeddingDist:
    """One all-to-all; `dims_per_rank[r]` are the widths of rank r's keys."""

    dims_per_rank: tuple[tuple[int, ...], ...]
    label: str = ""

    async def forward(self, rank: Rank, pooled: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        there, here = self._sizes(rank, strides, own)
        return await _exchange(rank, rank.world, pooled, sends=there, receives=here, label=self.label + LABEL)

    async def backward(self, rank: Rank, grad: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        there, here = self._sizes(rank, strides, own)
        return await _exchange(rank, rank.world, grad, sends=here, receives=there, label=self.label + LABEL_BACKWARD)

    def _sizes(self, rank: Rank, strides: Strides, own: Sequence[int]) -> tuple[list[int], list[int]]:
        """Elements that go to every rank, and that come from every rank."""
        _check("dims_per_rank", len(self.dims_per_rank), rank.world.size)
        mine = self.dims_per_rank[rank.world.index(rank.rank)]
        return _by_source(strides, mine, rank.world.size), _by_owner(own, self.dims_per_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableBatchRwEmbeddingDist:
    """Partial sums are reduce-scattered over all ranks; `dims` are the widths of all keys."""

    dims: tuple[int, ...]
    label: str = ""

    async def forward(self, rank: Rank, pooled: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        counts = self._counts(rank, strides, own)
        _check("pooled", pooled.numel(), sum(counts))
        summed = await sum_to_owner(rank, rank.world, pooled.view(-1, 1), counts, label=self.label + LABEL)
        return summed.view(-1)

    async def backward(self, rank: Rank, grad: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        counts = self._counts(rank, strides, own)
        _check("grad", grad.numel(), counts[rank.world.index(rank.rank)])
        copies = await copy_to_all(rank, rank.world, grad.view(-1, 1), counts, label=self.label + LABEL_BACKWARD)
        return copies.view(-1)

    def _counts(self, rank: Rank, strides: Strides, own: Sequence[int]) -> list[int]:
        """Elements of every source."""
        counts = _by_source(strides, self.dims, rank.world.size)
        _check("elements of own", sum(_by_owner(own, (self.dims,))), counts[rank.world.index(rank.rank)])
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableBatchTwRwEmbeddingDist:
    """Partial sums are reduce-scattered in the host, then exchanged across hosts; for grids too, piece by piece.

    `dims_per_node[n]` are the widths of host n's keys. Sources are staggered, as TwRwSparseFeaturesDist gives them.
    """

    dims_per_node: tuple[tuple[int, ...], ...]
    label: str = ""

    async def forward(self, rank: Rank, pooled: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        by_local, here = self._sizes(rank, strides, own)
        label, chunks = self.label + LABEL, [sum(hosts) for hosts in by_local]
        _check("pooled", pooled.numel(), sum(chunks))
        summed = await sum_to_owner(rank, rank.intra, pooled.view(-1, 1), chunks, label=label)
        sends = by_local[rank.local_rank]
        return await _exchange(rank, rank.cross, summed.view(-1), sends=sends, receives=here, label=label)

    async def backward(self, rank: Rank, grad: Tensor, strides: Strides, own: Sequence[int]) -> Tensor:
        by_local, here = self._sizes(rank, strides, own)
        label, chunks = self.label + LABEL_BACKWARD, [sum(hosts) for hosts in by_local]
        receives = by_local[rank.local_rank]
        rows = await _exchange(rank, rank.cross, grad, sends=here, receives=receives, label=label)
        return (await copy_to_all(rank, rank.intra, rows.view(-1, 1), chunks, label=label)).view(-1)

    def _sizes(self, rank: Rank, strides: Strides, own: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        """Elements for every host by local rank, and elements that come from every host."""
        hosts = rank.cross.size
        _check("dims_per_node", len(self.dims_per_node), hosts)
        there = _by_source(strides, self.dims_per_node[rank.host], rank.world.size)
        by_local = [there[start : start + hosts] for start in range(0, len(there), hosts)]
        return by_local, _by_owner(own, self.dims_per_node)


async def _exchange(
    rank: Rank, group: Group, flat: Tensor, *, sends: Sequence[int], receives: Sequence[int], label: str
) -> Tensor:
    _check("elements", flat.numel(), sum(sends))
    if group.size == 1:
        return flat
    arrived = flat.new_empty(sum(receives))
    return await rank.all_to_all_single(arrived, flat.contiguous(), receives, sends, group, label=f"{label}.all_to_all")


def _by_source(strides: Strides, dims: Sequence[int], sources: int) -> list[int]:
    """Elements of every source: its samples of each key, as wide as the key."""
    _check("strides", len(strides), len(dims))
    for row in strides:
        _check("strides of a key", len(row), sources)
    return [sum(row[source] * width for row, width in zip(strides, dims, strict=True)) for source in range(sources)]


def _by_owner(own: Sequence[int], dims: Sequence[Sequence[int]]) -> list[int]:
    """Elements that come from every owner of keys."""
    _check("own", len(own), len(list(chain(*dims))))
    samples = iter(own)
    return [sum(width * next(samples) for width in widths) for widths in dims]


def _check(name: str, given: int, expected: int) -> None:
    if given != expected:
        raise ValueError(f"{name}: got {given}, expected {expected}")
