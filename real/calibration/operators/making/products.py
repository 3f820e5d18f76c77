"""Creates matrix products, attention and convolutions from their descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from real.calibration.operators.making.arena import Arena, CannotMakeError, Made, torch_dtype
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.of_tensors import product_of
from scenarios.seam.operations.products import FULL_ALIGNMENT, Product

_aten = torch.ops.aten
# Dilations to try for a convolution, whose description gives its extents alone.
_DILATIONS = (1, 2, 3, 4, 6, 8, 12)


def product(one: Product, arena: Arena) -> Made:
    """Return an `mm` or `bmm` whose operands and result lie in memory as described.

    Raises:
        CannotMakeError: the operands cannot lie as described.
    """
    dtype = torch_dtype(one.dtype)
    left = _matrix(arena, one, (one.rows, one.inner), one.left_alignment, is_transposed=one.left_is_transposed)
    right = _matrix(arena, one, (one.inner, one.columns), one.right_alignment, is_transposed=one.right_is_transposed)
    arena.result(one.batch * one.rows * one.columns, dtype)
    actual = product_of(left, right, one.dtype)
    is_padded = one.result_alignment > actual.result_alignment
    if is_padded:
        actual = replace(actual, result_alignment=one.result_alignment)
    if _comparable(actual) != _comparable(one):
        raise CannotMakeError("operands of these extents cannot be aligned so")
    packet = _aten.bmm if one.batch > 1 else _aten.mm
    run: Callable[[], object] = partial(packet.default, left, right)
    if is_padded:
        made = _matrix(arena, one, (one.rows, one.columns), one.result_alignment, is_changed=True)
        run = partial(packet.out, left, right, out=made)
    return Made(run, is_tf32=one.dtype == "tf32")


def _comparable(one: Product) -> Product:
    """Return a product for comparison: alignments of operands with a single row are 0, as tensors do not show them."""
    has_no_rows = one.inner == 1
    return replace(
        one,
        left_alignment=0 if has_no_rows or one.rows == 1 else one.left_alignment,
        right_alignment=0 if has_no_rows or one.columns == 1 else one.right_alignment,
    )


def _matrix(
    arena: Arena,
    one: Product,
    shape: tuple[int, int],
    alignment: int,
    *,
    is_transposed: bool = False,
    is_changed: bool = False,
) -> Tensor:
    """Return a matrix, or a batch of them, whose rows (or columns) have the distance that the alignment needs."""
    dtype = torch_dtype(one.dtype)
    outer, inner = reversed(shape) if is_transposed else shape
    unit = max(1, alignment // dtype.itemsize)
    apart = -(-inner // unit) * unit
    step_bytes = apart * dtype.itemsize
    lies = (step_bytes | FULL_ALIGNMENT) & -(step_bytes | FULL_ALIGNMENT)
    offset = 0 if lies == alignment or alignment >= FULL_ALIGNMENT else alignment
    extents: tuple[int, ...] = shape
    steps: tuple[int, ...] = (1, apart) if is_transposed else (apart, 1)
    if one.batch > 1:
        extents, steps = (one.batch, *shape), (outer * apart, *steps)
    return arena.tensor(extents, dtype, steps, offset_bytes=offset, is_changed=is_changed)


def attention(one: Attention, arena: Arena) -> Made:
    """Return the fused attention that torch runs for these tensors on the arena's device, or its backward pass.

    Queries, keys and values are [batch, positions, heads, head size] in memory, as linear layers write them.

    Raises:
        CannotMakeError: torch has no fused attention of this kind.
    """
    if one.is_serving or one.window is not None:
        raise CannotMakeError("attention of an inference server, or with a window, is not torch's")
    dtype = torch_dtype(one.dtype)

    def heads(count: int, positions: int) -> Tensor:
        flat = arena.tensor((one.batch, positions, count, one.head_size), dtype)
        return flat.transpose(1, 2)

    query = heads(one.heads, one.queries)
    key, value = (heads(one.key_heads, one.keys) for _ in range(2))
    gradient = heads(one.heads, one.queries) if one.is_backward else None
    arena.result(query.numel() + (2 * key.numel() if one.is_backward else 0), dtype)
    build = _FUSED[_library(query, key, value, one.is_causal)]
    return Made(build(query, key, value, gradient, one.is_causal))


def _library(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> str:
    """Return the library whose fused attention torch chooses for these tensors: cuDNN on a Hopper, for example.

    Raises:
        CannotMakeError: torch chooses no fused attention.
    """
    if q.device.type != "cuda":
        return "cpu"
    chosen = torch._fused_sdp_choice(q, k, v, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1])
    actual = _BACKENDS.get(int(chosen))
    if actual is None:
        raise CannotMakeError("torch has no fused attention for these tensors")
    return actual


def _cudnn(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor | None, is_causal: bool) -> Callable[[], object]:
    forward = _aten._scaled_dot_product_cudnn_attention.default
    if gradient is None:
        return lambda: forward(q, k, v, None, True, 0.0, is_causal)
    out, logsumexp, starts_q, starts_k, most_q, most_k, seed, offset, _ = forward(q, k, v, None, True, 0.0, is_causal)
    backward = _aten._scaled_dot_product_cudnn_attention_backward.default
    more = (seed, offset, None, starts_q, starts_k, most_q, most_k, 0.0, is_causal)
    return lambda: backward(gradient, q, k, v, out, logsumexp, *more)


def _flash(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor | None, is_causal: bool) -> Callable[[], object]:
    forward = _aten._scaled_dot_product_flash_attention.default
    if gradient is None:
        return lambda: forward(q, k, v, 0.0, is_causal)
    out, logsumexp, starts_q, starts_k, most_q, most_k, seed, offset, _ = forward(q, k, v, 0.0, is_causal)
    backward = _aten._scaled_dot_product_flash_attention_backward.default
    more = (starts_q, starts_k, most_q, most_k, 0.0, is_causal, seed, offset)
    return lambda: backward(gradient, q, k, v, out, logsumexp, *more)


def _efficient(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor | None, is_causal: bool) -> Callable[[], object]:
    forward = _aten._scaled_dot_product_efficient_attention.default
    if gradient is None:
        return lambda: forward(q, k, v, None, True, 0.0, is_causal)
    out, logsumexp, seed, offset = forward(q, k, v, None, True, 0.0, is_causal)
    backward = _aten._scaled_dot_product_efficient_attention_backward.default
    more = (seed, offset, 0.0, [True, True, True, False], is_causal)
    return lambda: backward(gradient, q, k, v, None, out, logsumexp, *more)


def _on_cpu(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor | None, is_causal: bool) -> Callable[[], object]:
    forward = _aten._scaled_dot_product_flash_attention_for_cpu.default
    if gradient is None:
        return lambda: forward(q, k, v, 0.0, is_causal)
    out, logsumexp = forward(q, k, v, 0.0, is_causal)
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return lambda: backward(gradient, q, k, v, out, logsumexp, 0.0, is_causal)


_FUSED = {"flash": _flash, "efficient": _efficient, "cudnn": _cudnn, "cpu": _on_cpu}
# Numbers of torch's SDPBackend (aten/src/ATen/SDPBackend.h).
_BACKENDS = {1: "flash", 2: "efficient", 3: "cudnn"}


def convolution(one: Convolution, arena: Arena) -> Made:
    """Return a convolution, or one of its gradients.

    Raises:
        CannotMakeError: no padding gives the described extents.
    """
    dtype, dims = torch_dtype(one.dtype), len(one.size)
    extents = zip(one.size, one.out_size, one.kernel, one.stride, strict=True)
    padding, dilation = zip(*(_find_padding(*each) for each in extents), strict=True)

    def tensor(*shape: int) -> Tensor:
        return arena.tensor(shape, dtype, _channels_last(shape) if one.is_channels_last else None)

    given = tensor(one.batch, one.in_channels, *one.size)
    weight = tensor(one.out_channels, one.in_channels // one.groups, *one.kernel)
    more = (one.stride, padding, dilation, False, (0,) * dims, one.groups)
    if one.makes == "output":
        arena.result(one.outputs, dtype)
        run: Callable[[], object] = lambda: _aten.convolution.default(given, weight, None, *more)  # noqa: E731
    else:
        gradient = tensor(one.batch, one.out_channels, *one.out_size)
        mask = [one.makes == "input_gradient", one.makes == "weight_gradient", False]
        arena.result(max(one.inputs * mask[0], one.weights), dtype)
        backward = _aten.convolution_backward.default
        run = lambda: backward(gradient, given, weight, None, *more, mask)  # noqa: E731
    return Made(run, is_tf32=one.dtype == "tf32")


def _find_padding(size: int, out: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding and dilation with which a dimension becomes `out` long.

    Raises:
        CannotMakeError: there are none.
    """
    for dilation in _DILATIONS:
        reach = dilation * (kernel - 1)
        for padding in range(reach + 1):
            if (size + 2 * padding - reach - 1) // stride + 1 == out:
                return padding, dilation
    raise CannotMakeError(f"no padding makes {out} of {size} with a kernel of {kernel} and a stride of {stride}")


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    channels, inner = shape[1], shape[2:]
    steps = [channels * math.prod(inner[axis + 1 :]) for axis in range(len(inner))]
    return channels * math.prod(inner), 1, *steps
