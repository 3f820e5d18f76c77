"""Creates reductions, normalisations, sorts and scans from their descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from real.calibration.operators.making.arena import Arena, CannotMakeError, Made, torch_dtype
from real.calibration.operators.making.schema import calls
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.sorting import Scan, Sort

_aten = torch.ops.aten
_EPSILON = 1e-5
_MEAN = 1  # of a loss over its rows: at::Reduction::Mean
_KEYS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
_SCANNED = {8: torch.int64, 4: torch.float32, 2: torch.float16}
# Sides of images to try where a description counts elements alone.
_SIDES = (56, 28, 14, 7, 112, 32, 16, 8, 4, 2, 1)
# Overloads of reductions that can also reduce one dimension alone, or all.
_OVERLOADS: Mapping[str, str] = {
    **{"sum": "dim_IntList", "mean": "dim", "max": "dim", "min": "dim", "prod": "dim_int", "norm": "ScalarOpt_dim"},
    **{"var": "correction", "std": "correction", "var_mean": "correction", "any": "dim", "all": "dim"},
}
_ONE_DIM = frozenset({"max", "min", "argmax", "argmin", "prod", "any", "all", "aminmax"})


def reduction(one: Reduction, arena: Arena) -> Made:
    """Return the reduction over the middle of [outer, reduced, inner].

    Raises:
        CannotMakeError: torch has no reduction of that name.
    """
    packet = getattr(_aten, one.name, None)
    if packet is None:
        raise CannotMakeError(f"torch has no operator '{one.name}'")
    shape = [one.outer, one.reduced, one.inner]
    dim = 1
    if one.inner == 1:
        shape.pop()
    if one.outer == 1:
        shape.pop(0)
        dim = 0
    given = arena.tensor(shape, torch_dtype(one.dtype))
    arena.result(one.outer * one.inner, given.dtype)
    over: dict[str, Any] = {"dim": dim if one.name in _ONE_DIM else [dim]}
    whole = len(shape) == 1 and "default" in packet.overloads()
    if whole and one.name in ("max", "min", "any", "all"):
        return Made(lambda: packet.default(given))
    if one.name in _OVERLOADS:
        function = getattr(packet, _OVERLOADS[one.name])
        if one.name == "norm":
            return Made(lambda: function(given, 2, [dim]))
        return Made(lambda: function(given, over["dim"]))
    run = next(calls(one.name, [given], over), None)
    if run is None:
        raise CannotMakeError(f"no overload of '{one.name}' reduces one tensor")
    return Made(run)


def qr(one: Qr, arena: Arena) -> Made:
    """Return the reduced QR decomposition of a batch of matrices."""
    shape = (one.rows, one.columns) if one.batch == 1 else (one.batch, one.rows, one.columns)
    given = arena.tensor(shape, torch.float32)
    return Made(lambda: _aten.linalg_qr.default(given))


def pool(one: Pool, arena: Arena) -> Made:
    """Return the pooling of square windows, or of whole images.

    Raises:
        CannotMakeError: no images and windows are of these sizes.
    """
    dtype = torch_dtype(one.dtype)
    if not one.with_indices and one.inputs == one.outputs * one.window and math.isqrt(one.window) ** 2 != one.window:
        return _adaptive(one, arena)
    kernel, ratio = math.isqrt(one.window), one.inputs / one.outputs
    stride = math.isqrt(round(ratio))
    if kernel**2 != one.window or one.outputs * stride**2 != one.inputs:
        raise CannotMakeError("no square windows and images are of these sizes")
    padding = max(0, -(-(kernel - stride) // 2))
    side = next((side for side in _SIDES if one.outputs % side**2 == 0 and 2 * padding <= kernel), 1)
    shape = (1, one.outputs // side**2, side * stride, side * stride)
    if (side * stride + 2 * padding - kernel) // stride + 1 != side:
        raise CannotMakeError("no square windows and images are of these sizes")
    given = arena.tensor(shape, dtype)
    sizes = ([kernel] * 2, [stride] * 2, [padding] * 2)
    if one.with_indices:
        forward: Callable[[], Any] = lambda: _aten.max_pool2d_with_indices.default(given, *sizes)  # noqa: E731
    else:
        forward = lambda: _aten.avg_pool2d.default(given, *sizes)  # noqa: E731
    if not one.backward:
        arena.result(one.outputs * (5 if one.with_indices else 1), dtype)
        return Made(forward)
    gradient = arena.tensor((*shape[:2], side, side), dtype)
    arena.result(one.inputs, dtype)
    if one.with_indices:
        _, indices = forward()
        back = _aten.max_pool2d_with_indices_backward.default
        return Made(lambda: back(gradient, given, *sizes, [1, 1], False, indices))
    average = _aten.avg_pool2d_backward.default
    return Made(lambda: average(gradient, given, *sizes, False, True, None))


def _adaptive(one: Pool, arena: Arena) -> Made:
    given = arena.tensor((1, one.outputs, 1, one.window), torch_dtype(one.dtype))
    arena.result(one.inputs if one.backward else one.outputs, given.dtype)
    if not one.backward:
        return Made(lambda: _aten._adaptive_avg_pool2d.default(given, [1, 1]))
    gradient = arena.tensor((1, one.outputs, 1, 1), given.dtype)
    back = _aten._adaptive_avg_pool2d_backward.default
    return Made(lambda: back(gradient, given))


def softmax(one: Softmax, arena: Arena) -> Made:
    """Return the softmax of rows, or its backward pass.

    Raises:
        CannotMakeError: the description is of torch 2.0's softmax.
    """
    if not one.is_staged:
        raise CannotMakeError("the softmax of torch 2.0")
    given = arena.tensor((one.rows, one.dim), torch_dtype(one.dtype))
    arena.result(one.rows * one.dim, given.dtype)
    if not one.backward:
        function = (_aten._log_softmax if one.is_log else _aten._softmax).default
        return Made(lambda: function(given, 1, False))
    gradient = arena.tensor((one.rows, one.dim), given.dtype)
    back = (_aten._log_softmax_backward_data if one.is_log else _aten._softmax_backward_data).default
    return Made(lambda: back(gradient, given, 1, given.dtype))


def row_norm(one: RowNorm, arena: Arena) -> Made:
    """Return a layer norm, or with one weight on a GPU an RMS norm, or the backward pass of either."""
    dtype, shape = torch_dtype(one.dtype), (one.rows, one.dim)
    given, gradient = (arena.tensor(shape, dtype) for _ in range(2))
    weight, bias = (arena.tensor((one.dim,), dtype) for _ in range(2))
    arena.result(given.numel(), dtype)
    if one.weights == 1 and arena.device.type == "cuda":  # torch fuses RMS norms on GPUs only
        rms = _aten._fused_rms_norm.default
        if not one.backward:
            return Made(lambda: rms(given, [one.dim], weight, _EPSILON))
        _, scale = rms(given, [one.dim], weight, _EPSILON)
        back = _aten._fused_rms_norm_backward.default
        return Made(lambda: back(gradient, given, [one.dim], scale, weight, [True, True]))
    weights = (weight if one.weights else None, bias if one.weights > 1 else None)
    norm = _aten.native_layer_norm.default
    if not one.backward:
        return Made(lambda: norm(given, [one.dim], *weights, _EPSILON))
    _, mean, scale = norm(given, [one.dim], *weights, _EPSILON)
    mask = [True, one.weights > 0, one.weights > 1]
    norm_back = _aten.native_layer_norm_backward.default
    return Made(lambda: norm_back(gradient, given, [one.dim], mean, scale, *weights, mask))


def batch_norm(one: BatchNorm, arena: Arena) -> Made:
    """Return a batch norm of images, or its backward pass; by cuDNN or not, as torch chooses."""
    dtype, each = torch_dtype(one.dtype), one.elements // one.channels
    if one.elements % one.channels:
        raise CannotMakeError("channels do not divide the elements")
    side = next(side for side in _SIDES if each % side**2 == 0)
    shape = (each // side**2, one.channels, side, side)
    given, gradient = (arena.tensor(shape, dtype) for _ in range(2))
    weight, bias = (arena.tensor((one.channels,), torch.float32) for _ in range(2))
    mean, variance = (arena.tensor((one.channels,), torch.float32, is_changed=True) for _ in range(2))
    arena.result(one.elements, dtype)
    tensors = (given, weight, bias, mean, variance)
    if arena.device.type == "cuda" and one.training and _is_cudnns(tensors):
        forward: Callable[[], Any] = lambda: _aten.cudnn_batch_norm.default(  # noqa: E731
            given, weight, bias, mean, variance, True, 0.1, _EPSILON
        )
        if not one.backward:
            return Made(forward)
        _, saved_mean, saved, reserved = forward()
        cudnn = _aten.cudnn_batch_norm_backward.default
        more = (weight, mean, variance, saved_mean, saved, _EPSILON, reserved)
        return Made(lambda: cudnn(given, gradient, *more))
    forward = lambda: _aten.native_batch_norm.default(  # noqa: E731
        given, weight, bias, mean, variance, one.training, 0.1, _EPSILON
    )
    if not one.backward:
        return Made(forward)
    _, saved_mean, saved = forward()
    back = _aten.native_batch_norm_backward.default
    rest = (weight, mean, variance, saved_mean, saved, one.training, _EPSILON, [True, True, True])
    return Made(lambda: back(gradient, given, *rest))


def _is_cudnns(tensors: tuple[Tensor, ...]) -> bool:
    """Return whether torch chooses cuDNN for this batch norm in training."""
    chosen = torch._C._select_batch_norm_backend(*tensors, True, _EPSILON)
    return bool(chosen.name == "Cudnn")  # torch._C._BatchNormBackend, for which torch's stubs have another name


def nll_loss(one: NllLoss, arena: Arena) -> Made:
    """Return the loss after a log-softmax, its mean over rows, or its backward pass."""
    given = arena.tensor((one.rows, one.classes), torch_dtype(one.dtype))
    target = arena.ids(one.rows, one.classes)
    if not one.backward:
        forward = _aten.nll_loss_forward.default
        return Made(lambda: forward(given, target, None, _MEAN, -100))
    arena.result(given.numel(), given.dtype)
    gradient, total = (arena.tensor((), given.dtype) for _ in range(2))
    back = _aten.nll_loss_backward.default
    return Made(lambda: back(gradient, given, target, None, _MEAN, -100, total))


def sort(one: Sort, arena: Arena) -> Made:
    """Return the sort of rows of integers.

    Raises:
        CannotMakeError: torch has no integers of the keys' size, or sorts by more bits.
    """
    dtype = _KEYS.get(one.key_bytes)
    if dtype is None or one.bits != 8 * one.key_bytes:
        raise CannotMakeError("torch sorts by all bits of its integers")
    given = arena.tensor((one.elements,) if one.rows == 1 else (one.rows, one.elements), dtype)
    arena.result(2 * given.numel(), torch.int64)
    return Made(lambda: _aten.sort.default(given, -1, False))


def scan(one: Scan, arena: Arena) -> Made:
    """Return the cumulative sum of a vector.

    Raises:
        CannotMakeError: no dtype has elements of that size.
    """
    if one.element_bytes not in _SCANNED:
        raise CannotMakeError(f"no dtype of {one.element_bytes} bytes is summed up")
    given = arena.tensor((one.elements,), _SCANNED[one.element_bytes])
    arena.result(one.elements, given.dtype)
    return Made(lambda: _aten.cumsum.default(given, 0))
