"""Ids to buckets: which shard of a row-wise cut table owns each id; the arithmetic on arrays is left to the kernels.

Behaves as `fbgemm.block_bucketize_sparse_features` of fbgemm-gpu 1.8.0 on CPU; order inside a bag is kept everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.rank import Kernel
from scenarios.sparse import kernels_device, kernels_host
from scenarios.sparse.kernels_host import Blocks
from scenarios.sparse.keyed_jagged import chunk_sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketized:
    """Bags cut by bucket: bucket 0's bags of every feature and sample, then bucket 1's.

    `lengths` [my_size * bags]; `values`, and where asked for `weights` and `positions` (in the old bag), laid out by
    it; `unbucketize_permute[i]` is the slot that id i went to.
    """

    lengths: Tensor
    values: Tensor
    weights: Tensor | None = None
    positions: Tensor | None = None
    unbucketize_permute: Tensor | None = None


def block_bucketize(
    lengths: Tensor,
    ids: Tensor,
    block_sizes: Sequence[int],
    my_size: int,
    *,
    weights: Tensor | None = None,
    bucketize_pos: bool = False,
    sequence: bool = False,
    batch_size_per_feature: Sequence[int] | None = None,
    block_bucketize_pos: Sequence[Sequence[int]] | None = None,
    keep_orig_idx: bool | Sequence[bool] = False,
    total_num_blocks: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Bucketized:
    """Cut every bag into `my_size` by the block of rows that its ids fall into.

    An id, read as unsigned of its width, goes to bucket `id // block` as `id % block`; past the last block, to bucket
    `id % my_size` as `id // my_size`. `lengths` [features * batch], feature-major, or [sum of
    `batch_size_per_feature`]. With `total_num_blocks` a bucket holds that many blocks divided by `my_size`. With
    `block_bucketize_pos`, for each feature my_size + 1 ascending rows from 0, bucket b holds the rows from the b-th up
    to the next. `keep_orig_idx` (for all features, or by feature) leaves ids as they are. `sequence` asks for
    `unbucketize_permute`, `bucketize_pos` for `positions`. `device` is where the results but `lengths` live; for meta
    only their shapes are made, while `ids` must be real, since they decide the sizes.

    Raises:
        RuntimeError: arguments that do not fit each other, or ids on the meta device.
    """
    blocks = _blocks(block_sizes, my_size, total_num_blocks, block_bucketize_pos, keep_orig_idx)
    sizes = _ids_per_feature(lengths, ids, len(block_sizes), batch_size_per_feature)
    kernels = kernels_device if ids.is_cuda else kernels_host
    buckets, local = kernels.assign(ids, sizes, blocks, my_size)
    own = lengths.to(ids.device)
    new_lengths = kernels.count(buckets, own, my_size).to(device=lengths.device, dtype=lengths.dtype)
    device = device or ids.device
    if device.type == "meta":
        return _shapes(ids, weights, new_lengths, bucketize_pos, sequence)
    order = kernels.stable_order(buckets)
    positions = kernels.positions(own, ids) if bucketize_pos else None
    return Bucketized(
        lengths=new_lengths,
        values=local.index_select(0, order).to(device),
        weights=None if weights is None else weights.to(ids.device).index_select(0, order).to(device),
        positions=None if positions is None else positions.index_select(0, order).to(device),
        unbucketize_permute=_inverse(order, ids.dtype).to(device) if sequence else None,
    )


def bucketize_kernel(lengths: Tensor, ids: Tensor, my_size: int, weights: Tensor | None, *, positions: bool) -> Kernel:
    """What it costs: one pass over bags and ids to count, one to place them; both need prefix sums of lengths."""
    bags, width = lengths.numel() * lengths.element_size(), ids.numel() * ids.element_size()
    carried = 0 if weights is None else weights.numel() * weights.element_size()
    written = width + carried + (width if positions else 0)
    return Kernel(
        kind="bucketize",
        bytes_read=float(3 * bags + 2 * my_size * bags + 2 * width + carried),
        bytes_written=float(bags + 2 * my_size * bags + written),
        launches=4,
    )


def _blocks(
    block_sizes: Sequence[int],
    my_size: int,
    total_num_blocks: Sequence[int] | None,
    starts: Sequence[Sequence[int]] | None,
    keep: bool | Sequence[bool],
) -> list[Blocks]:
    keeps = [keep] * len(block_sizes) if isinstance(keep, bool) else list(keep)
    totals = [my_size] * len(block_sizes) if total_num_blocks is None else list(total_num_blocks)
    _check_count("total_num_blocks", totals, block_sizes)
    _check_count("keep_orig_idx", keeps, block_sizes)
    if starts is not None:
        _check_count("block_bucketize_pos", starts, block_sizes)
    made = []
    for feature, (size, total) in enumerate(zip(block_sizes, totals, strict=True)):
        if total % my_size:
            raise RuntimeError(
                f"block_bucketize: total_num_blocks[{feature}] = {total}, expected a multiple of my_size {my_size}"
            )
        bounds = None if starts is None else _checked_bounds(starts[feature], feature, my_size)
        limit = size * total if bounds is None else bounds[-1]
        rows = size * (total // my_size)
        made.append(Blocks(rows=rows, limit=limit, bounds=bounds, total=total, keep=keeps[feature]))
    return made


def _check_count(name: str, given: Sequence[object], block_sizes: Sequence[int]) -> None:
    if len(given) != len(block_sizes):
        raise RuntimeError(
            f"block_bucketize: {name} has {len(given)} items, expected one a feature: {len(block_sizes)}"
        )


def _checked_bounds(bounds: Sequence[int], feature: int, my_size: int) -> tuple[int, ...]:
    ascending = all(low <= high for low, high in itertools.pairwise(bounds))
    if len(bounds) != my_size + 1 or bounds[0] != 0 or not ascending:
        raise RuntimeError(
            f"block_bucketize: block_bucketize_pos[{feature}] = {list(bounds)},"
            f" expected {my_size + 1} ascending rows that start with 0"
        )
    return tuple(int(bound) for bound in bounds)


def _ids_per_feature(lengths: Tensor, ids: Tensor, features: int, batches: Sequence[int] | None) -> list[int]:
    if ids.is_meta:
        raise RuntimeError("block_bucketize: ids are on the meta device, but their values decide the sizes")
    if batches is None:
        if features == 0 or lengths.numel() % features:
            if lengths.numel():
                raise RuntimeError(f"block_bucketize: {lengths.numel()} lengths, expected a multiple of {features}")
            batches = []
        else:
            batches = [lengths.numel() // features] * features
    elif len(batches) != features or sum(batches) != lengths.numel():
        raise RuntimeError(
            f"block_bucketize: batch_size_per_feature {list(batches)},"
            f" expected {features} sizes that add up to {lengths.numel()}"
        )
    sizes = chunk_sums(lengths, batches)
    if sum(sizes) != ids.numel():
        raise RuntimeError(f"block_bucketize: lengths add up to {sum(sizes)}, expected the number of ids {ids.numel()}")
    return sizes


def _shapes(ids: Tensor, weights: Tensor | None, lengths: Tensor, positions: bool, sequence: bool) -> Bucketized:
    like = torch.empty_like(ids, device="meta")
    return Bucketized(
        lengths=lengths,
        values=like,
        weights=None if weights is None else torch.empty_like(weights, device="meta"),
        positions=torch.empty_like(like) if positions else None,
        unbucketize_permute=torch.empty_like(like) if sequence else None,
    )


def _inverse(order: Tensor, dtype: torch.dtype) -> Tensor:
    inverse = torch.empty(order.numel(), dtype=dtype, device=order.device)
    inverse[order] = torch.arange(order.numel(), dtype=dtype, device=order.device)
    return inverse
