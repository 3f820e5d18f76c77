"""The array arithmetic of bucketizing on CPU tensors, in numpy; on accelerators it is left to `kernels_device`.

numpy divides by a constant with vector multiplications and sorts bytes by counting, both several times faster than
torch's CPU kernels for the same work (torch 2.13.0, numpy 2.4: 1.8 against 8 to 27 ms, and 6 against 13 ms, a million
ids; `benchmarks` repeats the whole).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Unsigned = npt.NDArray[np.unsignedinteger[npt.NBitBase]]
_CHUNK = 1 << 15  # ids handled at once: a chunk and its temporaries stay in a core's second-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How one feature's rows are cut: `rows` a bucket, or at `bounds`; ids from `limit` on are dealt out by modulo.

    Such an id becomes `id // total`. With `keep` the ids stay as they are.
    """

    rows: int
    limit: int
    bounds: tuple[int, ...] | None
    total: int
    keep: bool


def assign(
    ids: Tensor, ids_per_feature: Sequence[int], blocks: Sequence[Blocks], my_size: int
) -> tuple[Tensor, Tensor]:
    """Each id's bucket (in a dtype that `stable_order` sorts fast) and its id there (in the dtype of `ids`)."""
    given = ids.contiguous().numpy()
    unsigned = given.view(np.dtype(f"u{given.itemsize}"))
    buckets, local = np.empty(given.size, dtype=_key_dtype(my_size)), np.empty_like(unsigned)
    start = 0
    for size, block in zip(ids_per_feature, blocks, strict=True):
        for low in range(start, start + size, _CHUNK):
            part = slice(low, min(low + _CHUNK, start + size))
            _assign_chunk(unsigned[part], buckets[part], local[part], block, my_size)
        start += size
    return torch.from_numpy(buckets), torch.from_numpy(local.view(given.dtype))


def count(buckets: Tensor, lengths: Tensor, my_size: int) -> Tensor:
    """How many ids of each bag fall into each bucket: int64 [my_size * bags]."""
    bags = lengths.numel()
    cells = np.repeat(np.arange(bags, dtype=np.intp), lengths.numpy())
    cells += buckets.numpy().astype(np.intp) * bags
    return torch.from_numpy(np.bincount(cells, minlength=my_size * bags))


def stable_order(buckets: Tensor) -> Tensor:
    """The ids' positions by bucket, equal ones in their old order: int64 [ids]."""
    return torch.from_numpy(np.argsort(buckets.numpy(), kind="stable"))


def positions(lengths: Tensor, ids: Tensor) -> Tensor:
    """Each id's position in its bag, in the dtype of `ids`."""
    sizes = lengths.numpy()
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    return torch.from_numpy(np.arange(ids.numel()) - np.repeat(starts, sizes)).to(ids.dtype)


def _assign_chunk(
    ids: Unsigned, buckets: npt.NDArray[np.integer], local: Unsigned, block: Blocks, my_size: int
) -> None:
    if max(block.rows, block.total, my_size) > np.iinfo(ids.dtype).max:
        ids = ids.astype(np.uint64)
    if ids.max() < block.limit:
        _cut(ids, buckets, local, block)
    else:
        inside = ids < block.limit
        outside = ids[~inside]
        bucket, place = np.empty(ids.size - outside.size, buckets.dtype), np.empty(ids.size - outside.size, local.dtype)
        _cut(ids[inside], bucket, place, block)
        buckets[inside], local[inside] = bucket, place
        buckets[~inside], local[~inside] = outside % my_size, outside // block.total
    if block.keep:
        local[:] = ids


def _cut(ids: Unsigned, buckets: npt.NDArray[np.integer], local: Unsigned, block: Blocks) -> None:
    if block.bounds is not None:
        bounds = np.array(block.bounds, dtype=ids.dtype)
        buckets[:] = np.searchsorted(bounds, ids, side="right") - 1
        local[:] = ids - bounds[buckets]
    elif ids.size:
        quotient = ids // block.rows
        buckets[:] = quotient
        local[:] = ids - quotient * block.rows


def _key_dtype(my_size: int) -> type[np.integer]:
    """numpy sorts keys of 16 bits and less by counting."""
    if my_size <= 1 << 8:
        return np.uint8
    return np.int16 if my_size <= 1 << 15 else np.int32
