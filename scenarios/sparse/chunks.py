"""Jagged ids on the CPU in chunks of whole bags that fit a core's cache; what is done with one is left to others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_IDS, _CELLS = 1 << 16, 1 << 18  # in a chunk, unless one bag has more: 512 KiB and 2 MiB of 64-bit numbers


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive bags and their ids; `sizes`: how many ids each feature has in it, of those in `features`."""

    bags: slice
    ids: slice
    features: slice
    sizes: Array

    def spread(self, column: Array) -> Array:
        """One item an id, of a column of one item a feature; a scalar where all are alike."""
        mine = column[self.features]
        if mine.size and (mine.size == 1 or (mine == mine[0]).all()):
            alike: Array = mine[0]
            return alike
        return np.repeat(mine, self.sizes)

    def by_feature(self) -> Iterator[tuple[slice, int]]:
        """Where in the chunk the ids of each feature stand."""
        ends = self.sizes.cumsum().tolist()
        return zip(map(slice, [0, *ends], ends), range(self.features.start, self.features.stop), strict=False)


@dataclass(frozen=True, slots=True)
class Jagged:
    """`ids` unsigned; `offsets` [bags + 1] and `ends` [features + 1] say where in them bags and features begin."""

    ids: Array
    lengths: Array
    offsets: Array
    ends: Array
    chunks: tuple[Chunk, ...]

    @staticmethod
    def of(ids: Tensor, lengths: Tensor, batches: Sequence[int], my_size: int) -> Jagged:
        """Feature f has `batches[f]` bags; a chunk is at most `_CELLS` pairs of a bag and one of `my_size` buckets."""
        offsets = np.zeros(lengths.numel() + 1, dtype=np.intp)
        np.cumsum(lengths.numpy(), out=offsets[1:])
        ends = np.zeros(len(batches) + 1, dtype=np.intp)
        np.cumsum(batches, out=ends[1:])
        array, ends = bits(ids), offsets[ends]
        chunks = tuple(_chunks(offsets, ends, max(1, _CELLS // my_size)))
        return Jagged(array.view(np.dtype(f"u{array.itemsize}")), lengths.numpy(), offsets, ends, chunks)

    @property
    def longest(self) -> int:
        """Ids of the longest chunk."""
        return max(int(chunk.ids.stop - chunk.ids.start) for chunk in self.chunks)

    def positions(self, chunk: Chunk) -> Array:
        """Of each id in its bag."""
        starts = self.offsets[chunk.bags] - chunk.ids.start
        places: Array = np.arange(chunk.ids.stop - chunk.ids.start) - np.repeat(starts, self.lengths[chunk.bags])
        return places


def _chunks(offsets: Array, ends: Array, most_bags: int) -> Iterator[Chunk]:
    """At least one, if of nothing."""
    cuts = _cuts(offsets, most_bags)
    edges = offsets[cuts]
    firsts = np.maximum(ends.searchsorted(edges[:-1], "right") - 1, 0).tolist()
    lasts = ends.searchsorted(edges[1:]).tolist()
    spans = zip(pairwise(cuts.tolist()), pairwise(edges.tolist()), firsts, lasts, strict=True)
    for (low, high), (start, end), first, last in spans:
        sizes = np.diff(ends[first : last + 1].clip(start, end))
        yield Chunk(slice(low, high), slice(start, end), slice(first, last), sizes)


def _cuts(offsets: Array, most_bags: int) -> Array:
    bags, ids = offsets.size - 1, int(offsets[-1])
    if ids <= _IDS and bags <= most_bags:
        return np.array([0, bags])
    by_ids = offsets.searchsorted(np.arange(_IDS, ids, _IDS), "right") - 1
    return np.unique(np.concatenate([by_ids, np.arange(0, bags, most_bags), [bags]]))


def bits(tensor: Tensor) -> Array:
    """The same elements as integers of their width: numpy does not know all of torch's types."""
    flat = tensor.detach().contiguous()
    array: Array = flat.view(_BITS[flat.element_size()]).numpy()
    return array


def like(tensor: Tensor, array: Array) -> Tensor:
    """The undoing of `bits`."""
    return torch.from_numpy(array).view(tensor.dtype)
