"""Exchanges features of expected sizes.

`ExpectedJagged` is exchanged like `KeyedJagged`, with the same verbs, order and labels, but expected sizes. A rank
therefore stores one number per key, instead of a drawn length per key and sample of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.do_nothing import do_nothing
from scenarios.seam.backend import Work
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS, SIZES
from scenarios.sharding_kind import ShardingKind
from scenarios.sparse.bucketize import bucketize_kernel
from scenarios.sparse.feature_exchange import chunks_kernel
from scenarios.sparse.input_dist import LABEL, staggered_shuffle
from scenarios.sparse.tables import Layout, Piece

Floats = npt.NDArray[np.float64]

# Numbers that each rank announces before data: lengths, ids and the batch; weighted ids add their weights.
_SIZES = 3


class Draws(Protocol):
    """The ids that ranks draw of one feature in a step, with one distribution for all ranks."""

    @property
    def samples(self) -> int:
        """The number of bags per rank."""
        ...

    def mean(self, blocks: int = 1) -> Floats:
        """Return the mean number of ids that a rank draws in each block of ceil(rows / blocks) rows, [blocks]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedJagged:
    """Expected features: `ids` [keys] in `stride` samples each; `batch_per_rank` is by member of the world's group.

    `ids_dtype` and `lengths_dtype` are those of the tensors that are sent.
    """

    keys: tuple[str, ...]
    ids: tuple[float, ...]
    stride: int
    batch_per_rank: tuple[int, ...] = ()
    weighted: bool = False
    ids_dtype: torch.dtype = torch.int64
    lengths_dtype: torch.dtype = torch.int64

    @property
    def values(self) -> Tensor:
        """A meta tensor of the ids' shape."""
        return _shape(sum(self.ids), self.ids_dtype)

    @property
    def weights(self) -> Tensor | None:
        """A meta tensor of the shape of the ids' weights; None without weights."""
        return _shape(sum(self.ids), torch.float32) if self.weighted else None

    @property
    def lengths(self) -> Tensor:
        """A meta tensor of the lengths' shape: a number for each key and sample."""
        return _shape(len(self.keys) * self.stride, self.lengths_dtype)

    def length_per_key(self) -> list[float]:
        return list(self.ids)


