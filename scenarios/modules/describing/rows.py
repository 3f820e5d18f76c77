"""Describes calls that read or write by index, and fbgemm's operators on jagged tensors."""

from __future__ import annotations

import math

from torch import Tensor

from scenarios.modules.describing.call import Operations, OperatorCall
from scenarios.seam.arguments import dtype_name
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan


def embedding(call: OperatorCall) -> Operations:
    """Return the row lookup of `embedding`, `_embedding_bag` or `index_select`; of elements for selected columns."""
    weight = call.read[0]
    ids = call.get("indices", call.get("index"))
    if call.name == "index_select" and call["dim"] % max(weight.dim(), 1):
        result = call.results[0].numel()
        return Index(elements=result, dtype=dtype_name(weight), source_elements=weight.numel())
    dim = weight.numel() // max(weight.shape[0], 1) if weight.dim() else 1
    return Gather(rows=ids.numel(), dim=dim, dtype=dtype_name(weight))


def embedding_backward(call: OperatorCall) -> Operations:
    """Return the sum of gradients into a table of zeros."""
    gradient, ids = call.read[0], call["indices"]
    return EmbeddingBackward(
        ids=ids.numel(), dim=gradient.shape[-1], dtype=dtype_name(gradient), table_rows=call.results[0].shape[0]
    )


def index(call: OperatorCall) -> Operations:
    """Return the elements of `index`, `gather` or `take`; whole rows for one index of the first dimension."""
    operand, result = call.read[0], call.results[0]
    places = _indices(call)
    if call.name in ("index", "_unsafe_index") and len(places) == 1 and operand.dim() > 1 and _first_is_indexed(call):
        return Gather(rows=places[0].numel(), dim=result.numel() // max(places[0].numel(), 1), dtype=dtype_name(result))
    return Index(
        elements=result.numel(), dtype=dtype_name(result), indices=max(len(places), 1), source_elements=operand.numel()
    )


def index_put(call: OperatorCall) -> Operations:
    """Return the sorted sums of an accumulating `index_put`, or the writes of a plain one."""
    target, values = call["self"], call["values"]
    places = _indices(call)
    if not call.get("accumulate", False):
        return Index(elements=values.numel(), dtype=dtype_name(values), indices=max(len(places), 1))
    listed = call["indices"]
    leading = next((place for place, each in enumerate(listed) if each is not None), 0)
    indexed = sum(each is not None for each in listed)
    slices = math.prod(target.shape[:leading])
    inner = math.prod(target.shape[leading + indexed :])
    count = max((each.numel() for each in places), default=1)
    return IndexPut(
        slices=slices,
        count=count,
        inner=inner,
        dtype=dtype_name(values),
        target_elements=target.numel(),
        is_contiguous=slices == 1,
    )


def scatter(call: OperatorCall) -> Operations:
    """Return the additions of `index_add`, `scatter_add` and `scatter_reduce`, or the writes of `scatter`."""
    target = call["self"]
    source = call.get("src", call.get("source"))
    ids = call["index"]
    elements = source.numel() if isinstance(source, Tensor) else ids.numel()
    dtype = dtype_name(target)
    if "add" in call.name or "reduce" in call.name:
        return ScatterAdd(elements=elements, dtype=dtype, target_elements=target.numel())
    return Index(elements=elements, dtype=dtype, source_elements=target.numel())


def masked_select(call: OperatorCall) -> Operations:
    """Return the copy of the selected elements."""
    return contiguous("copy_", call.results[0].numel(), dtype_name(call.results[0]))


def permute_sparse(call: OperatorCall) -> Operations:
    """Return fbgemm's permutation of lengths and ids."""
    lengths, values = call["lengths"], call["values"] if call.get("values") is not None else call["indices"]
    weights = call.get("weights")
    each = values.element_size() + (0 if weights is None else weights.element_size())
    return PermuteSparse(bags=lengths.numel(), ids=values.numel(), id_bytes=each)


def bucketize_sparse(call: OperatorCall) -> Operations:
    """Return fbgemm's division of ids into blocks of rows."""
    lengths, ids, weights = call["lengths"], call["indices"], call.get("weights")
    each = ids.element_size() + (0 if weights is None else weights.element_size())
    return BucketizeSparse(bags=lengths.numel(), ids=ids.numel(), buckets=int(call["my_size"]), id_bytes=each)


def cumsum(call: OperatorCall) -> Operations:
    """Return fbgemm's sum of lengths into offsets."""
    operand = call.read[0]
    return Scan(elements=operand.numel(), element_bytes=operand.element_size())


def permute_pooled(call: OperatorCall) -> Operations:
    """Return fbgemm's permutation of pooled embeddings."""
    result = call.results[0]
    return PermutePooled(size_bytes=result.numel() * result.element_size())


def _indices(call: OperatorCall) -> list[Tensor]:
    listed = call.get("indices", call.get("index"))
    return [listed] if isinstance(listed, Tensor) else [each for each in listed or () if each is not None]


def _first_is_indexed(call: OperatorCall) -> bool:
    return call["indices"][0] is not None
