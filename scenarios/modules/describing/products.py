"""Describes calls of matrix products, attention and convolutions."""

from __future__ import annotations

from torch import Tensor, channels_last, channels_last_3d

from scenarios.modules.describing.call import Operations, OperatorCall
from scenarios.seam.arguments import dtype_name
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.of_tensors import product_of
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.reductions import Reduction

_LEFT = {"addmm": "mat1", "addmm_": "mat1", "baddbmm": "batch1", "addbmm": "batch1"}
_RIGHT = {"addmm": "mat2", "addmm_": "mat2", "baddbmm": "batch2", "addbmm": "batch2"}
_RIGHT_NAMES = ("mat2", "vec", "tensor", "other")


def product(call: OperatorCall) -> Operations:
    """Return the product of `mm`, `addmm`, `bmm`, `baddbmm` etc.; a vector counts as one column."""
    left = call[_LEFT.get(call.name, "self")]
    right = call[_RIGHT[call.name]] if call.name in _RIGHT else _first(call, _RIGHT_NAMES)
    is_of_bytes = left.element_size() == 1  # `_scaled_mm` and `_int_mm`, whose results have other types
    return product_of(left, right, dtype_name(left) if is_of_bytes else call.dtype)


def attention(call: OperatorCall) -> Operations:
    """Return the attention of `_scaled_dot_product_*` or its backward."""
    query, key = call["query"], call["key"]
    batch, heads, queries, head_size = query.shape
    return Attention(
        batch=batch,
        heads=heads,
        key_heads=key.shape[1],
        queries=queries,
        keys=key.shape[2],
        head_size=head_size,
        dtype=dtype_name(query),
        is_causal=bool(call.get("is_causal", False)),
        is_backward=call.name.endswith("_backward"),
    )


def convolution(call: OperatorCall) -> Operations:
    """Return the convolution of `convolution` etc., followed by an addition if there is a bias."""
    weight, operand, result = call["weight"], call["input"], call.results[0]
    is_transposed = bool(call.get("transposed", False))
    inputs, outputs = (result, operand) if is_transposed else (operand, result)
    found: list[Operation] = [
        _convolution(call, inputs, weight, outputs, "input_gradient" if is_transposed else "output")
    ]
    if call.get("bias") is not None:
        found.append(contiguous("add_", result.numel(), dtype_name(result)))
    return tuple(found)


def convolution_backward(call: OperatorCall) -> Operations:
    """Return the gradients that `convolution_backward` computes by its output mask."""
    operand, weight, gradient = call["input"], call["weight"], call["grad_output"]
    of_input, of_weight, of_bias = call["output_mask"]
    inputs, outputs = (gradient, operand) if call.get("transposed", False) else (operand, gradient)
    found: list[Operation] = []
    if of_input:
        makes = "output" if call.get("transposed", False) else "input_gradient"
        found.append(_convolution(call, inputs, weight, outputs, makes))
    if of_weight:
        found.append(_convolution(call, inputs, weight, outputs, "weight_gradient"))
    if of_bias:
        batch, channels = gradient.shape[:2]
        inner = gradient.numel() // max(batch * channels, 1)
        found.append(Reduction(name="sum", dtype=dtype_name(gradient), outer=channels, reduced=batch * inner, inner=1))
    return tuple(found)


def _convolution(call: OperatorCall, inputs: Tensor, weight: Tensor, outputs: Tensor, makes: str) -> Convolution:
    spatial = tuple(weight.shape[2:])
    stride = tuple(call["stride"])
    format_ = channels_last if len(spatial) == 2 else channels_last_3d
    is_last = len(spatial) in (2, 3) and any(
        each.is_contiguous(memory_format=format_) and not each.is_contiguous() for each in (inputs, outputs)
    )
    return Convolution(
        batch=inputs.shape[0],
        in_channels=inputs.shape[1],
        out_channels=outputs.shape[1],
        size=tuple(inputs.shape[2:]),
        out_size=tuple(outputs.shape[2:]),
        kernel=spatial,
        stride=stride * len(spatial) if len(stride) == 1 else stride,
        groups=int(call.get("groups", 1)),
        dtype=call.dtype,
        is_channels_last=is_last,
        makes=makes,  # type: ignore[arg-type]
    )


def _first(call: OperatorCall, names: tuple[str, ...]) -> Tensor:
    return next(found for name in names if (found := call.get(name)) is not None)  # type: ignore[no-any-return]