class ExpectedInput:
    """The input exchange of all tables with one layout, like the SparseFeaturesDist classes, with expected sizes.

    One object serves every rank, because all draw from the same distribution. `means` are by feature a rank's ids for
    each block of rows.
    """

    def __init__(self, layout: Layout, draws: Mapping[str, Draws], label: str = "", *, sequence: bool = False) -> None:
        """Make the exchange; `draws` are by feature; with `sequence`, rows are returned to their ids."""
        self._layout, self.label, self._sequence = layout, label + LABEL, sequence
        self._sent = tuple(piece.feature for piece in layout.sending_order)
        blocks = 1 if layout.sharding_type.is_copied else layout.buckets
        self.means = {key: draws[key].mean(blocks) for key in dict.fromkeys(self._sent)}
        counts = [len(owned) for owned in layout.pieces]
        shuffle = staggered_shuffle(counts, layout.span) if layout.sharding_type.rows_over == "host" else ()
        self._is_shuffled = shuffle != tuple(range(len(shuffle)))
        self._loads: dict[tuple[int, ...], _Loads] = {}

    async def __call__(self, rank: Rank, features: ExpectedJagged) -> ExpectedJagged:
        """Return the features that arrive at this rank; `features` are what each rank has of every key."""
        (arrived,) = await exchange_expected(rank, [(self, features)])
        return arrived

    async def prepare(self, rank: Rank, features: ExpectedJagged) -> ExpectedJagged:
        """Select and bucketize the features to send."""
        taken = await self._select(rank, features)
        if self._layout.sharding_type.cuts_rows:
            await self._bucketize(rank, taken)
        return taken

    def moves(self, rank: Rank) -> bool:
        """Return whether any data leave the rank."""
        return not self._layout.sharding_type.is_copied and rank.world.size > 1

    @property
    def sharding_type(self) -> ShardingKind:
        """Sharding type of the tables that the ids are for."""
        return self._layout.sharding_type

    def tell(self, rank: Rank, taken: ExpectedJagged) -> Work[Tensor]:
        return _tell(rank, _SIZES + taken.weighted, self.label)

    async def arrive(self, rank: Rank, taken: ExpectedJagged, works: Sequence[Work[Tensor]]) -> ExpectedJagged:
        """Await the transfers that `issue` began; return the expected features that this rank receives.

        Args:
            rank: this rank.
            taken: the features that this rank puts into the exchange.
            works: the transfers.
        """
        if self._layout.sharding_type.is_copied:
            return replace(taken, batch_per_rank=(taken.stride,))
        for work in works:
            await work
        world = rank.world
        batches = (taken.stride,) * len(world.ranks)
        arrived = ExpectedJagged(
            keys=tuple(piece.feature for piece in self._pieces(rank.place)),
            ids=tuple(world.size * ids for ids in self.ids_for(rank.place)),
            stride=world.total(batches),
            batch_per_rank=batches,
            weighted=taken.weighted,
            ids_dtype=taken.ids_dtype,
            lengths_dtype=taken.lengths_dtype,
        )
        if works:
            kernel = chunks_kernel(1.0 if arrived.keys else 0.0, arrived.lengths, arrived.values, arrived.weights)
            await rank.compute(kernel, do_nothing, label=f"{self.label}.recat")
        return arrived

    def ids_for(self, place: int) -> list[float]:
        """Return the expected ids from one source for the rank of this place, by that rank's keys."""
        block = place % self._layout.span if self._layout.buckets > 1 else 0
        return [float(self.means[piece.feature][block]) for piece in self._pieces(place)]

    def _pieces(self, place: int) -> tuple[Piece, ...]:
        return self._layout.pieces[place // self._layout.span]

    async def _select(self, rank: Rank, features: ExpectedJagged) -> ExpectedJagged:
        if features.keys == self._sent:
            return features
        # Names repeat for tables cut by columns, so the share of keys that move may be above 1.
        share = len(self._sent) / len(features.keys)
        ids = dict(zip(features.keys, features.ids, strict=True))
        # The host knows the number of ids per key of a drawn batch, so it knows that of an expected one, too.
        known = sum(ids[key] for key in self._sent) / (sum(features.ids) or 1)
        given = features.lengths, features.values, features.weights
        kernel = chunks_kernel(share, *given, share_of_ids=known)
        await rank.compute(kernel, do_nothing, label=f"{self.label}.select")
        return replace(features, keys=self._sent, ids=tuple(ids[key] for key in self._sent))

    async def _bucketize(self, rank: Rank, taken: ExpectedJagged) -> None:
        buckets = self._layout.buckets
        kernel = bucketize_kernel(
            taken.lengths,
            taken.values,
            buckets,
            taken.weights,
            positions=False,
            sequence=self._sequence,
            is_checked=True,
        )
        await rank.compute(kernel, do_nothing, label=f"{self.label}.bucketize")
        if self._is_shuffled:
            cut_lengths = _shape(buckets * taken.lengths.numel(), taken.lengths_dtype)
            kernel = chunks_kernel(1.0, cut_lengths, taken.values, taken.weights)
            await rank.compute(kernel, do_nothing, label=f"{self.label}.shuffle")

    def issue(self, rank: Rank, taken: ExpectedJagged) -> list[Work[Tensor]]:
        """Send lengths, values and weights, after the announced sizes have arrived."""
        world, mine, batch = rank.world, self.ids_for(rank.place), taken.stride

        def issue(name: str, of_each: Sequence[float], own: float, dtype: torch.dtype) -> Work[Tensor]:
            each = [own] * len(world.ranks)
            given, came = _shape(world.total(of_each), dtype), _shape(world.total(each), dtype)
            return rank.all_to_all_single(came, given, each, of_each, world, label=f"{self.label}.{name}")

        loads = self._loads_of(rank.places)
        works = [
            issue("lengths", [batch * keys for keys in loads.keys], batch * len(mine), taken.lengths_dtype),
            issue("values", loads.ids, sum(mine), taken.ids_dtype),
        ]
        if taken.weighted:
            works.append(issue("weights", loads.ids, sum(mine), torch.float32))
        return works

    def _loads_of(self, places: tuple[int, ...]) -> _Loads:
        """Return the loads of each member, computed once for all ranks."""
        found = self._loads.get(places)
        if found is None:
            ids = [sum(self.ids_for(place)) for place in places]
            found = self._loads[places] = _Loads([len(self._pieces(place)) for place in places], ids)
        return found


async def exchange_expected(
    rank: Rank, exchanges: Sequence[tuple[ExpectedInput, ExpectedJagged]], *, fused_label: str = ""
) -> list[ExpectedJagged]:
    """Run `feature_exchange.exchange_features` with expected sizes, for each pair of an exchange and its features."""
    rank, taken, told = rank.for_role(IDS), [], []
    for one, features in exchanges:
        own = rank.for_tables(one.sharding_type)
        taken.append((one, own, await one.prepare(own, features)))
        if one.moves(rank) and not fused_label:
            told.append(one.tell(own, taken[-1][2]))
    moving = [each for each in taken if each[0].moves(rank)]
    if fused_label and moving:
        told = [_tell(rank, sum(_SIZES + given.weighted for *_, given in moving), fused_label)]
    works = []
    for number, (one, own, given) in enumerate(moving):
        if number < len(told):
            await rank.synchronize(told[number])
        works.append(one.issue(own, given))
    issued = iter(works)
    return [await one.arrive(own, given, next(issued) if one.moves(rank) else ()) for one, own, given in taken]


def _tell(rank: Rank, numbers: int, label: str) -> Work[Tensor]:
    told = torch.empty(rank.world.size, numbers, dtype=torch.int64, device="meta")
    return rank.all_to_all_single(torch.empty_like(told), told, group=rank.world, label=f"{label}.splits", role=SIZES)


class _Loads(NamedTuple):
    """The keys and ids that one source sends to each member of a group."""

    keys: list[int]
    ids: list[float]


def _shape(numel: float, dtype: torch.dtype) -> Tensor:
    return torch.empty(round(numel), dtype=dtype, device="meta")
