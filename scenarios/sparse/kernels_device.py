"""The array arithmetic of bucketizing as torch operations, on any device; the faster way on CPU is `kernels_host`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scenarios.sparse.kernels_host import Blocks
from scenarios.sparse.keyed_jagged import offsets_of


def assign(
    ids: Tensor, ids_per_feature: Sequence[int], blocks: Sequence[Blocks], my_size: int
) -> tuple[Tensor, Tensor]:
    """Each id's bucket (int16 or int32) and its id there (the dtype of `ids`)."""
    wide = ids.to(torch.int64)
    if ids.dtype == torch.int32:
        wide = wide & 0xFFFFFFFF
    feature = _spread(list(range(len(blocks))), ids_per_feature, ids)
    limit = _column([block.limit for block in blocks], ids)[feature]
    inside = (wide >= 0) & (wide < limit)
    bucket, local = _cut(wide, feature, blocks)
    place, _ = _unsigned_divmod(wide, _column([block.total for block in blocks], ids)[feature])
    _, share = _unsigned_divmod(wide, torch.full_like(wide, my_size))
    bucket, local = torch.where(inside, bucket, share), torch.where(inside, local, place)
    keep = _column([int(block.keep) for block in blocks], ids)[feature].bool()
    key_dtype = torch.int16 if my_size <= 1 << 15 else torch.int32
    return bucket.to(key_dtype), torch.where(keep, wide, local).to(ids.dtype)


def count(buckets: Tensor, lengths: Tensor, my_size: int) -> Tensor:
    """How many ids of each bag fall into each bucket: int64 [my_size * bags]."""
    bags = lengths.numel()
    bag = torch.arange(bags, device=lengths.device)
    cells = torch.repeat_interleave(bag, lengths, output_size=buckets.numel()) + buckets.to(torch.int64) * bags
    return torch.bincount(cells, minlength=my_size * bags)


def stable_order(buckets: Tensor) -> Tensor:
    """The ids' positions by bucket, equal ones in their old order: int64 [ids]."""
    return torch.argsort(buckets, stable=True)


def positions(lengths: Tensor, ids: Tensor) -> Tensor:
    """Each id's position in its bag, in the dtype of `ids`."""
    starts = torch.repeat_interleave(offsets_of(lengths)[:-1], lengths, output_size=ids.numel())
    return (torch.arange(ids.numel(), device=ids.device) - starts).to(ids.dtype)


def _cut(ids: Tensor, feature: Tensor, blocks: Sequence[Blocks]) -> tuple[Tensor, Tensor]:
    """Bucket and place of the ids below their limit; anything for the others."""
    if blocks and blocks[0].bounds is not None:
        return _cut_at_bounds(ids, feature, [block.bounds or () for block in blocks])
    rows = _column([max(block.rows, 1) for block in blocks], ids)[feature]
    bucket = torch.div(ids, rows, rounding_mode="trunc")
    return bucket, ids - bucket * rows


def _cut_at_bounds(ids: Tensor, feature: Tensor, bounds: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """One search for all features: each feature's rows are moved behind those of the one before it."""
    span = max(rows[-1] for rows in bounds) + 1
    moved = _column([rows + index * span for index, starts in enumerate(bounds) for rows in starts], ids)
    found = torch.searchsorted(moved, ids.clamp(0, span - 1) + feature * span, right=True) - 1
    start = moved[found] - feature * span
    return found - feature * len(bounds[0]), ids - start


def _unsigned_divmod(ids: Tensor, divisors: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of int64 read as unsigned: half of it is divided, then mended by at most one."""
    half = (ids >> 1) & 0x7FFFFFFFFFFFFFFF
    quotient = torch.div(half, divisors, rounding_mode="trunc") << 1
    remainder = ids - quotient * divisors
    over = remainder >= divisors
    return quotient + over, torch.where(over, remainder - divisors, remainder)


def _column(items: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(list(items), dtype=torch.int64, device=like.device)


def _spread(items: Sequence[int], counts: Sequence[int], like: Tensor) -> Tensor:
    return torch.repeat_interleave(_column(items, like), _column(counts, like), output_size=like.numel())
