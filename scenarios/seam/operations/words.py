"""Describes operators in words: torch's name of the operator, and its shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.operations.products import Product
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort

# An operator's name and its shapes.
Words = tuple[str, str]
# Bounds the cache: programs have far fewer distinct operators, unless their ids differ in each step.
_KEPT = 4096
_THOUSAND = 1000


@lru_cache(_KEPT)
def words(operation: Operation) -> Words:
    """Return torch's name of an operator, and its shapes in a few words."""
    return _WORDS[type(operation)](operation)


def _product(one: Product) -> Words:
    is_linear = one.batch == 1 and one.right_is_transposed and not one.left_is_transposed
    left = "^T" if one.left_is_transposed else ""
    right = "^T" if one.right_is_transposed and not is_linear else ""
    batch = f"{one.batch} of " if one.batch > 1 else ""
    shapes = f"{batch}{one.rows}x{one.inner}{left} x {one.columns}{right}, {one.dtype}"
    return "linear" if is_linear else "bmm" if one.batch > 1 else "mm", shapes


def _attention(one: Attention) -> Words:
    shapes = f"{one.batch}x{one.heads}x{one.queries}x{one.head_size}"
    shapes += f" on {one.key_heads}x{one.keys}" if (one.key_heads, one.keys) != (one.heads, one.queries) else ""
    shapes += f", {one.dtype}{', causal' if one.is_causal else ''}"
    shapes += "" if one.window is None else f", window {one.window}"
    return _back("scaled_dot_product_attention", one.is_backward), shapes


def _convolution(one: Convolution) -> Words:
    name = "convolution" if one.makes == "output" else f"convolution_backward, {one.makes.replace('_', ' ')}"
    given, weight = _by(one.batch, one.in_channels, *one.size), _by(one.out_channels, *one.kernel)
    shapes = f"{given} to {weight}"
    shapes += f", stride {_by(*one.stride)}" if any(step > 1 for step in one.stride) else ""
    shapes += f", {one.groups} groups" if one.groups > 1 else ""
    return name, f"{shapes}, {one.dtype}{', channels last' if one.is_channels_last else ''}"


def _pointwise(one: Pointwise) -> Words:
    read, written = (" and ".join(dict.fromkeys(each.dtype for each in all_)) for all_ in (one.inputs, one.outputs))
    dtypes = f"{read} to {written}" if read and written and read != written else read or written
    sizes = sorted({each.elements for each in one.inputs} - {one.elements}, reverse=True)
    broadcast = f" with {', '.join(map(str, sizes))}" if sizes else ""
    strided = f", {one.dims} dimensions" if one.dims > 1 else ""
    return one.name, f"{one.elements}{broadcast}, {dtypes}{strided}"


def _reduction(one: Reduction) -> Words:
    return one.name, f"{one.outer}x{one.reduced}x{one.inner} over {one.reduced}, {one.dtype}"


def _qr(one: Qr) -> Words:
    return "linalg_qr", f"{f'{one.batch} of ' if one.batch > 1 else ''}{one.rows}x{one.columns}"


def _pool(one: Pool) -> Words:
    name = "max_pool2d" if one.with_indices else "avg_pool2d"
    return _back(name, one.backward), f"{one.inputs} to {one.outputs} by windows of {one.window}, {one.dtype}"


def _softmax(one: Softmax) -> Words:
    name = "_log_softmax" if one.is_log else "_softmax"
    return f"{name}_backward_data" if one.backward else name, f"{one.rows}x{one.dim}, {one.dtype}"


def _row_norm(one: RowNorm) -> Words:
    return f"row norm{' backward' if one.backward else ''}", f"{one.rows}x{one.dim}, {one.dtype}"


def _batch_norm(one: BatchNorm) -> Words:
    shapes = f"{one.elements} in {one.channels} channels, {one.dtype}"
    return _back("native_batch_norm", one.backward), shapes


def _nll_loss(one: NllLoss) -> Words:
    return f"nll_loss_{'backward' if one.backward else 'forward'}", f"{one.rows}x{one.classes}, {one.dtype}"


def _gather(one: Gather) -> Words:
    return "gather of rows", f"{one.rows}x{one.dim}, {one.dtype}"


