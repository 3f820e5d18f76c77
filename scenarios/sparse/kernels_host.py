"""The arithmetic of bucketizing on CPU tensors, in numpy; on accelerators it is left to `kernels_device`.

Chunk by chunk, every id gets its bucket by a division (numpy's by a constant are vector multiplications), bags are
counted, and a counting sort of the buckets' bytes gives the order; then the chunks' runs are joined bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from scenarios.sparse.blocks import Blocks, Bucketized
from scenarios.sparse.chunks import Array, Chunk, Jagged, bits, like

_LANES, _LANE_MAX = 8, 255  # counters of one byte in a 64-bit word
_LANE_BUCKETS = 2 * _LANES  # up to here adding words up is faster than np.bincount
_ALONE = 1 << 10  # ids a feature from which on it is divided by a constant of its own
_COMPARED = 32  # up to so many bounds comparing with each is faster than a search
_FAST = 4  # bytes of the numbers that processors divide faster than numpy computes in float64
_EXACT = 1 << 50  # up to here (id + 0.5) / rows, computed in float64, has the whole part of id / rows


def bucketize(
    ids: Tensor,
    lengths: Tensor,
    batches: Sequence[int],
    blocks: Blocks,
    weights: Tensor | None,
    *,
    positions: bool,
    sequence: bool,
) -> Bucketized:
    """Everything that was asked for; feature f has `batches[f]` bags."""
    jagged, carried = Jagged.of(ids, lengths, batches, blocks.my_size), None if weights is None else bits(weights)
    counter, runs = _counter(jagged, blocks.my_size), _Runs(blocks.my_size, sequence)
    for chunk, buckets, local in _assigned(jagged, blocks):
        counter.add(chunk, buckets)
        order = runs.sort(buckets)
        runs.take("values", local, order)
        if carried is not None:
            runs.take("weights", carried[chunk.ids], order)
        if positions:
            runs.take("positions", jagged.positions(chunk), order)
    return Bucketized(
        lengths=torch.from_numpy(counter.lengths()),
        values=like(ids, runs.joined("values")),
        weights=None if weights is None else like(weights, runs.joined("weights")),
        positions=torch.from_numpy(runs.joined("positions")).to(ids.dtype) if positions else None,
        unbucketize_permute=torch.from_numpy(runs.slots()).to(ids.dtype) if sequence else None,
    )


def count(ids: Tensor, lengths: Tensor, batches: Sequence[int], blocks: Blocks) -> Tensor:
    """The new lengths alone."""
    jagged = Jagged.of(ids, lengths, batches, blocks.my_size)
    counter = _counter(jagged, blocks.my_size)
    for chunk, buckets, _ in _assigned(jagged, blocks):
        counter.add(chunk, buckets)
    return torch.from_numpy(counter.lengths())


def _assigned(jagged: Jagged, blocks: Blocks) -> Iterator[tuple[Chunk, Array, Array]]:
    """Chunk by chunk each id's bucket, as small an integer as holds it, and its id there; valid until the next."""
    assign = _search if blocks.bounds is not None else _divide
    given = jagged.ids
    ids = given.astype(np.uint64) if blocks.largest > np.iinfo(given.dtype).max else given
    wide, place = np.empty(jagged.longest, ids.dtype), np.empty(jagged.longest, ids.dtype)
    narrow = np.empty(jagged.longest, _key_dtype(blocks.my_size))
    for chunk in jagged.chunks:
        part = ids[chunk.ids]
        bucket, local, key = wide[: part.size], place[: part.size], narrow[: part.size]
        assign(part, chunk, blocks, bucket, local)
        if blocks.empty.any():
            np.copyto(bucket, blocks.my_size, where=chunk.spread(blocks.empty))
        if bucket.max(initial=0) >= blocks.my_size:
            _deal_out(part, chunk, blocks, bucket, local)
        keep = chunk.spread(blocks.keep)
        if keep.any():
            np.copyto(local, part, where=keep)
        np.copyto(key, bucket, casting="unsafe")
        yield chunk, key, local.astype(given.dtype, copy=False)


