"""Features of which only the expected numbers of ids are known, and their exchange; how ids fall is left to `Draws`.

They travel as `KeyedJagged` do: the same verbs in the same order with the same labels, of sizes that are expected. So a
rank of a world of any size holds a number a key, where drawn lengths would be a number a key and sample of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse.bucketize import bucketize_kernel
from scenarios.sparse.expected import Draws
from scenarios.sparse.feature_exchange import chunks_kernel
from scenarios.sparse.input_dist import LABEL, staggered_shuffle
from scenarios.sparse.tables import Layout, Piece

# Lengths, ids and the batch: what every rank is told before data moves.
_SIZES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedJagged:
    """`ids` [keys] are expected, of `stride` samples each; `batch_per_rank` is by member of the world's group."""

    keys: tuple[str, ...]
    ids: tuple[float, ...]
    stride: int
    batch_per_rank: tuple[int, ...] = ()

    @property
    def values(self) -> Tensor:
        """The shape of the ids: on meta."""
        return _shape(sum(self.ids))

    @property
    def lengths(self) -> Tensor:
        """The shape of a number for each key and sample: on meta."""
        return _shape(len(self.keys) * self.stride)

    def length_per_key(self) -> list[float]:
        """Ids of each key."""
        return list(self.ids)


class ExpectedInput:
    """The input exchange of all tables with one layout, as `TwRwSparseFeaturesDist` and its like do it.

    One object serves every rank: all draw alike.
    """

    def __init__(self, layout: Layout, draws: Mapping[str, Draws], label: str = "") -> None:
        """`draws` by table."""
        self._layout, self._label = layout, label + LABEL
        self._sent = tuple(piece.table for owned in layout.pieces for piece in owned)
        blocks = 1 if layout.kind == "replicated" else layout.buckets
        self._means = {table: draws[table].moments(blocks).mean for table in dict.fromkeys(self._sent)}
        counts = [len(owned) for owned in layout.pieces]
        shuffle = staggered_shuffle(counts, layout.span) if layout.kind == "by_host" else ()
        self._is_shuffled = shuffle != tuple(range(len(shuffle)))
        self._loads: dict[tuple[int, ...], _Loads] = {}

    async def __call__(self, rank: Rank, features: ExpectedJagged) -> ExpectedJagged:
        """This rank's keys; `features` holds what each rank has of every key."""
        taken, world = await self._select(rank, features), rank.world
        if self._layout.kind == "replicated":
            return replace(taken, batch_per_rank=(taken.stride,))
        if self._layout.kind != "by_rank":
            await self._bucketize(rank, taken)
        batches = (taken.stride,) * len(world.ranks)
        arrived = ExpectedJagged(
            keys=tuple(piece.table for piece in self._pieces(rank.rank)),
            ids=tuple(world.size * ids for ids in self.ids_for(rank.rank)),
            stride=world.total(batches),
            batch_per_rank=batches,
        )
        if world.size > 1:
            await self._exchange(rank, taken.stride)
            kernel = chunks_kernel(1.0 if arrived.keys else 0.0, arrived.lengths, arrived.values)
            await rank.compute(kernel, _nothing, label=f"{self._label}.recat")
        return arrived

    def ids_for(self, rank: int) -> list[float]:
        """Expected ids of one source for a rank, by its keys."""
        place = rank % self._layout.span if self._layout.buckets > 1 else 0
        return [float(self._means[piece.table][place]) for piece in self._pieces(rank)]

    def _pieces(self, rank: int) -> tuple[Piece, ...]:
        return self._layout.pieces[rank // self._layout.span]

    async def _select(self, rank: Rank, features: ExpectedJagged) -> ExpectedJagged:
        if features.keys == self._sent:
            return features
        share = len(self._sent) / len(features.keys)
        kernel = chunks_kernel(share, features.lengths, features.values)
        await rank.compute(kernel, _nothing, label=f"{self._label}.select")
        ids = dict(zip(features.keys, features.ids, strict=True))
        return ExpectedJagged(keys=self._sent, ids=tuple(ids[key] for key in self._sent), stride=features.stride)

    async def _bucketize(self, rank: Rank, taken: ExpectedJagged) -> None:
        buckets = self._layout.buckets
        kernel = bucketize_kernel(taken.lengths, taken.values, buckets, None, positions=False)
        await rank.compute(kernel, _nothing, label=f"{self._label}.bucketize")
        if self._is_shuffled:
            cut_lengths = _shape(buckets * taken.lengths.numel())
            await rank.compute(chunks_kernel(1.0, cut_lengths, taken.values), _nothing, label=f"{self._label}.shuffle")

    async def _exchange(self, rank: Rank, batch: int) -> None:
        """Sizes first, then lengths and values beside each other."""
        world, mine = rank.world, self.ids_for(rank.rank)
        told = torch.empty(world.size, _SIZES, dtype=torch.int64, device="meta")
        await rank.all_to_all_single(torch.empty_like(told), told, group=world, label=f"{self._label}.splits")

        def issue(name: str, of_each: Sequence[float], own: float) -> Work[Tensor]:
            each = [own] * len(world.ranks)
            given, taken = _shape(world.total(of_each)), _shape(world.total(each))
            return rank.all_to_all_single(taken, given, each, of_each, world, label=f"{self._label}.{name}")

        loads = self._loads_of(world)
        works = [
            issue("lengths", [batch * keys for keys in loads.keys], batch * len(mine)),
            issue("values", loads.ids, sum(mine)),
        ]
        for work in works:
            await work

    def _loads_of(self, world: Group) -> _Loads:
        """Found once for all ranks."""
        found = self._loads.get(world.ranks)
        if found is None:
            ids = [sum(self.ids_for(member)) for member in world.ranks]
            found = self._loads[world.ranks] = _Loads([len(self._pieces(member)) for member in world.ranks], ids)
        return found


class _Loads(NamedTuple):
    """What one source sends to each member of a group."""

    keys: list[int]
    ids: list[float]


def _shape(numel: float) -> Tensor:
    return torch.empty(round(numel), dtype=torch.int64, device="meta")


def _nothing() -> None:
    """What is computed on sizes alone."""
