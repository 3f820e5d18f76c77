"""The exchanges of tables whose rows are not pooled: each id's row is sent to the rank of its sample.

Rows travel as in TorchRec 1.8.0's EmbeddingCollection, which has these sharding types; arriving rows are padded like
with TorchRec's `to_padded_dense`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.quantized.codec import PLAIN, QuantizedComms
from scenarios.quantized.exchange import exchange
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.roles import GRADIENTS, ROWS
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.feature_exchange import Sending, per_rank, permute_kernel
from scenarios.sparse.groups import TableGroup, fields_of_groups
from scenarios.sparse.keyed_jagged import KeyedJagged, cat, send_to_device, take_chunks
from scenarios.sparse.output_dist import LABEL, LABEL_BACKWARD
from scenarios.sparse.tables import ShardedTable

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The places of a key's rows: the `taken`-th arriving row goes to place `put` of [batch * longest].

    int64, both [rows that are kept].
    """

    taken: Tensor
    put: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceWay:
    """The sizes (in elements) and order in which one batch's looked-up rows travel back to the samples' ranks.

    Attributes:
        sends: elements to each member of the world's group.
        receives: elements from each member.
        looked_up: [keys of this rank][sources] chunks of the looked-up rows.
        came: [owners' buckets][keys sent] chunks of the arriving rows.
        homes: [keys sent] places of rows. The last three are () if rows are not real.
    """

    batch: int
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    looked_up: tuple[tuple[int, ...], ...] = ()
    came: tuple[tuple[int, ...], ...] = ()
    homes: tuple[Home, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup(TableGroup):
    """Tables of one sharding type whose rows are not pooled, with their input and output exchange.

    `longest` is by column the number of rows of a sample in the output: shorter samples end with zeros, longer ones are
    cut.
    """

    longest: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of elements of a sample in `forward`'s output."""
        return sum(column.columns * rows for column, rows in zip(self.columns, self.longest, strict=True))

    def output_shape(self, batch: int) -> tuple[int, ...]:
        """Return the shape of `forward`'s output, which is key by key."""
        return (batch * self.width,)

    def parts(self, output: Tensor) -> Sequence[Tensor]:
        """Split the output by `columns`: [batch, longest, columns] each."""
        batch = output.numel() // self.width
        shapes = [(batch, rows, column.columns) for column, rows in zip(self.columns, self.longest, strict=True)]
        sizes = [batch * rows * columns for _, rows, columns in shapes]
        return [part.view(shape) for part, shape in zip(torch.split_with_sizes(output, sizes), shapes, strict=True)]

    def expected_way(self, rank: Rank, features: ExpectedJagged, exchange: ExpectedInput) -> SequenceWay:
        """Return the route of rows by expected lookups; `features` are those before `exchange`."""
        if self.sharding_type.is_copied:
            ids = dict(zip(features.keys, features.ids, strict=True))
            elements = round(sum(ids[column.feature] * column.columns for column in self.columns))
            return SequenceWay(batch=features.stride, sends=(), receives=(elements,))

        def elements_of(owner: int) -> int:
            widths = [each.columns for each in self.lookups(owner)]
            return round(sum(ids * width for ids, width in zip(exchange.ids_for(owner), widths, strict=True)))

        return SequenceWay(
            batch=features.stride,
            sends=(elements_of(rank.place),) * len(rank.places),
            receives=tuple(elements_of(owner) for owner in rank.places),
        )

    async def forward(self, rank: Rank, rows: Tensor, way: SequenceWay) -> Tensor:
        """Send this rank's looked-up rows, flat and key by key in `input`'s order, home; return [batch * width]."""
        rank, world, label = rank.for_role(ROWS), rank.world, f"{self.label}sequence_{LABEL}"
        if self._travels(rank):
            rows = await rank.compute(
                permute_kernel(rows), _by_source, rows, way, world.total(way.sends), label=f"{label}.recat"
            )
            codec = self.codecs.all_to_all.forward
            rows = await exchange(rank, world, rows, receives=way.receives, sends=way.sends, codec=codec, label=label)
        return await self.arrange(rank, rows, way, label)

    async def arrange(self, rank: Rank, rows: Tensor, way: SequenceWay, label: str) -> Tensor:
        """Arrange the arriving rows for the dense part: key by key, padded."""
        kernel = self._home_kernel(rows.numel(), way, rows.element_size())
        return await rank.compute(kernel, self._pad, rows, way, label=f"{label}.pad")

    async def scatter_gradient(self, rank: Rank, grad: Tensor, way: SequenceWay, numel: int, label: str) -> Tensor:
        """Turn the gradient of padded sequences into `numel` elements: a gradient for each row that arrived."""
        kernel = self._home_kernel(numel, way, grad.element_size())
        return await rank.compute(kernel, self._unpad, grad, way, numel, label=f"{label}.pad")

    async def backward(self, rank: Rank, grad: Tensor, way: SequenceWay) -> Tensor:
        """Transpose `forward`: return a gradient for each row that this rank looked up."""
        rank, world, label = rank.for_role(GRADIENTS), rank.world, f"{self.label}sequence_{LABEL_BACKWARD}"
        travels = self._travels(rank)
        numel = world.total(way.receives) if travels else sum(way.receives)
        rows = await self.scatter_gradient(rank, grad, way, numel, label)
        if not travels:
            return rows
        codec = self.codecs.all_to_all.backward
        rows = await exchange(
            rank,
            world,
            rows,
            receives=way.sends,
            sends=way.receives,
            codec=codec,
            label=label,
            divisor=world.size,
        )
        return await rank.compute(permute_kernel(rows), _by_key, rows, way, label=f"{label}.recat")

    def _travels(self, rank: Rank) -> bool:
        return rank.world.size > 1 and not self.sharding_type.is_copied

    def way(self, rank: Rank, sent: Sending, arrived: KeyedJagged) -> SequenceWay:
        """Return sizes and order of the looked-up rows' way back, from the ids that this rank sent and received.

        Args:
            rank: this rank.
            sent: the ids that this rank sent.
            arrived: the ids that this rank received.
        """
        own = sent.own
        assert own is not None
        widths = np.array([column.columns for column in self.columns], np.int64)
        counts = np.array(sent.features.length_per_key(), np.int64).reshape(-1, len(widths))
        came, mine, sources = counts * widths, self.lookups(rank.place), arrived.batch_per_rank
        by_source = arrived.ids_per_key_per_rank or [[count] for count in arrived.length_per_key()]
        ids = np.array(by_source, np.int64).reshape(len(mine), len(sources))
        looked_up = ids * np.array([each.columns for each in mine], np.int64)[:, None]
        assert own.stride is not None
        return SequenceWay(
            batch=own.stride,
            sends=tuple(looked_up.sum(0).tolist()),
            receives=self._by_owner(came),
            looked_up=tuple(map(tuple, looked_up.tolist())),
            came=tuple(map(tuple, came.tolist())),
            homes=() if arrived.values.is_meta else tuple(self._homes(own, counts, sent.moved)),
        )

    def _by_owner(self, came: Ints) -> tuple[int, ...]:
        """Return the number of elements that each owner sends: one of a bucket of rows, or of consecutive keys."""
        if self.sharding_type.cuts_rows or self.sharding_type.is_copied:
            return tuple(came.sum(1).tolist())
        owned = [len(pieces) for pieces in self.layout.pieces]
        return tuple(per_rank(came.ravel().tolist(), owned))

    def _homes(self, own: KeyedJagged, counts: Ints, moved: Tensor | None) -> Iterator[Home]:
        """Yield for each key which arriving rows fill which places of its padded sequences (see `Home`).

        Args:
            own: this rank's ids before the exchange.
            counts: [buckets, keys] ids that were sent.
            moved: the position of each id in the order sent; None: unchanged.
        """
        keys = len(self.columns)
        slots = np.arange(own.values.numel()) if moved is None else moved.cpu().numpy().astype(np.int64)
        # `starts`: of chunks in the order sent, bucket by bucket; `before`: a key's rows in earlier buckets.
        starts, before = counts.ravel().cumsum() - counts.ravel(), counts.cumsum(0) - counts
        lengths = own.lengths.cpu().numpy().reshape(keys, -1)
        first = 0
        for key, longest in enumerate(self.longest):
            ids = int(lengths[key].sum())
            of_key = slots[first : first + ids]
            chunk = np.searchsorted(starts[key::keys], of_key, side="right") - 1
            # Empty chunks share their start with the next chunk; the last chunk with that start has the slot.
            taken = of_key - starts[key::keys][chunk] + before[chunk, key]
            sample = np.repeat(np.arange(lengths[key].size), lengths[key])
            place = np.arange(ids) - np.repeat(lengths[key].cumsum() - lengths[key], lengths[key])
            kept = place < longest
            put = sample[kept] * longest + place[kept]
            device = own.values.device
            places = torch.from_numpy(taken[kept]), torch.from_numpy(put)
            yield Home(taken=send_to_device(places[0], device), put=send_to_device(places[1], device))
            first += ids

    def _home_kernel(self, numel: int, way: SequenceWay, element_bytes: int) -> Kernel:
        """Return the kernel that zeroes places, gathers rows and writes them there; the transpose costs the same."""
        rows, padded = float(numel * element_bytes), float(way.batch * self.width * element_bytes)
        launches = 1 + 2 * len(self.columns)
        return Kernel(kind="permute", bytes_read=2 * rows, bytes_written=2 * rows + padded, launches=launches)

    def _pad(self, rows: Tensor, way: SequenceWay) -> Tensor:
        padded = rows.new_zeros(way.batch * self.width) if not rows.is_meta else rows.new_empty(way.batch * self.width)
        if rows.is_meta:
            return padded
        came = torch.split_with_sizes(rows, [size for bucket in way.came for size in bucket])
        for key, (part, home) in enumerate(zip(self.parts(padded), way.homes, strict=True)):
            width = part.shape[-1]
            of_key = cat(came[key :: len(self.columns)]).view(-1, width)
            part.view(-1, width).index_copy_(0, home.put, of_key[home.taken])
        return padded

    def _unpad(self, grad: Tensor, way: SequenceWay, numel: int) -> Tensor:
        if grad.is_meta:
            return grad.new_empty(numel)
        by_key = []
        for key, (part, home) in enumerate(zip(self.parts(grad), way.homes, strict=True)):
            width = part.shape[-1]
            sizes = [bucket[key] for bucket in way.came]
            rows = part.new_zeros(sum(sizes) // width, width)
            rows.index_copy_(0, home.taken, part.reshape(-1, width)[home.put])
            by_key.append(torch.split_with_sizes(rows.view(-1), sizes))
        return cat([of_key[bucket] for bucket in range(len(way.came)) for of_key in by_key])


def build_sequence_groups(
    tables: Sequence[ShardedTable],
    longest: Mapping[str, int],
    world_size: int,
    local_world_size: int,
    *,
    label: str,
    codecs: QuantizedComms = PLAIN,
) -> tuple[SequenceGroup, ...]:
    """Build one group per sharding type, like `build_groups`; `longest` is by table.

    Raises:
        ValueError: shards are not laid out as their sharding type requires, or sequences do not support that type.
    """
    fields = fields_of_groups(tables, world_size, local_world_size, label=label, codecs=codecs, is_pooled=False)
    return tuple(SequenceGroup(**each, longest=tuple(longest[one.table] for one in each["columns"])) for each in fields)


def _by_source(rows: Tensor, way: SequenceWay, numel: int) -> Tensor:
    """Reorder looked-up rows, sorted by key and then source rank, by source rank and then key."""
    return rows.new_empty(numel) if rows.is_meta else _transpose(rows, way.looked_up)


def _by_key(rows: Tensor, way: SequenceWay) -> Tensor:
    """Reorder rows' gradients, sorted by source rank and then key, by key and then source rank."""
    return rows if rows.is_meta else _transpose(rows, tuple(zip(*way.looked_up, strict=True)))


def _transpose(flat: Tensor, chunks: Sequence[Sequence[int]]) -> Tensor:
    """Transpose chunks of `flat`, whose sizes are given row by row, to column by column."""
    columns = len(chunks[0]) if chunks else 0
    order = [row * columns + column for column in range(columns) for row in range(len(chunks))]
    return take_chunks(flat, [size for row in chunks for size in row], order)
