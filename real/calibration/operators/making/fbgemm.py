"""Creates fbgemm's operators from their descriptions, where fbgemm_gpu is installed: jagged tensors and embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from real.calibration.operators.making.arena import Arena, CannotMakeError, Made, torch_dtype
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse

_NOT_INSTALLED = "fbgemm_gpu is not installed"
# Numbers of tables to try for a call whose description counts bags of all tables together.
_TABLES = (26, 8, 16, 4, 2, 1)
_WIDTH = 128
# fbgemm's names of optimizers, where they are not the descriptions' names in upper case.
_OPTIMIZERS = {"sgd": "EXACT_SGD", "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD", "adagrad": "EXACT_ADAGRAD"}


@cache
def is_installed() -> bool:
    """Return whether fbgemm_gpu can be imported, so that its operators are registered."""
    try:
        import fbgemm_gpu  # noqa: F401, PLC0415
    except (ImportError, OSError, RuntimeError, AttributeError):  # built for another torch
        return False
    return True


def _check_installed() -> None:
    if not is_installed():
        raise CannotMakeError(_NOT_INSTALLED)


def permute_sparse(one: PermuteSparse, arena: Arena) -> Made:
    """Return `permute_2D_sparse_data` of lengths and ids, in reversed order of tables.

    Raises:
        CannotMakeError: fbgemm_gpu is missing, or ids and weights have no such size.
    """
    _check_installed()
    tables = next(tables for tables in _TABLES if one.bags % tables == 0)
    order = torch.arange(tables - 1, -1, -1, dtype=torch.int32, device=arena.device)
    lengths = _lengths(one.ids, one.bags, arena).view(tables, -1)
    ids, weights = _ids(one.ids, one.id_bytes, arena)
    arena.result(one.ids, ids.dtype)
    function = torch.ops.fbgemm.permute_2D_sparse_data
    return Made(lambda: function(order, lengths, ids, weights, one.ids))


def bucketize_sparse(one: BucketizeSparse, arena: Arena) -> Made:
    """Return a call of `block_bucketize_sparse_features`.

    Raises:
        CannotMakeError: fbgemm_gpu is missing, or ids and weights have no such size.
    """
    _check_installed()
    tables = next(tables for tables in _TABLES if one.bags % tables == 0)
    lengths = _lengths(one.ids, one.bags, arena)
    ids, weights = _ids(one.ids, one.id_bytes, arena)
    rows = max(one.buckets, 1 << 20)
    ids.copy_(arena.ids(one.ids, rows, dtype=ids.dtype))
    blocks = torch.full((tables,), -(-rows // one.buckets), dtype=ids.dtype, device=arena.device)
    arena.result(one.ids, ids.dtype)
    function = torch.ops.fbgemm.block_bucketize_sparse_features
    return Made(lambda: function(lengths, ids, False, False, blocks, one.buckets, weights))


def permute_pooled(one: PermutePooled, arena: Arena) -> Made:
    """Return `permute_pooled_embs` of float32 embeddings of 128 elements, in reversed order of tables.

    Raises:
        CannotMakeError: fbgemm_gpu is missing, or the bytes are no embeddings.
    """
    _check_installed()
    elements = one.size_bytes // 4
    tables = next((tables for tables in _TABLES if elements % (tables * _WIDTH) == 0), 0)
    width = _WIDTH if tables else elements
    tables = tables or 1
    given = arena.tensor((elements // (tables * width), tables * width), torch.float32)
    arena.result(elements, torch.float32)
    starts = torch.arange(0, (tables + 1) * width, width, device=arena.device)
    order = torch.arange(tables - 1, -1, -1, device=arena.device)
    function = torch.ops.fbgemm.permute_pooled_embs
    return Made(lambda: function(given, starts, order, starts, order))


def look_up(one: BagsForward, arena: Arena) -> Made:
    """Return a lookup of table-batched embeddings.

    Raises:
        CannotMakeError: fbgemm_gpu is missing, or has no such tables.
    """
    module = _module(one.bags, "sgd", arena, checks_bounds=one.checks_bounds)
    ids, offsets, weights = _bags(one.bags, arena)
    _check_result(one.bags, arena)

    def run() -> object:
        with torch.no_grad():
            return module(ids, offsets, weights)

    return Made(run)


def update(one: BagsBackward, arena: Arena) -> Made:
    """Return the backward pass of table-batched embeddings with the update of rows, by autograd, fbgemm's only way.

    Raises:
        CannotMakeError: fbgemm_gpu is missing, or has no such tables or optimizer.
    """
    module = _module(one.bags, one.optimizer, arena)
    ids, offsets, weights = _bags(one.bags, arena)
    _check_result(one.bags, arena)
    with torch.enable_grad():
        output = module(ids, offsets, weights)
    gradient = arena.tensor(tuple(output.shape), output.dtype)
    return Made(lambda: output.backward(gradient, retain_graph=True))


def _check_result(bags: Bags, arena: Arena) -> None:
    rows = bags.tables * bags.bags if bags.pooled else bags.ids
    arena.result(rows * bags.dim, torch_dtype(bags.output_dtype))


def _module(bags: Bags, optimizer: str, arena: Arena, *, checks_bounds: bool = True) -> Callable[..., Any]:
    _check_installed()
    arena.tables(bags.tables * bags.rows * bags.dim * torch_dtype(bags.weight_dtype).itemsize)
    dtypes = bags.weight_dtype, bags.output_dtype
    key = (bags.tables, bags.rows, bags.dim, *dtypes, bags.pooled, optimizer, checks_bounds, arena.device)
    if not _kept or _kept[0][0] != key:
        _kept.clear()  # frees the old tables before new ones are allocated
        _kept.append((key, _tables(bags, optimizer, arena.device, checks_bounds)))
    return _kept[0][1]


def forget() -> None:
    """Free the memory of the last tables."""
    _kept.clear()


# The last module: families need the same tables again and again.
_kept: list[tuple[tuple[object, ...], Callable[..., Any]]] = []


def _tables(bags: Bags, optimizer: str, device: torch.device, checks_bounds: bool) -> Callable[..., Any]:
    from fbgemm_gpu.split_embedding_configs import (  # noqa: PLC0415
        EmbOptimType,
        SparseType,
    )
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import (  # noqa: PLC0415
        BoundsCheckMode,
        EmbeddingLocation,
        PoolingMode,
    )
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (  # noqa: PLC0415
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    named = _OPTIMIZERS.get(optimizer, optimizer.upper())
    if not hasattr(EmbOptimType, named):
        raise CannotMakeError(f"fbgemm_gpu has no optimizer '{optimizer}'")
    is_gpu = device.type == "cuda"
    location = EmbeddingLocation.DEVICE if is_gpu else EmbeddingLocation.HOST
    return SplitTableBatchedEmbeddingBagsCodegen(  # type: ignore[no-any-return, unused-ignore]
        [(bags.rows, bags.dim, location, ComputeDevice.CUDA if is_gpu else ComputeDevice.CPU)] * bags.tables,
        optimizer=getattr(EmbOptimType, named),
        weights_precision=SparseType.from_dtype(torch_dtype(bags.weight_dtype)),
        output_dtype=SparseType.from_dtype(torch_dtype(bags.output_dtype)),
        pooling_mode=PoolingMode.SUM if bags.pooled else PoolingMode.NONE,
        bounds_check_mode=BoundsCheckMode.WARNING if checks_bounds else BoundsCheckMode.NONE,
        device=device,
    )


def _bags(bags: Bags, arena: Arena) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return ids, offsets and weights with each table's described number of unique ids and of repeats of its first id.

    Ids are drawn uniformly if their number of unique ids is that of uniform ids; else each row comes once before one
    repeats.
    """
    each, unique = bags.ids // bags.tables, max(1, bags.unique // bags.tables)
    drawn = bags.rows * -math.expm1(each * math.log1p(-1 / bags.rows)) if bags.rows > 1 else 1.0
    is_uniform = abs(drawn / unique - 1) < _UNIFORM
    ids = arena.ids(bags.ids, bags.rows, unique=0 if is_uniform else min(unique, bags.rows))
    if bags.long_runs and not is_uniform and arena.device.type != "meta":
        often = min(bags.longest, each)
        ids[: each * bags.tables].view(bags.tables, each)[:, :often] = 0
    counts = _lengths(bags.ids, bags.tables * bags.bags, arena)
    offsets = torch.zeros(counts.numel() + 1, dtype=torch.int64, device=arena.device)
    torch.cumsum(counts, 0, out=offsets[1:])
    weights = arena.tensor((bags.ids,), torch.float32) if bags.weighted else None
    return ids, offsets, weights


# Largest relative difference between the number of unique ids and that of uniform ids.
_UNIFORM = 0.03


def _lengths(ids: int, bags: int, arena: Arena) -> Tensor:
    """Return the number of ids of each bag, as even as possible."""
    lengths = torch.full((bags,), ids // bags, dtype=torch.int64, device=arena.device)
    lengths[: ids % bags] += 1
    return lengths


def _ids(count: int, id_bytes: int, arena: Arena) -> tuple[Tensor, Tensor | None]:
    """Return `count` ids of 4 or 8 bytes, and float32 weights if `id_bytes` is 12, else None."""
    if id_bytes not in (4, 8, 12):
        raise CannotMakeError(f"ids and weights of {id_bytes} bytes")
    ids = arena.tensor((count,), torch.int32 if id_bytes == 4 else torch.int64, is_changed=True)
    return ids, arena.tensor((count,), torch.float32) if id_bytes == 12 else None
