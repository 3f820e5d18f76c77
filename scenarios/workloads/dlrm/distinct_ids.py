"""The exchanges of tables whose rows travel once for all ids of a rank's batch that name them (`index_dedup`).

A rank sends the distinct ids of each key as one bag to the rows' owners. Their rows are returned like those of a
sequence, and bags are summed on the rank; gradients are summed by row before they are sent back. TorchRec 1.8.0's
EmbeddingCollection does this with `use_index_dedup`. If ids are popular by a power law few rows travel, as in HugeCTR's
hybrid embedding, which stores popular rows on all GPUs (Z. Wang et al., Merlin HugeCTR: GPU-accelerated recommender
system training and inference, RecSys 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from scenarios.do_nothing import do_nothing
from scenarios.quantized.codec import PLAIN, QuantizedComms
from scenarios.seam.kernel import Kernel, together
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.feature_exchange import Sending, permute_kernel
from scenarios.sparse.groups import TableGroup, fields_of_groups
from scenarios.sparse.input_dist import LABEL as INPUT_LABEL
from scenarios.sparse.keyed_jagged import KeyedJagged, cat, send_to_device, take_chunks
from scenarios.sparse.sequences import SequenceGroup, SequenceWay
from scenarios.sparse.tables import ShardedTable
from scenarios.workloads.dlrm.tables.caching import KEY_BYTES, SORT_PASSES
from scenarios.workloads.dlrm.tables.embedding import kernels_of
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, RankRows

# Bytes of an id's index among the distinct ids of its key.
PLACE_BYTES = 8
# Launches that compare neighbours, number the distinct ids, and return the numbers to the ids.
_NUMBERING_LAUNCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalBags:
    """A rank's bags before ids were made distinct, by column of the group.

    Attributes:
        ids: the number of ids of each column.
        lengths: [columns * batch].
        places: each id's index among its column's distinct ids; empty if ids are not real.
    """

    batch: int
    ids: tuple[float, ...]
    lengths: Tensor
    places: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctSending(Sending):
    """The distinct ids that a rank sends, with the original bags."""

    bags: OriginalBags


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctWay(SequenceWay):
    """The route of distinct rows, with the bags into which they are summed."""

    bags: OriginalBags


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctGroup(SequenceGroup):
    """Tables of one sharding type whose rows travel once, with their input and output exchange.

    If the device `sorts` ids, gradients are summed in the order of rows. `l2_bytes`: the size of its L2 cache.
    """

    sorts: bool = False
    l2_bytes: float = 0.0

    @property
    def reads_ids(self) -> bool:
        return True

    # Outputs are pooled, like those of tables that are not sequences.
    width = TableGroup.width
    output_shape = TableGroup.output_shape
    parts = TableGroup.parts

    async def prepare(self, rank: Rank, features: KeyedJagged) -> DistinctSending:
        """Select the group's keys and prepare their exchange: one bag per key, of its ascending distinct ids."""
        assert features.stride is not None, "every key has the same samples"
        names = tuple(dict.fromkeys(self.features))
        own = features.select(names)
        kernel = _distinct_kernel(float(own.values.numel()))
        distinct, places = await rank.compute(
            kernel, distinct_ids, own, rank.rank, label=f"{self.label}{INPUT_LABEL}.distinct", role=IDS
        )
        # Not super().prepare: slots=True makes another class, which zero-argument super() does not know.
        sending = await SequenceGroup.prepare(self, rank, distinct)
        order = own.positions(self.features)
        ids = own.length_per_key()
        bags = OriginalBags(
            batch=features.stride,
            ids=tuple(float(ids[key]) for key in order),
            lengths=take_chunks(own.lengths, own.stride_per_key, order),
            places=tuple(places[key] for key in order) if places else (),
        )
        return DistinctSending(**_values(sending), bags=bags)

    def way(self, rank: Rank, sent: Sending, arrived: KeyedJagged) -> DistinctWay:
        """Return the route of `SequenceGroup`, with the bags of `sent`."""
        assert isinstance(sent, DistinctSending)
        way = SequenceGroup.way(self, rank, sent, arrived)
        return DistinctWay(**_values(way), bags=sent.bags)

    def expected_way(self, rank: Rank, features: ExpectedJagged, exchange: ExpectedInput) -> DistinctWay:
        """Return the expected route of `SequenceGroup`, with bags of expected sizes."""
        way = SequenceGroup.expected_way(self, rank, features, exchange)
        ids = dict(zip(features.keys, features.ids, strict=True))
        bags = OriginalBags(
            batch=features.stride,
            ids=tuple(ids[column.feature] for column in self.columns),
            lengths=torch.empty(len(self.columns) * features.stride, dtype=features.lengths_dtype, device="meta"),
        )
        return DistinctWay(**_values(way), bags=bags)

    async def arrange(self, rank: Rank, rows: Tensor, way: SequenceWay, label: str) -> Tensor:
        """Sum the arriving rows by bag: [batch, width]."""
        assert isinstance(way, DistinctWay)
        bags, size = way.bags, rows.element_size()
        named, elements = self._naming_bytes(bags), self._elements(bags)
        is_cached = rows.numel() * size <= self.l2_bytes * len(self.columns)
        pool = Kernel(
            kind="embedding_lookup",
            flops=elements,
            bytes_read=named + size * elements,
            bytes_written=float(size * bags.batch * self.width),
            bytes_reread=size * max(0.0, elements - rows.numel()) if is_cached else 0.0,
        )
        kernel = together([permute_kernel(rows), pool])
        return await rank.compute(kernel, self._pool, rows, way, label=f"{label}.pool")

    async def scatter_gradient(self, rank: Rank, grad: Tensor, way: SequenceWay, numel: int, label: str) -> Tensor:
        """Transpose `arrange`: return the gradient of each arriving row, `numel` elements."""
        assert isinstance(way, DistinctWay)
        size, elements = grad.element_size(), self._elements(way.bags)
        summed = float(size * numel)
        # Without sorting, sums start as zeros, and are read and written in float32 for each id.
        wide = 0.0 if self.sorts else 4.0 * (elements + numel)
        add = Kernel(
            kind="embedding_update",
            flops=elements,
            bytes_read=self._naming_bytes(way.bags) + size * elements + wide,
            bytes_written=summed + wide,
            launches=1 if self.sorts else 3,
        )
        back = Kernel(kind="permute", bytes_read=summed, bytes_written=summed)
        return await rank.compute(together([add, back]), self._sum_by_row, grad, way, numel, label=f"{label}.pool")

    def _naming_bytes(self, bags: OriginalBags) -> float:
        return PLACE_BYTES * sum(bags.ids) + float(bags.lengths.numel() * bags.lengths.element_size())

    def _elements(self, bags: OriginalBags) -> float:
        """Return the elements of rows, counted once for each id that names them."""
        return sum(ids * column.columns for ids, column in zip(bags.ids, self.columns, strict=True))

    def _pool(self, rows: Tensor, way: DistinctWay) -> Tensor:
        if rows.is_meta:
            return rows.new_empty(way.bags.batch, self.width)
        came = torch.split_with_sizes(rows, [size for bucket in way.came for size in bucket])
        keys = len(self.columns)
        by_key = cat([part for key in range(keys) for part in came[key::keys]])
        places, named = self._places(way), self._name_rows(way)
        kernels = kernels_of(rows.device, places.dims.tolist(), rows.dtype, rows.dtype)
        storage = RankRows(by_key, places, by_key[:0].float())
        found: Tensor = kernels.look_up(storage, named, way.bags.batch, rows.dtype)
        return found

    def _sum_by_row(self, grad: Tensor, way: DistinctWay, numel: int) -> Tensor:
        if grad.is_meta:
            return grad.new_empty(numel)
        places, named = self._places(way), self._name_rows(way)
        kernels = kernels_of(grad.device, places.dims.tolist(), torch.float32, grad.dtype)
        by_key = (
            kernels.sums(places, named, grad, torch.float32)
            .to(grad.dtype)
            .split_with_sizes([bucket[key] for key in range(len(self.columns)) for bucket in way.came])
        )
        buckets = len(way.came)
        return cat([by_key[key * buckets + bucket] for bucket in range(buckets) for key in range(len(self.columns))])

    def _places(self, way: DistinctWay) -> Places:
        """Return the layout of the arriving rows as tables, one per column."""
        dims = [column.columns for column in self.columns]
        rows = [sum(bucket[key] for bucket in way.came) // dim for key, dim in enumerate(dims)]
        return Places.of(rows, dims)

    def _name_rows(self, way: DistinctWay) -> Named:
        """Return the bags' ids as rows of these tables."""
        ids = [home.taken[places] for home, places in zip(way.homes, way.bags.places, strict=True)]
        return Named(torch.cat(ids), way.bags.lengths, counts=[len(each) for each in ids])


class ExpectedDistinct(ExpectedInput):
    """The input exchange of a `DistinctGroup` with expected sizes; `draws` are of distinct ids."""

    async def prepare(self, rank: Rank, features: ExpectedJagged) -> ExpectedJagged:
        """Reduce the features to expected distinct ids, then prepare them as `ExpectedInput` does."""
        drawn = dict(zip(features.keys, features.ids, strict=True))
        kernel = _distinct_kernel(sum(drawn[key] for key in self.means))
        await rank.compute(kernel, do_nothing, label=f"{self.label}.distinct")
        ids = tuple(float(each.sum()) for each in self.means.values())
        return await super().prepare(rank, replace(features, keys=tuple(self.means), ids=ids, stride=1))


def build_distinct_groups(
    tables: Sequence[ShardedTable],
    world_size: int,
    local_world_size: int,
    *,
    label: str,
    codecs: QuantizedComms = PLAIN,
    sorts: bool = False,
    l2_bytes: float = 0.0,
) -> tuple[DistinctGroup, ...]:
    """Build one group per sharding type, like `build_sequence_groups`.

    Raises:
        ValueError: shards are not laid out as their sharding type requires, or such tables do not support that type.
    """
    fields = fields_of_groups(tables, world_size, local_world_size, label=label, codecs=codecs, is_pooled=False)
    return tuple(
        DistinctGroup(**each, longest=tuple(one.rows for one in each["columns"]), sorts=sorts, l2_bytes=l2_bytes)
        for each in fields
    )


def _distinct_kernel(ids: float) -> Kernel:
    """Return the kernel that finds distinct ids: sorts them with their places, compares and numbers them."""
    moved = (SORT_PASSES + 1) * 2 * KEY_BYTES * ids
    return Kernel(
        kind="permute", bytes_read=moved, bytes_written=moved, launches=SORT_PASSES + _NUMBERING_LAUNCHES, dtype=""
    )


def distinct_ids(features: KeyedJagged, rank: int) -> tuple[KeyedJagged, list[Tensor]]:
    """Return one bag of each key's distinct ids in ascending order, and by key the index of each id among them.

    Counted ids have no indices, and are those of the given global rank.
    """
    if features.counted is not None:
        counted = features.counted.distinct(features.keys)
        own = counted.of_rank(rank)
        values, lengths = features.values.new_empty(sum(own)), features.lengths.new_empty(len(own))
        return replace(features, values=values, lengths=lengths, stride=1, ids_per_key=own, counted=counted), []
    found = [
        torch.unique(ids, return_inverse=True) for ids in features.values.split_with_sizes(features.length_per_key())
    ]
    counts = [len(distinct) for distinct, _ in found]
    distinct = KeyedJagged(
        keys=features.keys,
        values=torch.cat([ids for ids, _ in found]),
        lengths=send_to_device(torch.tensor(counts, dtype=features.lengths.dtype), features.lengths.device),
        stride=1,
        ids_per_key=tuple(counts),
    )
    return distinct, [places for _, places in found]


def _values(made: Sending | SequenceWay | SequenceGroup) -> dict[str, Any]:
    """Return the fields of a dataclass, to construct a derived one."""
    return {one.name: getattr(made, one.name) for one in fields(made)}
