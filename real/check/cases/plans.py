"""Checks tables of any sharding type, from their features to pooled rows and back to gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from real.check.cases.bags import (
    Bag,
    as_unsigned,
    bags_of,
    block_of,
    bucket_of,
    features_of,
    ids_tensor,
    positions_of,
    unbucketize,
    weights_of,
)
from real.check.cases.case import Case, RankGroups, ShortRepr
from real.check.cases.error_classes import whole
from scenarios.seam.rank import Rank
from scenarios.sharding_kind import ShardingKind
from scenarios.sparse.groups import Lookup, build_groups, outputs_to_tables, tables_to_outputs
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.sparse.tables import ShardedTable, TableShard


class ColumnRun(NamedTuple):
    """A run of columns of a table: its start, its width, and the ranks that share its rows or hold it whole."""

    start: int
    width: int
    owners: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class TableCase(ShortRepr):
    """A table cut into columns of `widths`; `owners` name a host, a rank, or all ranks of each, by `kind`."""

    kind: str
    rows: int
    widths: tuple[int, ...] = (1,)
    owners: tuple[int, ...] = (0,)
    processor: bool = False

    @property
    def sharding_kind(self) -> ShardingKind:
        """The properties of the table's sharding type."""
        return ShardingKind(self.kind)

    def pieces(self, hosts: int, gpus: int) -> Iterator[ColumnRun]:
        """Yield the table's runs of columns."""
        everyone = tuple(range(hosts * gpus))
        start = 0
        for width, owner in zip(self.widths, self.owners, strict=True):
            host = owner % hosts * gpus
            on_host = everyone[host : host + gpus]
            alone = (owner % len(everyone),)
            owners = on_host if self.sharding_kind.rows_over == "host" else alone
            yield ColumnRun(start, width, everyone if self.sharding_kind.is_on_all_ranks else owners)
            start += width

    def buckets(self, ranks: tuple[int, ...]) -> int:
        """Return the number of parts into which the rows are cut."""
        return len(ranks) if self.sharding_kind.cuts_rows else 1


