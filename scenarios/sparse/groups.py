"""Groups sharded tables by sharding type, with an input and an output exchange for each group.

Each sharding type present is one `ShardedGroup`, as in TorchRec 1.8.0. Process groups come from the calling rank, so
that one `ShardedGroup` serves every rank and every stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from scenarios.quantized.codec import PLAIN, QuantizedComms
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS
from scenarios.sharding_kind import SEQUENCE_TYPES, ShardingKind
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.feature_exchange import Sending, chunks_kernel, exchange_one
from scenarios.sparse.input_dist import (
    LABEL,
    DpSparseFeaturesDist,
    InputDist,
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
    """The part of a table that one rank holds and looks up; arriving ids count from `row_offset`."""

    table: str
    row_offset: int
    rows: int
    column_offset: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroup:
    """A group of all tables of one sharding type; `columns` are the pieces in the exchange's output, in order."""

    layout: Layout
    columns: tuple[Piece, ...]
    input_dist: InputDist
    label: str = ""
    codecs: QuantizedComms = PLAIN

    @property
    def averages(self) -> bool:
        """Whether the exchange divides gradients by the number of ranks: only if they are encoded, as in TorchRec."""
        return not self.sharding_type.is_copied and self.codecs.all_to_all.backward is not None

    @property
    def reads_ids(self) -> bool:
        """Whether values of ids decide the receivers, so that they are read."""
        return self.sharding_type.cuts_rows

    @property
    def sharding_type(self) -> ShardingKind:
        return self.layout.sharding_type

    @property
    def features(self) -> tuple[str, ...]:
        """The keys that the group takes, in sending order; a key occurs once per shard of a table cut by columns."""
        return tuple(piece.feature for piece in self.columns)

    @property
    def width(self) -> int:
        """The number of columns of `forward`'s output."""
        return sum(column.columns for column in self.columns)

    def output_shape(self, batch: int) -> tuple[int, ...]:
        """Return the shape of `forward`'s output."""
        return batch, self.width

    def parts(self, output: Tensor) -> Sequence[Tensor]:
        """Split the output of the output exchange by `columns`: [batch, columns] each."""
        return torch.split_with_sizes(output, [column.columns for column in self.columns], dim=1)

    def lookups(self, place: int) -> tuple[Lookup, ...]:
        """Return the lookups of the rank of this place: one for each key that `input` gives it, in that order."""
        owner, slot = divmod(place, self.layout.span)
        return tuple(_lookup(piece, self.layout.buckets, slot) for piece in self.layout.pieces[owner])

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """Select the group's keys of `features`, and prepare their exchange.

        If ids are cut by rows, their values must be real.

        Raises:
            ValueError: a key is missing.
        """
        rank = rank.for_tables(self.sharding_type)
        ids = features.length_per_key()  # all groups share `features`, and so the counts that this call makes known
        if not self.reads_ids:
            features = features.to_payload(rank.device)  # no code reads the ids from here on
        # A group that takes all keys in their order selects nothing: a kernel would copy every tensor as it is.
        if features.keys != self.features:
            order = features.positions(self.features)
            share = len(order) / len(features.keys)
            share_of_ids = sum(ids[key] for key in order) / (sum(ids) or 1)
            given = features.lengths, features.values, features.weights
            kernel = chunks_kernel(share, *given, share_of_ids=share_of_ids)
            features = await rank.compute(
                kernel, features.permute, order, label=f"{self.label}{LABEL}.select", role=IDS
            )
        return replace(await self.input_dist.prepare(rank, features), sharding=self.sharding_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedGroup(TableGroup):
    """Pooled tables of one sharding type, with their input and output exchange."""

    output_dist: PooledEmbeddingDist

    def way(self, rank: Rank, sent: Sending, arrived: KeyedJagged) -> tuple[int, ...]:
        """Return the batch size of each rank, by which the output exchange sends pooled rows back."""
        return arrived.batch_per_rank

    def expected_way(self, rank: Rank, features: ExpectedJagged, exchange: ExpectedInput) -> tuple[int, ...]:
        """Return `batch_per_rank` for features of expected sizes."""
        return (features.stride,) * (1 if self.sharding_type.is_copied else len(rank.world.ranks))

    async def input(self, rank: Rank, features: KeyedJagged) -> KeyedJagged:
        """Return this rank's keys with the samples of all ranks; ids are rows of its shards.

        `features` must have at least the group's keys; if ids are cut by rows, their values must be real.

        Raises:
            ValueError: a key is missing.
        """
        return await exchange_one(rank, await self.prepare(rank, features))

    async def forward(self, rank: Rank, pooled: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        """Send pooled rows [samples, columns of the lookups] to their samples' ranks; return [batch, width].

        Samples are in the order of `input`, whose result has the `batch_per_rank`.

        Raises:
            ValueError: the group was built for other hosts than this rank's, or batches differ by key.
        """
        return await self.output_dist.forward(rank, pooled, batch_per_rank)

    async def backward(self, rank: Rank, grad: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        """Exchange the gradient of the output; return that of `pooled`, the looked-up rows' sums on this rank.

        The loss counts as a sum over samples: nothing is divided by the number of ranks.
        """
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
    """Build one group per sharding type, in the order in which the types first occur.

    If any table of a group has a feature processor, the whole group sends positions, on every rank. `label` is a prefix
    of the labels of all that the groups issue, with "{sharding_type}" replaced. `codecs` encode pooled rows and their
    gradients.

    Raises:
        ValueError: shards are not laid out as their sharding type requires.
    """
    fields = fields_of_groups(tables, world_size, local_world_size, label=label, codecs=codecs, need_pos=need_pos)
    return tuple(
        ShardedGroup(**each, output_dist=_output_dist(each["layout"], each["label"], codecs)) for each in fields
    )


def fields_of_groups(
    tables: Sequence[ShardedTable],
    world_size: int,
    local_world_size: int,
    *,
    label: str,
    codecs: QuantizedComms,
    need_pos: bool = False,
    is_pooled: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield the fields of a `TableGroup` for each sharding type, in the order in which the types first occur.

    Raises:
        ValueError: shards are not laid out as their sharding type requires, or only pooled tables support that type.
    """
    world = Group("world", tuple(range(world_size)))
    for layout in layouts(tables, world_size, local_world_size):
        prefix = label.replace("{sharding_type}", layout.sharding_type)
        dist = _input_dist(layout, world, prefix + LABEL, need_pos=need_pos, is_pooled=is_pooled)
        yield {
            "layout": layout,
            "columns": layout.sending_order,
            "input_dist": dist,
            "label": prefix,
            "codecs": codecs,
        }


def outputs_to_tables(groups: Sequence[TableGroup], outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Join the groups' outputs by feature: [batch, ..., dim] each, in the order of the groups' columns."""
    parts: dict[str, list[tuple[int, Tensor]]] = {}
    for group, output in zip(groups, outputs, strict=True):
        for column, part in zip(group.columns, group.parts(output), strict=True):
            parts.setdefault(column.feature, []).append((column.column_offset, part))
    return {feature: _join([part for _, part in sorted(found, key=_offset)]) for feature, found in parts.items()}


def tables_to_outputs(groups: Sequence[ShardedGroup], grads: dict[str, Tensor]) -> list[Tensor]:
    """Transpose `outputs_to_tables`: turn gradients by feature, [batch, dim] each, into one tensor per group."""
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


def _input_dist(layout: Layout, world: Group, label: str, *, need_pos: bool, is_pooled: bool) -> InputDist:
    kind = layout.sharding_type
    if kind.is_copied:
        return DpSparseFeaturesDist()
    if not kind.cuts_rows:
        return TwSparseFeaturesDist(world, [len(owned) for owned in layout.pieces], label=label)
    rows = [piece.rows for piece in layout.sending_order]
    if not is_pooled and kind.is_on_all_ranks:
        return RwSparseFeaturesDist(world, len(rows), rows, is_sequence=True, label=label)
    if not is_pooled:
        raise ValueError(f"sequences of a {kind} table: expected one of {', '.join(SEQUENCE_TYPES)}")
    positions: dict[str, Any] = {"has_feature_processor": layout.has_feature_processor, "need_pos": need_pos}
    if kind.is_on_all_ranks:
        return RwSparseFeaturesDist(world, len(rows), rows, **positions, label=label)
    counts = [len(owned) for owned in layout.pieces for _ in range(layout.span)]
    return TwRwSparseFeaturesDist(world, layout.span, counts, rows, **positions, label=label)


def _output_dist(layout: Layout, label: str, codecs: QuantizedComms) -> PooledEmbeddingDist:
    kind = layout.sharding_type
    if kind.is_copied:
        return DpPooledEmbeddingDist()
    if not kind.cuts_rows:
        return TwPooledEmbeddingDist(dim_sum_per_rank=layout.widths, label=label, codecs=codecs)
    if kind.is_on_all_ranks:
        return RwPooledEmbeddingDist(label=label, codecs=codecs)
    return TwRwPooledEmbeddingDist(dim_sum_per_node=layout.widths, label=label, codecs=codecs)
