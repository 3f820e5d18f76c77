"""Ragged lists of ids by feature and sample, with functions that cut and join them.

Sizes are always known: `lengths` lives where values can be read, unless ids are `counted`. `values` and `weights` may
be on the meta device; they are never read here, and every result has the shape that it would have with values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from scenarios.sparse.counted import CountedIds

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedJagged:
    """A bag of ids for every key (feature) and sample.

    Attributes:
        values: [ids], key-major: all samples' bags of the first key, then of the second.
        weights: [ids], or None.
        lengths: [sum of `stride_per_key`] sizes of the bags in the same order.
        stride: samples of every key; None if `stride_per_key_per_rank` gives them by key and source, in order.
        batch_per_rank: samples from each source, by group rank; set by an exchange, for the output exchange.
        ids_per_key: the result of `length_per_key` if the host knows it; otherwise its first call waits for the device
            of `lengths`.
        ids_per_key_per_rank: the number of ids of each key by source, in order, after an exchange.
        counted: the ids of all ranks as numbers, before an exchange without lengths, which are then on meta.

    Raises:
        ValueError: the parts do not fit each other.
    """

    keys: tuple[str, ...]
    values: Tensor
    lengths: Tensor
    weights: Tensor | None = None
    stride: int | None = None
    stride_per_key_per_rank: tuple[tuple[int, ...], ...] | None = None
    batch_per_rank: tuple[int, ...] = ()
    ids_per_key: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    ids_per_key_per_rank: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    counted: CountedIds | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.stride is None) == (self.stride_per_key_per_rank is None):
            raise ValueError("KeyedJagged: give either stride or stride_per_key_per_rank")
        strides = self.stride_per_key
        if len(strides) != len(self.keys):
            raise ValueError(f"KeyedJagged: {len(strides)} keys have strides, expected {len(self.keys)}")
        if self.lengths.numel() != sum(strides):
            raise ValueError(
                f"KeyedJagged: {self.lengths.numel()} lengths, expected {sum(strides)}, the sum of strides"
            )
        if self.weights is not None and self.weights.numel() != self.values.numel():
            raise ValueError(
                f"KeyedJagged: {self.weights.numel()} weights, expected {self.values.numel()}, the number of ids"
            )
        ids = self.ids_per_key
        if ids is not None and (len(ids) != len(self.keys) or sum(ids) != self.values.numel()):
            raise ValueError(
                f"KeyedJagged: {len(ids)} keys have {sum(ids)} ids, expected {len(self.keys)} with the"
                f" {self.values.numel()} of values"
            )

    @staticmethod
    def from_lengths_sync(
        keys: Sequence[str],
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
        stride_per_key_per_rank: Sequence[Sequence[int]] | None = None,
    ) -> KeyedJagged:
        """Make features from a user's tensors, checked; arguments in the order of TorchRec's KeyedJaggedTensor (1.8.0).

        All keys have equally many samples unless `stride_per_key_per_rank` is given. A key occurs once.

        Raises:
            ValueError: the parts do not fit each other, a length is negative, or a key occurs twice.
        """
        twice = [key for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            raise ValueError(f"KeyedJagged: key {twice[0]!r} comes twice")
        if stride is None and stride_per_key_per_rank is None:
            stride = _stride(lengths.numel(), len(keys))
        shortest, total = int(lengths.min()) if lengths.numel() else 0, int(lengths.sum())
        if shortest < 0:
            raise ValueError(f"KeyedJagged: a length is {shortest}, expected at least 0")
        if total != values.numel():
            raise ValueError(f"KeyedJagged: lengths add up to {total}, expected {values.numel()}, the number of ids")
        by_rank = stride_per_key_per_rank
        return KeyedJagged(
            keys=tuple(keys),
            values=values,
            lengths=lengths,
            weights=weights,
            stride=stride,
            stride_per_key_per_rank=None if by_rank is None else tuple(tuple(strides) for strides in by_rank),
        )

    @staticmethod
    def from_offsets_sync(
        keys: Sequence[str],
        values: Tensor,
        offsets: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
        stride_per_key_per_rank: Sequence[Sequence[int]] | None = None,
    ) -> KeyedJagged:
        """Make features as `from_lengths_sync`; `offsets` [lengths + 1] begins with 0 and ends with the number of ids.

        Raises:
            ValueError: as there, or the first offset is not 0.
        """
        if offsets.numel() == 0 or int(offsets[0]):
            raise ValueError(f"KeyedJagged: offsets {offsets[:1].tolist()} ..., expected them to start with 0")
        return KeyedJagged.from_lengths_sync(keys, values, offsets.diff(), weights, stride, stride_per_key_per_rank)

    @property
    def stride_per_key(self) -> tuple[int, ...]:
        """The number of samples of each key."""
        if self.stride_per_key_per_rank is None:
            assert self.stride is not None
            return (self.stride,) * len(self.keys)
        return tuple(sum(strides) for strides in self.stride_per_key_per_rank)

    def offsets(self) -> Tensor:
        """Return each bag's start, then the number of ids: int64 [lengths + 1], on the device of `lengths`."""
        return offsets_of(self.lengths)

    def length_per_key(self) -> list[int]:
        """Return the number of ids of each key; the first call reads `lengths` if the host does not know it."""
        if self.ids_per_key is None:
            # Cached in the frozen value, which `compare=False` allows: each read would wait for the device again.
            object.__setattr__(self, "ids_per_key", tuple(chunk_sums(self.lengths, self.stride_per_key)))
        return list(self.ids_per_key or ())

    def to_payload(self, device: torch.device) -> KeyedJagged:
        """Return the features with `values` and `weights` on `device`; on meta only shapes remain."""
        if self.values.device == device:
            return self
        weights = None if self.weights is None else self.weights.to(device)
        return replace(self, values=self.values.to(device), weights=weights)

    def sizes_only(self) -> KeyedJagged:
        """Return the features with all tensors on meta and `ids_per_key` set; no real tensor is kept alive."""
        ids = tuple(self.length_per_key())
        meta = torch.device("meta")
        weights = None if self.weights is None else self.weights.to(meta)
        values, lengths = self.values.to(meta), self.lengths.to(meta)
        return replace(self, values=values, lengths=lengths, weights=weights, ids_per_key=ids)

    def permute(self, order: Sequence[int]) -> KeyedJagged:
        """Return the keys at the positions `order`, in that order; positions may repeat or be left out."""
        sizes = self.length_per_key()
        return replace(
            self,
            keys=tuple(self.keys[index] for index in order),
            values=take_chunks(self.values, sizes, order),
            lengths=take_chunks(self.lengths, self.stride_per_key, order),
            weights=None if self.weights is None else take_chunks(self.weights, sizes, order),
            stride_per_key_per_rank=_take(self.stride_per_key_per_rank, order),
            ids_per_key=_take(sizes, order),
            ids_per_key_per_rank=_take(self.ids_per_key_per_rank or None, order) or (),
            counted=None if self.counted is None else self.counted.permute(order),
        )

    def select(self, keys: Sequence[str]) -> KeyedJagged:
        """Return the named keys, in that order.

        Raises:
            ValueError: a key is missing.
        """
        return self.permute(self.positions(keys))

    def positions(self, keys: Sequence[str]) -> list[int]:
        """Return the positions of the named keys.

        Raises:
            ValueError: a key is missing.
        """
        position = {key: index for index, key in enumerate(self.keys)}
        missing = [key for key in keys if key not in position]
        if missing:
            raise ValueError(f"KeyedJagged: no key {missing[0]!r}; there are {', '.join(self.keys) or 'none'}")
        return [position[key] for key in keys]

    def split(self, counts: Sequence[int]) -> list[KeyedJagged]:
        """Split by keys: the first `counts[0]` keys, the next `counts[1]`, and so on.

        Raises:
            ValueError: the counts do not add up to the number of keys.
        """
        if sum(counts) != len(self.keys):
            raise ValueError(f"KeyedJagged: split into {list(counts)} keys, but there are {len(self.keys)}")
        parts, start = [], 0
        for count in counts:
            parts.append(self.permute(range(start, start + count)))
            start += count
        return parts