class Cell(NamedTuple):
    """An id of a bag, counted in the whole table, and the weight of its row."""

    item: int
    weight: int


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanCase(Case):
    """A set of tables with `batches[rank]` samples of every feature; rows are small whole numbers, so that sums are
    exact.
    """

    tables: tuple[TableCase, ...]
    batches: tuple[int, ...]
    longest: int = 1
    dtype: str = "int64"
    weighted: bool = False
    need_pos: bool = False
    seed: int = 0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Return this rank's pooled rows of every table, then for each of its shards the looked-up ids and their rows'
        gradients.
        """
        rank, names = here.rank, [f"t{at}" for at in range(len(self.tables))]
        groups = build_groups(self._shard(), rank.world_size, self.gpus, need_pos=self.need_pos)
        grads = tables_to_outputs(
            groups, {name: self._grad(rank.rank, at).to(rank.device) for at, name in enumerate(names)}
        )
        outputs, shards = [], dict[tuple[int, int], list[Tensor]]()
        for group, grad in zip(groups, grads, strict=True):
            features = await group.input(rank, self._features(rank))
            lookups = group.lookups(rank.rank)
            cells = [self._read(rank, features, at, one) for at, one in enumerate(lookups)]
            none = torch.zeros(features.stride or 0, 0)
            pooled = torch.cat([none, *(_pool(one, *bags) for one, bags in zip(lookups, cells, strict=True))], dim=1)
            outputs.append(await group.forward(rank, pooled.to(rank.device), features.batch_per_rank))
            row_gradients = await group.backward(rank, grad, features.batch_per_rank)
            parts = torch.split(row_gradients.cpu(), [one.columns for one in lookups], dim=1)
            for one, (at, bags), part in zip(lookups, cells, parts, strict=True):
                shards[at, one.column_offset] = _row_gradients(bags, part)
        tables = outputs_to_tables(groups, outputs)
        return [*(tables[name] for name in names), *(tensor for place in sorted(shards) for tensor in shards[place])]

    def oracle(self) -> list[list[Tensor]]:
        """Compute a dense model of the whole batch; each shard's gradient is that of the ids in its bucket."""
        ranks = self.hosts * self.gpus
        whole_tables = [
            Lookup(table="", row_offset=0, rows=0, column_offset=0, columns=sum(t.widths)) for t in self.tables
        ]
        tensors = [
            [_pool(one, at, self._cells(rank, at)) for at, one in enumerate(whole_tables)] for rank in range(ranks)
        ]
        for at, table in enumerate(self.tables):
            for start, width, owners in table.pieces(self.hosts, self.gpus):
                for slot, owner in enumerate(owners):
                    sources = [owner] if table.sharding_kind.is_copied else range(ranks)
                    bags = [
                        self._in_bucket(bag, table, owners, slot) for rank in sources for bag in self._cells(rank, at)
                    ]
                    grad = torch.cat([self._grad(rank, at) for rank in sources])
                    tensors[owner] += _row_gradients(bags, grad[:, start : start + width])
        return tensors

    def _cells(self, rank: int, at: int) -> list[list[Cell]]:
        """Return a rank's bags of a table; the exchange decides whether positions or weights count."""
        bags = self._bags(rank)
        counts = [[1] * len(bag) for bag in bags[at]]
        if self.weighted:
            counts = weights_of(bags, self.seed, rank)[at]
        if self._sends_positions(self.tables[at].sharding_kind):
            counts = positions_of(bags)[at]
        return [
            [Cell(as_unsigned(item, self.dtype), count) for item, count in zip(*pair, strict=True)]
            for pair in zip(bags[at], counts, strict=True)
        ]

    def _sends_positions(self, kind: ShardingKind) -> bool:
        if not kind.cuts_rows:
            return False
        return self.need_pos if self.weighted else any(one.processor for one in self.tables if one.kind == kind)

    def _in_bucket(self, bag: list[Cell], table: TableCase, owners: tuple[int, ...], slot: int) -> list[Cell]:
        buckets = table.buckets(owners)
        block = block_of(table.rows, buckets)
        return [cell for cell in bag if buckets == 1 or bucket_of(cell.item, block, buckets)[0] == slot]

    def _read(self, rank: Rank, features: KeyedJagged, key: int, lookup: Lookup) -> tuple[int, list[list[Cell]]]:
        """Return the table of a received key, and the key's bags, with the table's row numbers, not the shard's."""
        at = int(lookup.table[1:])
        kind, rows = self.tables[at].sharding_kind, self.tables[at].rows
        buckets = kind.row_blocks(rank.world_size, rank.local_world_size)
        slot = rank.rank % buckets
        items = [
            as_unsigned(item, self.dtype)
            for item in torch.split(features.values, features.length_per_key())[key].tolist()
        ]
        if buckets > 1:
            items = [unbucketize(item, slot, block_of(rows, buckets), buckets) for item in items]
        weights = (
            [1.0] * len(items)
            if features.weights is None
            else torch.split(features.weights, features.length_per_key())[key].tolist()
        )
        cells = iter([Cell(item, int(weight)) for item, weight in zip(items, weights, strict=True)])
        lengths = features.lengths.view(len(features.keys), -1)[key].tolist()
        return at, [list(itertools.islice(cells, length)) for length in lengths]

    def _bags(self, rank: int) -> list[list[Bag]]:
        rows, batches = [table.rows for table in self.tables], [self.batches[rank]] * len(self.tables)
        return bags_of(rows, batches, self.longest, self.dtype, self.seed, rank)

    def _features(self, rank: Rank) -> KeyedJagged:
        bags = self._bags(rank.rank)
        weights = weights_of(bags, self.seed, rank.rank) if self.weighted else None
        keys = [f"t{at}" for at in range(len(self.tables))]
        return features_of(
            keys, bags, weights, (self.dtype, "int32"), stride=self.batches[rank.rank], device=rank.device
        )

    def _grad(self, rank: int, at: int) -> Tensor:
        dim = sum(self.tables[at].widths)
        return whole("float32", range(-3, 4), self.seed, rank, at, numel=self.batches[rank] * dim).view(-1, dim)

    def _shard(self) -> list[ShardedTable]:
        return [
            ShardedTable(
                name=f"t{at}",
                rows=table.rows,
                dim=sum(table.widths),
                sharding_type=table.kind,
                shards=tuple(
                    _shard(table, piece, slot)
                    for piece in table.pieces(self.hosts, self.gpus)
                    for slot in range(len(piece.owners))
                ),
                has_feature_processor=table.processor,
            )
            for at, table in enumerate(self.tables)
        ]


def _shard(table: TableCase, piece: ColumnRun, slot: int) -> TableShard:
    buckets = table.buckets(piece.owners)
    block = block_of(table.rows, buckets)
    first = min(block * slot, table.rows) if buckets > 1 else 0
    rows = min(block, table.rows - first)
    return TableShard(
        rank=piece.owners[slot], row_offset=first, rows=rows, column_offset=piece.start, columns=piece.width
    )


def _pool(lookup: Lookup, at: int, bags: list[list[Cell]]) -> Tensor:
    """Return sums of weighted rows, [bags, columns]; a row is computed by formula, so that any id has one."""
    columns = range(lookup.column_offset, lookup.column_offset + lookup.columns)
    rows = [
        [sum(cell.weight * ((31 * cell.item + 7 * column + 13 * at) % 17 - 8) for cell in bag) for column in columns]
        for bag in bags
    ]
    return torch.tensor(rows, dtype=torch.float32).view(len(bags), lookup.columns)


def _row_gradients(bags: list[list[Cell]], grad: Tensor) -> list[Tensor]:
    """Return the looked-up ids in order, [ids], and the sums of their rows' gradients, [ids, columns]."""
    totals: dict[int, Tensor] = {}
    for bag, row in zip(bags, grad, strict=True):
        for cell in bag:
            totals[cell.item] = totals.get(cell.item, torch.zeros_like(row)) + cell.weight * row
    gradients = [totals[item] for item in sorted(totals)]
    return [
        ids_tensor(sorted(totals), "int64"),
        torch.stack(gradients) if gradients else grad.new_empty(0, grad.shape[1]),
    ]