def _index(one: Index) -> Words:
    source = f" of {one.source_elements}" if one.source_elements else ""
    return "index", f"{one.elements}{source}, {one.dtype}"


def _index_put(one: IndexPut) -> Words:
    shapes = f"{one.slices}x{one.count}x{one.inner} into {one.target_elements}, {one.dtype}"
    return "index_put_, accumulating", shapes


def _embedding_backward(one: EmbeddingBackward) -> Words:
    return "embedding_dense_backward", f"{one.ids}x{one.dim} into {one.table_rows} rows, {one.dtype}"


def _cat(one: Cat) -> Words:
    return "cat", f"{one.elements} of {one.inputs} tensors, {one.dtype}"


def _host_copy(one: HostCopy) -> Words:
    pinned = "" if one.pinned else ", not pinned"
    return f"copy {'from' if one.to_gpu else 'to'} the host", f"{one.size_bytes} bytes{pinned}"


def _one_rank(one: OneRankCollective) -> Words:
    return "collective of one rank", f"{one.size_bytes} bytes{', in place' if one.in_place else ''}"


def _foreach(one: Foreach) -> Words:
    return one.name, f"{sum(one.numels)} in {len(one.numels)} tensors, {one.dtype}"


def _sort(one: Sort) -> Words:
    return "sort", f"{one.rows}x{one.elements} keys of {one.key_bytes} bytes"


def _scan(one: Scan) -> Words:
    return "cumsum", f"{one.elements} of {one.element_bytes} bytes"


def _permute(one: PermuteSparse) -> Words:
    return "permute_2D_sparse_data", f"{_about(one.ids)} ids in {one.bags} bags"


def _bucketize(one: BucketizeSparse) -> Words:
    return "block_bucketize_sparse_features", f"{_about(one.ids)} ids in {one.bags} bags to {one.buckets}"


def _describe_pooled(one: PermutePooled) -> Words:
    return "permute_pooled_embs", f"{one.size_bytes} bytes"


def _bags(one: Bags) -> str:
    tables = f"{one.tables} table{'' if one.tables == 1 else 's'} of {one.rows}x{one.dim}"
    ids = f"{_about(one.ids)} ids{f' in {one.bags} bags each' if one.pooled else ' as sequences'}"
    return f"{tables}, {ids}, {one.weight_dtype}{', weighted' if one.weighted else ''}"


def _look_up(one: BagsForward) -> Words:
    return "table-batched embeddings", _bags(one.bags)


def _update(one: BagsBackward) -> Words:
    return f"table-batched embeddings backward, {one.optimizer}", _bags(one.bags)


def _scatter_add(one: ScatterAdd) -> Words:
    return "scatter_add", f"{one.elements} into {one.target_elements}, {one.dtype}"


def _about(ids: int) -> str:
    """Return a number to two digits: ids that are drawn differ a little from step to step, which is no other shape."""
    if ids < _THOUSAND:
        return str(ids)
    factor, unit = (_THOUSAND**2, "M") if ids >= _THOUSAND**2 else (_THOUSAND, "k")
    return f"{float(f'{ids / factor:.2g}'):g}{unit}"


def _by(*extents: int) -> str:
    return "x".join(map(str, extents))


def _back(name: str, is_backward: bool) -> str:
    return f"{name}_backward" if is_backward else name


_WORDS: dict[type, Callable[[Any], Words]] = {
    Product: _product,
    Attention: _attention,
    Convolution: _convolution,
    Pointwise: _pointwise,
    Reduction: _reduction,
    Qr: _qr,
    Pool: _pool,
    Softmax: _softmax,
    RowNorm: _row_norm,
    BatchNorm: _batch_norm,
    NllLoss: _nll_loss,
    Gather: _gather,
    Index: _index,
    IndexPut: _index_put,
    EmbeddingBackward: _embedding_backward,
    ScatterAdd: _scatter_add,
    Cat: _cat,
    HostCopy: _host_copy,
    OneRankCollective: _one_rank,
    Foreach: _foreach,
    Sort: _sort,
    Scan: _scan,
    PermuteSparse: _permute,
    BucketizeSparse: _bucketize,
    PermutePooled: _describe_pooled,
    BagsForward: _look_up,
    BagsBackward: _update,
}