def concat(parts: Sequence[KeyedJagged]) -> KeyedJagged:
    """Join the keys of all parts in order; all parts must have the same samples.

    Raises:
        ValueError: no parts, different strides, or weights in some parts only.
    """
    if not parts:
        raise ValueError("concat: expected at least one KeyedJagged")
    first = parts[0]
    kinds = {(part.stride, part.weights is None) for part in parts}
    if len(kinds) > 1:
        raise ValueError("concat: all parts must have the same stride, and weights in all or in none")
    weights = [part.weights for part in parts if part.weights is not None]
    return KeyedJagged(
        keys=tuple(key for part in parts for key in part.keys),
        values=cat([part.values for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        weights=cat(weights) if weights else None,
        stride=first.stride,
        stride_per_key_per_rank=_join([part.stride_per_key_per_rank for part in parts]),
        batch_per_rank=first.batch_per_rank,
        ids_per_key=_join([part.ids_per_key for part in parts]),
    )


def _take(values: Sequence[T] | None, order: Sequence[int]) -> tuple[T, ...] | None:
    return None if values is None else tuple(values[index] for index in order)


def _join(parts: Sequence[Sequence[T] | None]) -> tuple[T, ...] | None:
    """Join parts of which all are known; None if one is unknown."""
    known = [part for part in parts if part is not None]
    return tuple(value for part in known for value in part) if len(known) == len(parts) else None


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate tensors; for meta tensors return only the shape.

    Given meta tensors, torch.cat first loads torch's compiler, which costs seconds once and some 100 us per call (torch
    2.13).
    """
    first = tensors[0]
    if not first.is_meta:
        return torch.cat(list(tensors), dim)
    shape = list(first.shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return first.new_empty(shape)


def _stride(lengths: int, keys: int) -> int:
    if lengths % max(keys, 1) or (lengths and not keys):
        raise ValueError(f"KeyedJagged: {lengths} lengths, expected a multiple of {keys}, the number of keys")
    return lengths // max(keys, 1)


def offsets_of(lengths: Tensor) -> Tensor:
    """Return exclusive prefix sums with the total at the end: int64 [lengths + 1]."""
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


def chunk_sums(lengths: Tensor, sizes: Sequence[int]) -> list[int]:
    """Sum consecutive chunks of `lengths`, of the given sizes."""
    bounds = send_to_device(offsets_of(torch.tensor(list(sizes), dtype=torch.int64)), lengths.device)
    ends: Tensor = offsets_of(lengths)[bounds]
    sums: list[int] = ends.diff().tolist()
    return sums


def send_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to a device without waiting; a CUDA device reads it from pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        # From pageable memory CUDA may make the host wait for the stream, `non_blocking` or not.
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


# Launches of `chunk_sums`: two for each of the two offsets, one to index them, one for the difference.
CHUNK_SUMS_LAUNCHES = 6


def take_chunks(tensor: Tensor, sizes: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return consecutive chunks of `tensor`, of the given sizes, in another order; on meta only the shape."""
    if tensor.is_meta:
        return tensor.new_empty(sum(sizes[index] for index in order))
    chunks = torch.split_with_sizes(tensor, list(sizes)) if sizes else ()
    taken = [chunks[index] for index in order]
    return cat(taken) if taken else tensor.new_empty(0)
