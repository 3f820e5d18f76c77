"""Creates calls of element-by-element operators, and of operators on lists of tensors, from their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from real.calibration.operators.making.arena import (
    Arena,
    CannotMakeError,
    Made,
    near_square,
    packed_strides,
    torch_dtype,
)
from real.calibration.operators.making.schema import calls
from real.calibration.operators.making.strides import OVERWRITTEN, Laid, is_in_place, lay
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise

_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones"})
_FACTORIES = frozenset({"zeros", "ones", "full", "rand", "randn", "arange"})
# Stand-ins for operators that programs describe by their operands alone, by the number of tensors read.
_PROGRAMS = {
    "elementwise": {0: "zero_", 1: "relu", 2: "add", 3: "addcmul"},
    "softmax": {1: "exp", 2: "sub"},
    "permute": {1: "clone"},
}
_TRIANGLES = frozenset({"tril", "triu"})


def pointwise(one: Pointwise, arena: Arena) -> Made:
    """Return the call of a pointwise operator, a fill, a cast or a copy.

    Raises:
        CannotMakeError: torch has no such operator, or no strides fit its operands.
    """
    name = one.name
    laid = lay(one)
    if name in _TRIANGLES and len(laid.shape) == 1:  # these operators need matrices
        shape = near_square(one.elements, 2)
        laid = Laid(shape, (packed_strides(shape),), (packed_strides(shape),))
    if name in _PROGRAMS or not hasattr(torch.ops.aten, name):
        name = _PROGRAMS.get(name, {}).get(len(one.inputs), "")
        if not name:
            raise CannotMakeError(f"torch has no operator '{one.name}' of {len(one.inputs)} tensors")
    if name in _FACTORIES:
        return _factory(name, one, arena)
    inputs = [_operand(arena, *each, laid.shape, False) for each in zip(one.inputs, laid.inputs, strict=True)]
    if is_in_place(name) or name in _LIKE:  # an operator in place may read its first argument before it changes it
        changed = _operand(arena, one.outputs[0], laid.outputs[0], laid.shape, True)
        tensors_given = [changed, *(inputs if name in OVERWRITTEN else inputs[1:])]
    else:
        tensors_given = inputs
    if not is_in_place(name):
        for each in one.outputs:
            arena.result(each.elements, torch_dtype(each.dtype))
    run = _first(name, tensors_given, _named_arguments(name, one, laid, arena))
    return Made(run)


def _operand(
    arena: Arena, operand: Operand, strides: tuple[int, ...], shape: tuple[int, ...], is_changed: bool
) -> Tensor:
    """Return a tensor with an extent of 1 where the operand is broadcast; the operator expands it."""
    own = [extent if step else 1 for extent, step in zip(shape, strides, strict=True)]
    return arena.tensor(own, torch_dtype(operand.dtype), strides, is_changed=is_changed)


def _factory(name: str, one: Pointwise, arena: Arena) -> Made:
    dtype = torch_dtype(one.outputs[0].dtype)
    arena.result(one.elements, dtype)
    size: Any = one.elements if name == "arange" else [one.elements]
    more = [1.0] if name == "full" else []
    function = getattr(torch.ops.aten, name).default
    return Made(lambda: function(size, *more, dtype=dtype, device=arena.device))


def _named_arguments(name: str, one: Pointwise, laid: Laid, arena: Arena) -> dict[str, Any]:
    """Return the values of parameters that follow from the description."""
    dtype = torch_dtype(one.outputs[0].dtype) if one.outputs else torch.float32
    if name in _FIXED:
        return _FIXED[name]
    if name == "clone":
        is_packed = one.inputs[0].stride != 1 or one.dims > 1
        return {"memory_format": torch.contiguous_format if is_packed else None}
    if "loss" in name or "cross_entropy" in name:  # the loss of each element; its sum is another operator
        is_backward, of_one = name.endswith("_backward"), arena.tensor((), dtype)
        return {"reduction": int(is_backward), **({"grad_output": of_one} if is_backward else {})}
    if name in ("new_zeros", "new_ones"):
        return {"size": list(laid.shape), "dtype": dtype}
    return {"dtype": dtype} if name == "_to_copy" or name in _LIKE else {}


# Values of parameters without usual values.
_BOUNDS, _TANH_BOUNDS = {"min": -1.0, "max": 1.0}, {"min_val": -1.0, "max_val": 1.0}
_FIXED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("clamp", "clamp_"), _BOUNDS),
    **dict.fromkeys(("hardtanh", "hardtanh_", "hardtanh_backward"), _TANH_BOUNDS),
    "flip": {"dims": [0]},
    "roll": {"shifts": [1], "dims": [0]},
    "native_dropout_backward": {"scale": 2.0},
}


def _first(name: str, tensors: Sequence[Tensor | Sequence[Tensor]], named: dict[str, Any]) -> Callable[[], object]:
    call = next(calls(name, tensors, named), None)
    if call is None:
        raise CannotMakeError(f"no overload of '{name}' takes {len(tensors)} tensors")
    return call


def foreach(one: Foreach, arena: Arena) -> Made:
    """Return the call of an operator on lists of tensors.

    Raises:
        CannotMakeError: torch has no such operator, or none on this number of lists.
    """
    dtype, named = torch_dtype(one.dtype), dict[str, Any]()
    if one.name.startswith("_fused_"):
        named = _steps(one, arena)
    is_made = not one.name.endswith("_") and one.written > 0
    count = _lists(one) - is_made
    lists = [arena.tensors(one.numels, dtype, is_changed=True)]
    lists += [arena.tensors(one.numels, dtype, is_changed=bool(named)) for _ in range(count - 1)]
    if is_made:
        arena.result(sum(one.numels), dtype)
    return Made(_first(one.name, lists, named))


def _lists(one: Foreach) -> int:
    """Return the number of lists that the kernel handles; if the first tensor has one element, only one is
    described.
    """
    if one.numels[0] > 1 or not one.name.startswith("_fused_"):
        return one.lists
    return {"_fused_sgd_": 3, "_fused_adagrad_": 3}.get(one.name, 4)


def _steps(one: Foreach, arena: Arena) -> dict[str, Any]:
    """Return the values of a fused optimizer's parameters besides its lists."""
    count = arena.tensor((len(one.numels),), torch.float32, is_changed=True).fill_(1)
    named: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "lr": 1e-3}
    named |= {"momentum": 0.9, "dampening": 0.0, "lr_decay": 0.0}
    if one.name in ("_fused_adam_", "_fused_adamw_"):
        is_amsgrad = one.lists > 4
        named |= {"amsgrad": is_amsgrad}
    if one.name != "_fused_sgd_":
        named["state_steps"] = list(count.unbind())
    elif one.lists < 3 and one.numels[0] > 1:
        named |= {"momentum_buffer_list": [], "momentum": 0.0}
    return named
