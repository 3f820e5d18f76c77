"""Bucketizes with torch operations on any device (`kernels_host` is faster on CPUs)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.sparse.blocks import Blocks, Bucketized, Column
from scenarios.sparse.keyed_jagged import offsets_of, send_to_device


def bucketize(
    ids: Tensor,
    lengths: Tensor,
    batches: Sequence[int],
    blocks: Blocks,
    *,
    weights: Tensor | None,
    positions: bool,
    sequence: bool,
) -> Bucketized:
    """Sort each bag's ids by the bucket of rows that holds them, by torch operators, like `kernels_host.bucketize`."""
    bucket, local = _assign(ids, lengths, batches, blocks)
    # Stable, so that ids of a bag keep their order inside a bucket, as on the CPU.
    order = torch.argsort(bucket, stable=True)
    places = _positions(ids, lengths).index_select(0, order) if positions else None
    return Bucketized(
        lengths=_count(bucket, lengths, blocks.my_size),
        values=local.index_select(0, order),
        weights=None if weights is None else weights.index_select(0, order),
        positions=places,
        unbucketize_permute=_inverse(order, ids.dtype) if sequence else None,
    )


def count(ids: Tensor, lengths: Tensor, batches: Sequence[int], blocks: Blocks) -> Tensor:
    """Return only the lengths of bucketized bags, like `kernels_host.count`."""
    return _count(_assign(ids, lengths, batches, blocks)[0], lengths, blocks.my_size)


def _assign(ids: Tensor, lengths: Tensor, batches: Sequence[int], blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Return each id's bucket, in the narrowest dtype, which saves passes of the radix sort, and its id there."""
    wide = ids.to(torch.int64)
    if ids.dtype == torch.int32:
        # A negative int32 is read as unsigned, as fbgemm reads it: widening alone would extend its sign.
        wide = wide & 0xFFFFFFFF
    spread = _Spread(ids, lengths, batches)
    bucket, local = _divide(wide, spread, blocks) if blocks.bounds is None else _search(wide, spread, blocks.bounds)
    outside = (bucket < 0) | (bucket >= blocks.my_size)
    if blocks.empty.any():
        outside = outside | spread(blocks.empty)
    # All ids are computed, because testing for any outside would make the host wait for the device.
    total = spread(blocks.total)
    place, block = _unsigned_divmod(wide, total)
    bucket = torch.where(outside, block // (total // blocks.my_size), bucket)
    local = torch.where(outside, place, local)
    if blocks.keep.any():
        local = torch.where(spread(blocks.keep), wide, local)
    return bucket.to(_key_dtype(blocks.my_size)), local.to(ids.dtype)


class _Spread:
    """A function that expands columns of one item per feature to one item per id; a scalar if all items are equal."""

    def __init__(self, ids: Tensor, lengths: Tensor, batches: Sequence[int]) -> None:
        ends = send_to_device(torch.tensor([0, *np.cumsum(batches)]), lengths.device)
        self.sizes, self.ids = offsets_of(lengths)[ends].diff(), ids

    def __call__(self, column: Column | npt.NDArray[np.bool_]) -> Tensor:
        on_device = send_to_device(torch.from_numpy(column), self.ids.device)
        if column.size and (column == column[0]).all():
            return on_device[0]
        return torch.repeat_interleave(on_device, self.sizes, output_size=self.ids.numel())


def _divide(ids: Tensor, spread: _Spread, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Return buckets and ids there; a bucket outside 0 to my_size - 1 marks an id past the last block."""
    rows = spread(blocks.rows)
    # Signed division is enough while no block ends beyond int64: negative ids then give negative buckets.
    if blocks.largest * blocks.my_size >= 1 << 63:
        return _unsigned_divmod(ids, rows)
    bucket = torch.div(ids, rows, rounding_mode="floor")
    return bucket, ids - bucket * rows


def _search(ids: Tensor, spread: _Spread, bounds: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return buckets and ids there like `_divide`, from bounds, feature by feature."""
    bucket, local = torch.empty_like(ids), torch.empty_like(ids)
    parts = (torch.split_with_sizes(one, spread.sizes.tolist()) for one in (ids, bucket, local))
    for rows, part, into, place in zip(bounds, *parts, strict=True):
        starts = torch.tensor(rows, dtype=torch.int64, device=ids.device)
        into.copy_(torch.searchsorted(starts, part, right=True) - 1)
        place.copy_(part - starts[into])
    return bucket, local


def _count(bucket: Tensor, lengths: Tensor, my_size: int) -> Tensor:
    bags = lengths.numel()
    bag = torch.arange(bags, device=lengths.device)
    cells = torch.repeat_interleave(bag, lengths, output_size=bucket.numel()) + bucket.to(torch.int64) * bags
    # Not torch.bincount: the host would wait for the largest cell.
    return lengths.new_zeros(my_size * bags).index_add_(0, cells, lengths.new_ones(1).expand(cells.numel()))


def _positions(ids: Tensor, lengths: Tensor) -> Tensor:
    starts = torch.repeat_interleave(offsets_of(lengths)[:-1], lengths, output_size=ids.numel())
    return (torch.arange(ids.numel(), device=ids.device) - starts).to(ids.dtype)


def _inverse(order: Tensor, dtype: torch.dtype) -> Tensor:
    inverse = torch.empty(order.numel(), dtype=dtype, device=order.device)
    inverse[order] = torch.arange(order.numel(), dtype=dtype, device=order.device)
    return inverse


def _unsigned_divmod(ids: Tensor, divisors: Tensor) -> tuple[Tensor, Tensor]:
    """Divide int64 read as unsigned: half of the number is divided, and the quotient corrected by at most one."""
    half = (ids >> 1) & 0x7FFFFFFFFFFFFFFF
    quotient = torch.div(half, divisors, rounding_mode="trunc") << 1
    remainder = ids - quotient * divisors
    over = (remainder < 0) | (remainder >= divisors)
    return quotient + over, torch.where(over, remainder - divisors, remainder)


def _key_dtype(my_size: int) -> torch.dtype:
    if my_size <= 1 << 8:
        return torch.uint8
    return torch.int16 if my_size <= 1 << 15 else torch.int32