def _divide(ids: Array, chunk: Chunk, blocks: Blocks, bucket: Array, local: Array) -> None:
    """Buckets, from my_size on for ids past the last, and the ids there."""
    if ids.size >= _ALONE * chunk.sizes.size:
        for part, feature in chunk.by_feature():
            _divide_all(ids[part], ids.dtype.type(blocks.rows[feature]), bucket[part], local[part])
        return
    rows = chunk.spread(blocks.rows.astype(ids.dtype))
    if rows.ndim == 0 or ids.itemsize == _FAST or blocks.largest * blocks.my_size > _EXACT:
        _divide_all(ids, rows, bucket, local)
        return
    share = ids + 0.5
    share *= np.repeat(1 / blocks.rows[chunk.features], chunk.sizes)
    if share.max(initial=0) >= blocks.my_size:
        np.minimum(share, blocks.my_size, out=share)
    np.copyto(bucket, share, casting="unsafe")
    np.multiply(bucket, rows, out=local)
    np.subtract(ids, local, out=local)


def _divide_all(ids: Array, rows: Array, bucket: Array, local: Array) -> None:
    np.floor_divide(ids, rows, out=bucket)
    np.multiply(bucket, rows, out=local)
    np.subtract(ids, local, out=local)


def _deal_out(ids: Array, chunk: Chunk, blocks: Blocks, bucket: Array, local: Array) -> None:
    """The ids past the last bucket, by modulo."""
    outside = np.flatnonzero(bucket >= blocks.my_size)
    past = ids[outside]
    total = np.broadcast_to(chunk.spread(blocks.total), ids.shape)[outside].astype(ids.dtype)
    bucket[outside] = past % total // (total // ids.dtype.type(blocks.my_size))
    local[outside] = past // total


def _search(ids: Array, chunk: Chunk, blocks: Blocks, bucket: Array, local: Array) -> None:
    """As `_divide`."""
    assert blocks.bounds is not None
    for part, feature in chunk.by_feature():
        starts = np.array(blocks.bounds[feature], dtype=ids.dtype)
        bucket[part] = _found(starts, ids[part])
        np.subtract(ids[part], starts[bucket[part]], out=local[part])


def _found(starts: Array, ids: Array) -> Array:
    """How many but the first of `starts` are not above each id."""
    if starts.size > _COMPARED:
        searched: Array = starts.searchsorted(ids, "right") - 1
        return searched
    found = np.zeros(ids.size, np.uint8)
    for start in starts[1:]:
        found += ids >= start
    return found


def _counter(jagged: Jagged, my_size: int) -> _LaneCounter | _CellCounter:
    if my_size <= _LANE_BUCKETS and jagged.lengths.max(initial=0) <= _LANE_MAX:
        return _LaneCounter.of(jagged, my_size)
    return _CellCounter.of(jagged, my_size)


