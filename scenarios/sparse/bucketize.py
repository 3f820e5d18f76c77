"""Sorts ids into buckets by the row-wise shard that owns them.

Results equal those of `fbgemm.block_bucketize_sparse_features` of fbgemm-gpu 1.8.0 on CPU, with the order inside a bag
kept on all devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.sorting import BucketizeSparse
from scenarios.sparse.blocks import Blocks, Bucketized


def block_bucketize(
    lengths: Tensor,
    ids: Tensor,
    block_sizes: Sequence[int] | Tensor,
    my_size: int,
    *,
    weights: Tensor | None = None,
    bucketize_pos: bool = False,
    sequence: bool = False,
    batch_size_per_feature: Sequence[int] | Tensor | None = None,
    block_bucketize_pos: Sequence[Sequence[int] | Tensor] | None = None,
    keep_orig_idx: bool | Sequence[bool] = False,
    total_num_blocks: Sequence[int] | Tensor | None = None,
    device: torch.device | None = None,
    is_checked: bool = False,
) -> Bucketized:
    """Cut every bag into `my_size` buckets by the block of rows of its ids.

    An id, read as unsigned, goes to bucket `id // block` as `id % block`; past the last block, to bucket `id % my_size`
    as `id // my_size`. Lengths and ids that do not fit each other, and ids on the meta device, are a RuntimeError; with
    lengths on the meta device, too, the result has shapes only.

    Args:
        lengths: [features * batch], feature-major, or [sum of `batch_size_per_feature`].
        ids: [sum of lengths]; must be real, because they decide sizes.
        block_sizes: rows of a block, by feature.
        bucketize_pos, sequence: also return `positions`, or `unbucketize_permute`, of the dtype of `ids`.
        block_bucketize_pos: for each feature, my_size + 1 ascending rows from 0; bucket b holds rows from the b-th on.
        keep_orig_idx: whether ids are unchanged, for all features or by feature.
        total_num_blocks: a multiple of `my_size`; each bucket holds its share of the blocks, and an id past the last
            goes to the bucket of block `id % total_num_blocks` as `id // total_num_blocks`.
        device: of all results but `lengths`; with meta only their shapes are made.
        is_checked: lengths are known to match the ids; checking them would make the host wait for their device.
    """
    if ids.is_meta and lengths.is_meta:
        return _shapes(ids, weights, lengths.new_empty(my_size * lengths.numel()), bucketize_pos, sequence)
    cuts: Any = {"total_num_blocks": total_num_blocks, "block_bucketize_pos": block_bucketize_pos}
    blocks = Blocks.of(block_sizes, my_size, keep_orig_idx=keep_orig_idx, **cuts)
    _check(lengths, ids, weights, has_lengths=not is_checked)
    batches = _batches(lengths.numel(), blocks.features, batch_size_per_feature)
    kernels = _kernels(ids.device)
    # Lengths go to the ids' device and the new ones back to their own, where the host can read them.
    own, device = lengths.to(ids.device), device or ids.device
    if device.type == "meta":
        counted = kernels.count(ids, own, batches, blocks)
        return _shapes(ids, weights, counted.to(lengths.device), bucketize_pos, sequence)
    carried = None if weights is None else weights.to(ids.device)
    made: Any = {"weights": carried, "positions": bucketize_pos, "sequence": sequence}
    done: Bucketized = kernels.bucketize(ids, own, batches, blocks, **made)
    return done.to(device, lengths.device)


def bucketize_kernel(
    lengths: Tensor,
    ids: Tensor,
    my_size: int,
    weights: Tensor | None,
    *,
    positions: bool,
    sequence: bool = False,
    is_checked: bool = False,
) -> Kernel:
    """Return the kernel of bucketizing: one pass over bags and ids to count and one to place, both with prefix sums.

    Torch reads the lengths twice on the host unless `is_checked`; compiled functions assign ids and place each tensor.
    """
    bags, width = lengths.numel() * lengths.element_size(), ids.numel() * ids.element_size()
    carried = 0 if weights is None else weights.numel() * weights.element_size()
    written = width + carried + (width if positions else 0) + (width if sequence else 0)
    return Kernel(
        kind="bucketize",
        bytes_read=float(3 * bags + 2 * my_size * bags + 2 * width + carried),
        bytes_written=float(bags + 2 * my_size * bags + written),
        launches=(2 if is_checked else 4) + (weights is not None) + positions + sequence,
        operations=(_bucketize(lengths, ids, my_size, carried),) if ids.numel() else (),
    )


def _bucketize(lengths: Tensor, ids: Tensor, my_size: int, weights_bytes: int) -> BucketizeSparse:
    id_bytes = ids.element_size() + weights_bytes // ids.numel()
    return BucketizeSparse(bags=lengths.numel(), ids=ids.numel(), buckets=my_size, id_bytes=id_bytes)


def _kernels(device: torch.device) -> ModuleType:
    """Return the kernels for a device, imported on first use because numba loads slowly."""
    if device.type == "cuda":
        from scenarios.sparse import kernels_device  # noqa: PLC0415

        return kernels_device
    from scenarios.sparse import kernels_host  # noqa: PLC0415

    return kernels_host


def _check(lengths: Tensor, ids: Tensor, weights: Tensor | None, *, has_lengths: bool) -> None:
    """Raise a RuntimeError for tensors that do not fit each other; the values of lengths count if `has_lengths`."""
    if ids.is_meta:
        raise RuntimeError("block_bucketize: ids are on the meta device, but their values decide the sizes")
    for name, tensor in (("ids", ids), ("lengths", lengths)):
        if tensor.dtype not in (torch.int32, torch.int64):
            raise RuntimeError(f"block_bucketize: {name} are {tensor.dtype}, expected torch.int32 or torch.int64")
    if weights is not None and weights.shape != ids.shape:
        raise RuntimeError(f"block_bucketize: weights of shape {[*weights.shape]}, expected that of ids {[*ids.shape]}")
    if has_lengths:
        _check_lengths(lengths, ids)


def _check_lengths(lengths: Tensor, ids: Tensor) -> None:
    if lengths.numel() and (shortest := int(lengths.min())) < 0:
        raise RuntimeError(f"block_bucketize: a length is {shortest}, expected at least 0")
    total = int(lengths.sum())
    if total != ids.numel():
        raise RuntimeError(f"block_bucketize: lengths add up to {total}, expected the number of ids {ids.numel()}")


def _batches(bags: int, features: int, given: Sequence[int] | Tensor | None) -> list[int]:
    """Return the number of bags of each feature."""
    if given is None:
        if bags % max(features, 1) or (bags and not features):
            raise RuntimeError(f"block_bucketize: {bags} lengths, expected a multiple of {features}")
        return [bags // max(features, 1)] * features
    batches = [int(size) for size in given]
    if len(batches) != features or sum(batches) != bags or min(batches, default=0) < 0:
        raise RuntimeError(
            f"block_bucketize: batch_size_per_feature {batches}, expected {features} sizes that add up to {bags}"
        )
    return batches


def _shapes(ids: Tensor, weights: Tensor | None, lengths: Tensor, positions: bool, sequence: bool) -> Bucketized:
    like = torch.empty_like(ids, device="meta")
    return Bucketized(
        lengths=lengths,
        values=like,
        weights=None if weights is None else torch.empty_like(weights, device="meta"),
        positions=torch.empty_like(like) if positions else None,
        unbucketize_permute=torch.empty_like(like) if sequence else None,
    )
