"""Groups sharded tables by sharding type and gives each group its input and output exchange.

Each sharding type present is one `ShardedGroup`, as in TorchRec 1.8.0. Groups of ranks come from the rank that calls,
so one group serves every rank and every stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from scenarios.quantized.codec import PLAIN, QuantizedComms
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS
from scenarios.sharding_kind import ShardingKind
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.feature_exchange import Sending, chunks_kernel, exchange_one
from scenarios.sparse.input_dist import (
    LABEL,
    DpSparseFeaturesDist,
    RwSparseFeaturesDist,
    TwRwSparseFeaturesDist,
    TwSparseFeaturesDist,
    block_size,
)
from scenarios.sparse.keyed_jagged import KeyedJagged, cat
from scenarios.sparse.output_dist import (
    DpPooledEmbeddingDist,
    PooledEmbeddingDist,
    RwPooledEmbeddingDist,
    TwPooledEmbeddingDist,
    TwRwPooledEmbeddingDist,
)
from scenarios.sparse.tables import Layout, Piece, ShardedTable, layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """The part of a table that one rank holds and looks up; ids that come for it count from `row_offset`."""

    table: str
    row_offset: int
    rows: int
    column_offset: int
    columns: int


class InputDist(Protocol):
    """What all input exchanges have in common."""

    async def __call__(self, rank: Rank, features: KeyedJagged) -> KeyedJagged: ...
    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroup:
    """All tables of one sharding type. `columns` says what stands where in what its output exchange gives."""

    layout: Layout
    columns: tuple[Piece, ...]
    input_dist: InputDist
    label: str = ""
    codecs: QuantizedComms = PLAIN

    @property
    def averages(self) -> bool:
        """Whether gradients are divided by the number of ranks on their way back: encoded ones are, as in TorchRec."""
        return not self.sharding_type.is_copied and self.codecs.all_to_all.backward is not None

    @property
    def reads_ids(self) -> bool:
        """Whether ids decide what is sent: their values are read."""
        return self.sharding_type.cuts_rows

    @property
    def sharding_type(self) -> ShardingKind:
        return self.layout.sharding_type

    @property
    def features(self) -> tuple[str, ...]:
        """The keys that it takes, in sending order; one whose table is cut by columns comes once a shard."""
        return tuple(piece.feature for piece in self.columns)

    @property
    def width(self) -> int:
        """Columns of `forward`'s output."""
        return sum(column.columns for column in self.columns)

    def output_shape(self, batch: int) -> tuple[int, ...]:
        """What `forward` gives."""
        return batch, self.width

    def parts(self, output: Tensor) -> Sequence[Tensor]:
        """What its output exchange gave, by `columns`: [batch, columns] each."""
        return torch.split_with_sizes(output, [column.columns for column in self.columns], dim=1)

    def lookups(self, place: int) -> tuple[Lookup, ...]:
        """What the rank of this place looks up: one for each key that `input` gives it, in the same order."""
        owner, slot = divmod(place, self.layout.span)
        return tuple(_lookup(piece, self.layout.buckets, slot) for piece in self.layout.pieces[owner])

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """What is to be exchanged of `features`, which hold at least the keys in `features`.

        Where ids are cut by rows, their values must be real.

        Raises:
            ValueError: a key is missing.
        """
        ids = features.length_per_key()  # of the features that all groups share, where nobody has counted them yet
        if not self.reads_ids:
            features = features.to_payload(rank.device)  # nobody reads the ids from here on
        if features.keys != self.features:
            order = features.positions(self.features)
            share = len(order) / len(features.keys)
            share_of_ids = sum(ids[key] for key in order) / (sum(ids) or 1)
            given = features.lengths, features.values, features.weights
            kernel = chunks_kernel(share, *given, share_of_ids=share_of_ids)
            features = await rank.compute(
                kernel, features.permute, order, label=f"{self.label}{LABEL}.select", role=IDS
            )
        return await self.input_dist.prepare(rank, features)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedGroup(TableGroup):
    """Pooled tables of one sharding type, and their way there and back."""

    output_dist: PooledEmbeddingDist

    def way(self, rank: Rank, sent: Sending, arrived: KeyedJagged) -> tuple[int, ...]:
        """What the output exchange wants to know of the input exchange: `batch_per_rank`."""
        return arrived.batch_per_rank

    def expected_way(self, rank: Rank, features: ExpectedJagged, exchange: ExpectedInput) -> tuple[int, ...]:
        """The same of `features` whose exchange is expected."""
        return (features.stride,) * (1 if self.sharding_type.is_copied else len(rank.world.ranks))

    async def input(self, rank: Rank, features: KeyedJagged) -> KeyedJagged:
        """This rank's keys with the samples of all ranks; ids are rows of its shards.

        `features` holds at least the keys in `features`; where ids are cut by rows, their values must be real.

        Raises:
            ValueError: a key is missing.
        """
        return await exchange_one(rank, await self.prepare(rank, features))

    async def forward(self, rank: Rank, pooled: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        """[batch, width] from what this rank pooled, [samples, columns of its lookups]; samples as `input` gave them.

        `batch_per_rank` is what `input` gave.

        Raises:
            ValueError: the group was built for other hosts than this rank's, or batches differ by key.
        """
        return await self.output_dist.forward(rank, pooled, batch_per_rank)

    async def backward(self, rank: Rank, grad: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        """The gradient of `pooled` from that of the output; a sum over samples, not divided by the number of ranks."""
        return await self.output_dist.backward(rank, grad, batch_per_rank)


def build_groups(
    tables: Sequence[ShardedTable],
    world_size: int,
    local_world_size: int,
    *,
    need_pos: bool = False,
    label: str = "",
    codecs: QuantizedComms = PLAIN,
) -> tuple[ShardedGroup, ...]:
    """One group a sharding type, in the order in which the types first come.

    If any table of a group has a feature processor, the whole group sends positions, on every rank. `label` stands
    before the labels of all that the groups issue, with "{sharding_type}" replaced. `codecs` encode pooled rows and
    their gradients.

    Raises:
        ValueError: shards that are not laid out as their sharding type says.
    """
    groups = []
    for layout in layouts(tables, world_size, local_world_size):
        prefix = label.replace("{sharding_type}", layout.sharding_type)
        world = Group("world", tuple(range(world_size)))
        input_dist, output_dist = _dists(layout, world, need_pos, prefix, codecs)
        groups.append(
            ShardedGroup(
                layout=layout,
                columns=layout.sent,
                input_dist=input_dist,
                output_dist=output_dist,
                label=prefix,
                codecs=codecs,
            )
        )
    return tuple(groups)


def outputs_to_tables(groups: Sequence[TableGroup], outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """What the groups' forwards gave, by feature: [batch, ..., dim] each, in the order of the groups' columns."""
    parts: dict[str, list[tuple[int, Tensor]]] = {}
    for group, output in zip(groups, outputs, strict=True):
        for column, part in zip(group.columns, group.parts(output), strict=True):
            parts.setdefault(column.feature, []).append((column.column_offset, part))
    return {feature: _join([part for _, part in sorted(found, key=_offset)]) for feature, found in parts.items()}


def tables_to_outputs(groups: Sequence[ShardedGroup], grads: dict[str, Tensor]) -> list[Tensor]:
    """The transpose of `outputs_to_tables`: gradients by feature, [batch, dim] each, to one tensor a group."""
    return [
        _join([grads[one.feature][:, one.column_offset : one.column_offset + one.columns] for one in group.columns])
        for group in groups
    ]


def _offset(found: tuple[int, Tensor]) -> int:
    return found[0]


def _join(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else cat(parts, -1)


def _lookup(piece: Piece, buckets: int, slot: int) -> Lookup:
    block = block_size(piece.rows, buckets)
    start = min(block * slot, piece.rows) if buckets > 1 else 0
    return Lookup(
        table=piece.table,
        row_offset=start,
        rows=min(block, piece.rows - start),
        column_offset=piece.column_offset,
        columns=piece.columns,
    )


def _dists(
    layout: Layout, world: Group, need_pos: bool, label: str, codecs: QuantizedComms
) -> tuple[InputDist, PooledEmbeddingDist]:
    """The input and the output exchange of a layout, by how its tables are cut."""
    input_label, processor = label + LABEL, layout.has_feature_processor
    kind = layout.sharding_type
    if kind.is_copied:
        return DpSparseFeaturesDist(), DpPooledEmbeddingDist()
    if not kind.cuts_rows:
        counts = [len(owned) for owned in layout.pieces]
        output_dist = TwPooledEmbeddingDist(dim_sum_per_rank=layout.widths, label=label, codecs=codecs)
        return TwSparseFeaturesDist(world, counts, label=input_label), output_dist
    rows = [piece.rows for owned in layout.pieces for piece in owned]
    if kind.is_on_all_ranks:
        return RwSparseFeaturesDist(
            world, len(rows), rows, has_feature_processor=processor, need_pos=need_pos, label=input_label
        ), RwPooledEmbeddingDist(label=label, codecs=codecs)
    counts = [len(owned) for owned in layout.pieces for _ in range(layout.span)]
    return TwRwSparseFeaturesDist(
        world, layout.span, counts, rows, None, processor, need_pos, label=input_label
    ), TwRwPooledEmbeddingDist(dim_sum_per_node=layout.widths, label=label, codecs=codecs)