@dataclass(frozen=True, slots=True)
class _LaneCounter:
    """Every id is a word with a one in its bucket's byte; the words of a bag are added up."""

    jagged: Jagged
    my_size: int
    words: Array
    shift: Array
    ones: Array

    @staticmethod
    def of(jagged: Jagged, my_size: int) -> _LaneCounter:
        words = np.empty((-(-my_size // _LANES), jagged.lengths.size), np.uint64)
        shift, ones = np.empty((2, jagged.longest + 1), np.uint64)
        return _LaneCounter(jagged, my_size, words, shift, ones)

    def add(self, chunk: Chunk, buckets: Array) -> None:
        shift, ones = self.shift[: buckets.size], self.ones[: buckets.size + 1]
        np.copyto(shift, buckets)
        np.left_shift(shift, np.uint64(3), out=shift)
        ones[-1] = 0  # where empty bags at the end start
        starts = self.jagged.offsets[chunk.bags] - chunk.ids.start
        for word in self.words:
            np.left_shift(np.uint64(1), shift, out=ones[:-1])
            np.add.reduceat(ones, starts, out=word[chunk.bags])
            np.subtract(shift, np.uint64(8 * _LANES), out=shift)

    def lengths(self) -> Array:
        bags = self.jagged.lengths
        # Of an empty bag np.add.reduceat gives the next one's first word.
        np.multiply(self.words, bags > 0, out=self.words)
        counts = np.empty((self.my_size, bags.size), bags.dtype)
        for first, word in zip(range(0, self.my_size, _LANES), self.words, strict=True):
            lanes = word.view(np.uint8).reshape(-1, _LANES).T
            counts[first : first + _LANES] = lanes[: self.my_size - first]
        return counts.reshape(-1)


@dataclass(frozen=True, slots=True)
class _CellCounter:
    """Every id is the number of its cell (bucket and bag)."""

    jagged: Jagged
    counts: Array

    @staticmethod
    def of(jagged: Jagged, my_size: int) -> _CellCounter:
        return _CellCounter(jagged, np.empty((my_size, jagged.lengths.size), jagged.lengths.dtype))

    def add(self, chunk: Chunk, buckets: Array) -> None:
        part = self.counts[:, chunk.bags]
        bags = np.arange(part.shape[1])
        cells = buckets.astype(np.intp)
        cells *= bags.size
        cells += np.repeat(bags, self.jagged.lengths[chunk.bags])
        part[:] = np.bincount(cells, minlength=part.size).reshape(part.shape)

    def lengths(self) -> Array:
        return self.counts.reshape(-1)


@dataclass(frozen=True, slots=True)
class _Runs:
    """The chunks, each sorted by bucket: `ends[chunk]` [my_size + 1] says where its buckets begin."""

    my_size: int
    sequence: bool
    ends: list[Array] = field(default_factory=list)
    orders: list[Array] = field(default_factory=list)
    parts: dict[str, list[Array]] = field(default_factory=dict)

    def sort(self, buckets: Array) -> Array:
        """The ids' positions by bucket, equal ones in their old order."""
        if self.my_size == 2:
            order = np.concatenate([np.flatnonzero(buckets == 0), np.flatnonzero(buckets != 0)])
        else:
            order = buckets.argsort(kind="stable")
        starts = buckets.searchsorted(np.arange(self.my_size, dtype=buckets.dtype), sorter=order)
        self.ends.append(np.append(starts, buckets.size))
        if self.sequence:
            self.orders.append(order)
        return order

    def take(self, name: str, array: Array, order: Array) -> None:
        taken = np.empty_like(array)
        array.take(order, out=taken, mode="clip")  # the only mode that does not copy `out`
        self.parts.setdefault(name, []).append(taken)

    def joined(self, name: str) -> Array:
        parts = self.parts[name]
        if len(parts) == 1:
            return parts[0]
        bounds = [(part, ends.tolist()) for part, ends in zip(parts, self.ends, strict=True)]
        return np.concatenate([part[ends[k] : ends[k + 1]] for k in range(self.my_size) for part, ends in bounds])

    def slots(self) -> Array:
        """Where each id went."""
        sizes = np.diff(np.stack(self.ends))
        starts = sizes.T.cumsum().reshape(self.my_size, -1).T - sizes
        slots, end = np.empty(int(sizes.sum()), np.intp), 0
        for order, size, start, ends in zip(self.orders, sizes, starts, self.ends, strict=True):
            part, end = slots[end : end + order.size], end + order.size
            part[order] = np.arange(order.size) + np.repeat(start - ends[:-1], size)
        return slots


def _key_dtype(my_size: int) -> type[np.integer]:
    """numpy sorts keys of 16 bits and less by counting."""
    if my_size <= 1 << 8:
        return np.uint8
    return np.uint16 if my_size <= 1 << 16 else np.int64
