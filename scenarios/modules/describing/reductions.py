"""Describes calls of reductions, normalisations, sorts and scans."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from scenarios.modules.describing.call import Call, dtype_of
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.sorting import Scan, Sort


def reduction(call: Call) -> tuple[Operation, ...]:
    """Return a sum, mean, maximum and the like over some dimensions, with its layout in memory."""
    given = call.read[0]
    dims = call.get("dim", call.get("dims"))
    chosen = range(given.dim()) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return (_reduced(call.name, given, chosen),)


def _reduced(name: str, given: Tensor, dims: Sequence[int]) -> Reduction:
    """Return a reduction over the dimensions between those outside and those inside of it in memory."""
    of = {dim % given.dim() for dim in dims} if given.dim() else set()  # torch takes dim 0 of a single number
    axes = sorted(range(given.dim()), key=given.stride, reverse=True)
    places = [place for place, axis in enumerate(axes) if axis in of and given.shape[axis] > 1]
    reduced = math.prod(given.shape[axis] for axis in of)
    last = places[-1] if places else len(axes) - 1
    inner = math.prod(given.shape[axis] for axis in axes[last + 1 :])
    outer = given.numel() // max(reduced * inner, 1)
    return Reduction(
        name=name, dtype=dtype_of(given), outer=max(outer, 1), reduced=max(reduced, 1), inner=max(inner, 1)
    )


def softmax(call: Call) -> tuple[Operation, ...]:
    """Return the softmax over the last dimension, or its backward; over another dimension a reduction and an
    elementwise pass.
    """
    is_backward = "backward" in call.name
    given = call["grad_output"] if is_backward else call["self"]
    dim = int(call["dim"]) % max(given.dim(), 1)
    if dim != given.dim() - 1:
        extent = given.shape[dim] if given.dim() else 1
        inner = math.prod(given.shape[dim + 1 :])
        outer = given.numel() // max(extent * inner, 1)
        one = Reduction(name="sum", dtype=dtype_of(given), outer=outer, reduced=extent, inner=inner)
        return one, contiguous("softmax", given.numel(), dtype_of(given), inputs=2 if is_backward else 1)
    row = given.shape[-1] if given.dim() else 1
    return (
        Softmax(
            rows=given.numel() // max(row, 1),
            dim=row,
            dtype=dtype_of(given),
            is_log="log" in call.name,
            backward=is_backward,
        ),
    )


def row_norm(call: Call) -> tuple[Operation, ...]:
    """Return the layer norm or RMS norm, or its backward."""
    is_backward = "backward" in call.name
    given = call["input"]
    dim = math.prod(call["normalized_shape"])
    weights = sum(call.get(name) is not None for name in ("weight", "bias"))
    return (
        RowNorm(
            rows=given.numel() // max(dim, 1), dim=dim, dtype=dtype_of(given), backward=is_backward, weights=weights
        ),
    )


def batch_norm(call: Call) -> tuple[Operation, ...]:
    """Return the batch norm or its backward."""
    given = call.get("input")
    if given is None:
        given = call.read[0]
    is_training = call.get("training", call.get("train", True))
    return (
        BatchNorm(
            elements=given.numel(),
            channels=given.shape[1] if given.dim() > 1 else 1,
            dtype=dtype_of(given),
            backward="backward" in call.name,
            training=bool(is_training),
        ),
    )


def nll_loss(call: Call) -> tuple[Operation, ...]:
    """Return the loss behind a log-softmax, or its backward."""
    given = call["self"]
    classes = given.shape[1] if given.dim() > 1 else given.numel()
    rows = given.numel() // max(classes, 1)
    return (NllLoss(rows=rows, classes=classes, dtype=dtype_of(given), backward="backward" in call.name),)


def sort(call: Call) -> tuple[Operation, ...]:
    """Return the sort along a dimension."""
    given = call["self"]
    dim = int(call.get("dim", -1))
    extent = given.shape[dim] if given.dim() else 1
    size = given.element_size()
    rows = given.numel() // max(extent, 1)
    return (Sort(elements=extent, rows=max(rows, 1), key_bytes=size, bits=8 * size),)


def scan(call: Call) -> tuple[Operation, ...]:
    """Return the scan of `cumsum` and the like, over all elements."""
    given = call["self"]
    return (Scan(elements=given.numel(), element_bytes=given.element_size()),)


def qr(call: Call) -> tuple[Operation, ...]:
    """Return the QR decompositions of `linalg_qr`."""
    given = call.read[0]
    rows, columns = given.shape[-2:]
    return (Qr(rows=rows, columns=columns, batch=given.numel() // max(rows * columns, 1)),)


def pool(call: Call) -> tuple[Operation, ...]:
    """Return the pooling of an image's windows, or its backward; an adaptive one has windows side by side."""
    is_backward = "backward" in call.name
    given = call["self"]
    outputs = call["grad_output"].numel() if is_backward else call.made[0].numel()
    size = call.get("kernel_size")
    window = given.numel() // max(outputs, 1) if size is None else math.prod(size) ** (2 // len(size))
    return (
        Pool(
            dtype=dtype_of(given),
            inputs=given.numel(),
            outputs=outputs,
            window=max(window, 1),
            with_indices="indices" in call.name,
            backward=is_backward,
        ),
    )
