"""Describes calls of fbgemm's operators from a profiler's trace, without fbgemm.

A lookup consists of the bounds check before it, if there is one, and the kernel that gathers and pools; a backward pass
consists of all kernels that sort ids and update rows, as in `sim.operators.bags`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from scenarios.kernel_tables.arguments import DTYPES, TracedArgument
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan

CHECK = "fbgemm::bounds_check_indices"
_FORWARD = re.compile(r"fbgemm::split_embedding_(?P<nobag>nobag_)?codegen_forward_(?P<kind>\w+)_cuda$")
_BACKWARD = re.compile(
    r"fbgemm::split_embedding_(?P<nobag>nobag_)?backward_codegen_(?P<optimizer>\w+?)_(?P<kind>(?:un)?weighted)\w*_cuda$"
)
# Numbers of SparseType in fbgemm_gpu's split_embedding_configs.py.
_OUTPUTS = {0: "float32", 1: "float16", 5: "bfloat16"}
_INTEGERS = frozenset({"int", "long", "long int"})
_SCANS = frozenset(f"fbgemm::asynchronous_{kind}_cumsum" for kind in ("complete", "inclusive", "exclusive"))
_PERMUTES = frozenset({"fbgemm::permute_2D_sparse_data", "fbgemm::permute_1D_sparse_data"})
_POOLED = frozenset({"fbgemm::permute_pooled_embs", "fbgemm::permute_pooled_embs_auto_grad"})
_BUCKETIZES = "fbgemm::block_bucketize_sparse_features"


def describe_call(name: str, given: Sequence[TracedArgument]) -> tuple[Operation, ...]:
    """Return the description of an fbgemm operator; empty if it is unknown or consists of other operators."""
    if match := _FORWARD.match(name):
        bags = _bags(given, 0, is_pooled=not match["nobag"], is_weighted=match["kind"].startswith("weighted"))
        return () if bags is None else (BagsForward(bags=bags, checks_bounds=False),)
    if match := _BACKWARD.match(name):
        bags = _bags(given, 1, is_pooled=not match["nobag"], is_weighted=match["kind"] == "weighted")
        return () if bags is None else (BagsBackward(bags=bags, optimizer=match["optimizer"]),)
    return _of_ids(name, given)


def with_bounds_check(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Return lookups with the bounds check before them."""
    return tuple(replace(one, checks_bounds=True) if isinstance(one, BagsForward) else one for one in operations)


def _of_ids(name: str, given: Sequence[TracedArgument]) -> tuple[Operation, ...]:
    """Return the description of an operator on a KeyedJaggedTensor, whose arguments are lengths, ids and weights."""
    sizes = [_size(each) for each in given]
    if name in _SCANS:
        return (Scan(elements=_numel(given[0]), element_bytes=sizes[0]),)
    if name in _PERMUTES:
        _, lengths, ids, *more = given
        weights = _size(more[0]) if more and more[0].is_tensor else 0
        return (PermuteSparse(bags=_numel(lengths), ids=_numel(ids), id_bytes=_size(ids) + weights),)
    if name == _BUCKETIZES:
        lengths, ids, *more = given
        buckets, weights = int(more[3].value or 1), sum(sizes[6:7])
        return (BucketizeSparse(bags=_numel(lengths), ids=_numel(ids), buckets=buckets, id_bytes=_size(ids) + weights),)
    return (PermutePooled(size_bytes=_numel(given[0]) * sizes[0]),) if name in _POOLED else ()


def _bags(given: Sequence[TracedArgument], weights_at: int, *, is_pooled: bool, is_weighted: bool) -> Bags | None:
    """Return the bags of a pass; None if the arguments have another order, or rows are not in the GPU's memory.

    A trace does not say how many rows the ids name, nor how often: those numbers are 0.
    """
    weights = given[weights_at]
    at_features = next((at for at, each in enumerate(given) if at > weights_at and _is_integers(each)), None)
    if at_features is None or not _numel(weights):
        return None
    features = _numel(given[at_features])
    ids_at = [at for at in range(at_features + 2, len(given) - 1) if _are_ids(given[at], given[at + 1], features)]
    if not ids_at:
        return None
    ids, offsets = given[ids_at[-1]], given[ids_at[-1] + 1]
    dims = _dims(given, weights_at, at_features, is_pooled=is_pooled)
    if not dims:
        return None
    total = dims if is_pooled else dims * features
    return Bags(
        tables=features,
        rows=max(1, _numel(weights) // total),
        dim=max(1, round(total / features)),
        bags=(_numel(offsets) - 1) // features,
        ids=_numel(ids),
        unique=0,
        long_runs=0,
        longest=0,
        weight_dtype=_dtype(weights),
        output_dtype=_dtype(given[0]) if weights_at else _OUTPUTS.get(_numbers(given)[-1], "float32"),
        pooled=is_pooled,
        weighted=is_weighted,
    )


def _dims(given: Sequence[TracedArgument], weights_at: int, at_features: int, *, is_pooled: bool) -> int:
    """Return the columns of all tables together, or of one table where there are no bags."""
    if weights_at:  # the gradient comes first, and has these columns
        return int(given[0].dims[-1])
    return next(iter(_numbers(given[at_features:])), 0)


def _numbers(given: Sequence[TracedArgument]) -> list[int]:
    return [int(each.value) for each in given if each.value.isdigit()]


def _are_ids(ids: TracedArgument, offsets: TracedArgument, features: int) -> bool:
    count = _numel(offsets) - 1
    return _is_integers(ids) and _is_integers(offsets) and count > 0 and count % features == 0


def _is_integers(given: TracedArgument) -> bool:
    return given.type in _INTEGERS and len(given.dims) == 1


def _numel(given: TracedArgument) -> int:
    elements = 1
    for extent in given.dims:
        elements *= extent
    return elements if given.is_tensor else 0


def _size(given: TracedArgument) -> int:
    return DTYPES[given.type].itemsize if given.is_tensor else 0


def _dtype(given: TracedArgument) -> str:
    return str(DTYPES[given.type]).removeprefix("torch.")
