"""Describes calls of element-by-element operators, fills, casts, copies, concatenations and lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from scenarios.modules.describing.call import Operations, OperatorCall
from scenarios.seam.arguments import dtype_name
from scenarios.seam.operations.moves import Cat
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Strided, contiguous, strided_call
from scenarios.seam.operations.reductions import Reduction

# Fused optimizers: gradients are among their lists for unscaling, and are written only then.
_FUSED = "_fused_"


def pointwise(call: OperatorCall) -> Operations:
    """Return the operator with its operands' layouts in memory."""
    result = call.results[0]
    shape = tuple(result.shape)
    inputs = [found for each in call.read if (found := _expand(each, shape)) is not None]
    outputs = [found for each in call.results if (found := _expand(each, shape)) is not None]
    return strided_call(call.name, shape, inputs, outputs or [(dtype_name(result), result.stride())])


def insertion(call: OperatorCall) -> Operations:
    """Return the zeros and the copy of a gradient into them, for the backward of `select` and `slice`, and `pad`."""
    result, operand = call.results[0], call.read[0]
    return (
        contiguous("zero_", result.numel(), dtype_name(result), inputs=0),
        contiguous("copy_", operand.numel(), dtype_name(operand)),
    )


def loss(call: OperatorCall) -> Operations:
    """Return the elementwise loss, and its reduction, if any."""
    operand = call["self"]
    inputs = sum(each.numel() == operand.numel() for each in call.read)
    found: tuple[Operation, ...] = (contiguous(call.name, operand.numel(), dtype_name(operand), inputs=max(inputs, 1)),)
    if call.results[0].numel() == 1 and operand.numel() > 1:
        found += (Reduction(name="mean", dtype=dtype_name(operand), outer=1, reduced=operand.numel(), inner=1),)
    return found


def cat(call: OperatorCall) -> Operations:
    """Return the concatenation of `cat` and `stack`."""
    result, operands = call.results[0], call["tensors"]
    dim = int(call["dim"]) % max(result.dim(), 1)
    rows_are_one = all(extent == 1 for extent in result.shape[:dim])
    is_contiguous = all(each.is_contiguous() for each in operands)
    return Cat(
        dtype=dtype_name(result),
        elements=result.numel(),
        inputs=len(operands),
        contiguous=is_contiguous and rows_are_one,
        dims=(1 if rows_are_one else 2) if is_contiguous else result.dim(),
    )


def foreach(call: OperatorCall) -> Operations:
    """Return one call of `_foreach_*` or `_fused_*`, or the reduction of norms."""
    lists = [each for each in call.lists if each[0].numel() > 1 or each is call.lists[0]]
    first = lists[0]
    numels = tuple(each.numel() for each in first)
    same = [each for each in lists if len(each) == len(first)]
    makes = len(call.results) == len(first) and call.results[0] is not first[0] and not call.name.endswith("_")
    if call.name.startswith(_FUSED):
        read, written = len(same), len(same) - 1
    elif "norm" in call.name or call.name.endswith("_max"):
        read, written = 1, 0
    elif call.name.removesuffix("_") in ("_foreach_zero", "_foreach_copy"):
        read, written = len(same) - 1, 1
    else:
        read, written = len(same), 1
    handed = len(same) + (1 if makes and written else 0)
    return Foreach(name=call.name, dtype=dtype_name(first[0]), numels=numels, lists=handed, read=read, written=written)


def copies(call: OperatorCall) -> Operations:
    """Return a copy for each result, or the single launch that fills the given outputs."""
    if call.get("out"):
        return contiguous("copy_", sum(each.numel() for each in call.results), dtype_name(call.results[0]))
    return tuple(contiguous("copy_", each.numel(), dtype_name(each)) for each in call.results if each.numel())


def chunk_cat(call: OperatorCall) -> Operations:
    """Return the single launch by which FSDP2 cuts gradients into padded, concatenated chunks."""
    operand, result, flat = call.lists[0][0], call.results[0], (1,)
    return strided_call("copy_", (result.numel(),), [(dtype_name(operand), flat)], [(dtype_name(result), flat)])


def all_gather_copy_in(call: OperatorCall) -> Operations:
    """Return the `_foreach_copy_` by which FSDP2 concatenates a rank's shards."""
    numels = tuple(each.numel() for each in call.read if each.numel())
    dtype = dtype_name(call.results[0])
    return Foreach(name="_foreach_copy_", dtype=dtype, numels=numels, lists=2, read=1, written=1)


def _expand(tensor: Tensor, shape: Sequence[int]) -> Strided | None:
    """Return dtype and strides of a tensor expanded to the shape; None if it does not fit, or is a single number."""
    if tensor.dim() == 0 and shape:
        return None
    own, strides = tuple(tensor.shape), tensor.stride()
    missing = len(shape) - len(own)
    if missing < 0:
        return None
    steps = [0] * missing
    for extent, step, wanted in zip(own, strides, shape[missing:], strict=True):
        if extent == wanted:
            # The stride of a dimension of one element is arbitrary in torch, and must not tell layouts apart.
            steps.append(step if extent > 1 else 0)
        elif extent == 1:
            steps.append(0)
        else:
            return None
    return dtype_name(tensor), tuple(steps)
