"""Describes calls of reductions, normalisations, sorts and scans."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from scenarios.modules.describing.call import Operations, OperatorCall
from scenarios.seam.arguments import dtype_name
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.sorting import Scan, Sort


def reduction(call: OperatorCall) -> Operations:
    """Return a sum, mean, maximum etc. over some dimensions, with its layout in memory."""
    operand = call.read[0]
    dims = call.get("dim", call.get("dims"))
    chosen = range(operand.dim()) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return _reduction_over(call.name, operand, chosen)


def _reduction_over(name: str, operand: Tensor, dims: Sequence[int]) -> Reduction:
    """Return a reduction over the dimensions between those outside and those inside of it in memory."""
    of = {dim % operand.dim() for dim in dims} if operand.dim() else set()  # torch takes dim 0 of a single number
    # By stride: a transposed tensor is reduced as it lies in memory, whatever its dimensions are called.
    axes = sorted(range(operand.dim()), key=operand.stride, reverse=True)
    places = [place for place, axis in enumerate(axes) if axis in of and operand.shape[axis] > 1]
    reduced = math.prod(operand.shape[axis] for axis in of)
    last = places[-1] if places else len(axes) - 1
    inner = math.prod(operand.shape[axis] for axis in axes[last + 1 :])
    outer = operand.numel() // max(reduced * inner, 1)
    return Reduction(
        name=name, dtype=dtype_name(operand), outer=max(outer, 1), reduced=max(reduced, 1), inner=max(inner, 1)
    )


def softmax(call: OperatorCall) -> Operations:
    """Return the softmax over the last dimension, or its backward; else a reduction and an elementwise pass."""
    is_backward = "backward" in call.name
    operand = call["grad_output"] if is_backward else call["self"]
    dim = int(call["dim"]) % max(operand.dim(), 1)
    if dim != operand.dim() - 1:
        extent = operand.shape[dim] if operand.dim() else 1
        inner = math.prod(operand.shape[dim + 1 :])
        outer = operand.numel() // max(extent * inner, 1)
        one = Reduction(name="sum", dtype=dtype_name(operand), outer=outer, reduced=extent, inner=inner)
        return one, contiguous("softmax", operand.numel(), dtype_name(operand), inputs=2 if is_backward else 1)
    row = operand.shape[-1] if operand.dim() else 1
    return Softmax(
        rows=operand.numel() // max(row, 1),
        dim=row,
        dtype=dtype_name(operand),
        is_log="log" in call.name,
        backward=is_backward,
    )


def row_norm(call: OperatorCall) -> Operations:
    """Return the layer norm or RMS norm, or its backward."""
    is_backward = "backward" in call.name
    operand = call["input"]
    dim = math.prod(call["normalized_shape"])
    weights = sum(call.get(name) is not None for name in ("weight", "bias"))
    return RowNorm(
        rows=operand.numel() // max(dim, 1), dim=dim, dtype=dtype_name(operand), backward=is_backward, weights=weights
    )


def batch_norm(call: OperatorCall) -> Operations:
    """Return the batch norm or its backward."""
    operand = call.get("input")
    if operand is None:
        operand = call.read[0]
    is_training = call.get("training", call.get("train", True))
    return BatchNorm(
        elements=operand.numel(),
        channels=operand.shape[1] if operand.dim() > 1 else 1,
        dtype=dtype_name(operand),
        backward="backward" in call.name,
        training=bool(is_training),
    )


def nll_loss(call: OperatorCall) -> Operations:
    """Return the loss behind a log-softmax, or its backward."""
    operand = call["self"]
    classes = operand.shape[1] if operand.dim() > 1 else operand.numel()
    rows = operand.numel() // max(classes, 1)
    return NllLoss(rows=rows, classes=classes, dtype=dtype_name(operand), backward="backward" in call.name)


def sort(call: OperatorCall) -> Operations:
    """Return the sort along a dimension."""
    operand = call["self"]
    dim = int(call.get("dim", -1))
    extent = operand.shape[dim] if operand.dim() else 1
    size = operand.element_size()
    rows = operand.numel() // max(extent, 1)
    return Sort(elements=extent, rows=max(rows, 1), key_bytes=size, bits=8 * size)


def scan(call: OperatorCall) -> Operations:
    """Return the scan of `cumsum` etc., over all elements."""
    operand = call["self"]
    return Scan(elements=operand.numel(), element_bytes=operand.element_size())


def qr(call: OperatorCall) -> Operations:
    """Return the QR decompositions of `linalg_qr`."""
    operand = call.read[0]
    rows, columns = operand.shape[-2:]
    return Qr(rows=rows, columns=columns, batch=operand.numel() // max(rows * columns, 1))


def pool(call: OperatorCall) -> Operations:
    """Return the pooling of an image's windows, or its backward; adaptive pooling has adjacent windows."""
    is_backward = "backward" in call.name
    operand = call["self"]
    outputs = call["grad_output"].numel() if is_backward else call.results[0].numel()
    size = call.get("kernel_size")
    window = operand.numel() // max(outputs, 1) if size is None else math.prod(size) ** (2 // len(size))
    return Pool(
        dtype=dtype_name(operand),
        inputs=operand.numel(),
        outputs=outputs,
        window=max(window, 1),
        with_indices="indices" in call.name,
        backward=is_backward,
    )
