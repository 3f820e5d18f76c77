"""Setting of tensors' data across the CPU and a simulated GPU: parameters stay the same objects when modules move.

`Module._apply` asks torch whether a moved tensor may become a parameter's `data`. torch agrees on a real GPU, but not
for CPU and meta tensors, so that the module would get new parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from scenarios.workloads.script.gpu.known_values import Shadows, is_meta, wraps

_BASE: Any = torch._C.TensorBase
_DATA, _GRAD = _BASE.data, _BASE.grad

# For tensors that moved, the C++ tensor on the other device if C++ still refers to it: a graph's nodes add gradients to
# the tensor that was on the GPU when the graph was made, as in FSDP that keeps its shards on the CPU.
_twins = WeakIdKeyDictionary()
# Gradients that stayed on the old device of their tensors.
_left = WeakIdKeyDictionary()


def keep_parameters(shadows: Shadows) -> None:
    """Make `tensor.data = value` and moves of modules change tensors in place, across the CPU and the GPU."""
    tensor: Any = Tensor
    tensor.data, tensor.grad = property(_get_data, _set_data), property(_get_grad, _set_grad, _delete_grad)
    usual = torch._has_compatible_shallow_copy_type

    def may_be_set(one: Tensor, other: Tensor) -> bool:
        if wraps(one) or wraps(other) or shadows.is_of_gpu(one) == shadows.is_of_gpu(other):
            return bool(usual(one, other))
        return _is_dense(one, shadows) and _is_dense(other, shadows)

    torch._has_compatible_shallow_copy_type = may_be_set  # type: ignore[assignment]


def _is_dense(tensor: Tensor, shadows: Shadows) -> bool:
    """Return whether a tensor is dense and, on a machine with a real GPU, would hold values."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.layout == torch.strided and (shadows.is_of_gpu(tensor) or not is_meta(tensor))


def _get_data(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():  # a torch function would read this property again
        found: Tensor = _DATA.__get__(tensor)
    return found


def _set_data(tensor: Tensor, value: Tensor) -> None:
    """Set `tensor.data`, also across the CPU and the GPU, whose tensors are of different kinds in C++.

    Raises:
        RuntimeError: autograd has computed `tensor`, and `value` is on another device.
    """
    if is_meta(tensor) == is_meta(value):
        _replace(tensor, value)
        return
    if tensor.grad_fn is not None:
        raise RuntimeError(
            "tensor.data of what autograd has computed cannot be set to a tensor of another device on simulated GPUs:"
            " expected tensor.to(device)"
        )
    gradient, before, after = tensor.grad, tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    other = _twins.pop(tensor, None)
    if other is None:
        other = value.detach()
    else:
        _replace(other, value)
    # Swap only the C++ tensors: the Python object, its attributes and references stay. C++ holds hooks and gradient.
    torch._C._swap_tensor_impl(tensor, other.requires_grad_(tensor.requires_grad))
    tensor._backward_hooks, tensor._post_accumulate_grad_hooks = before, after
    if other._use_count() > 1:
        _keep_twin(tensor, other)
    if gradient is not None:
        _hold(tensor, gradient)
    for owner in [each for each, found in _left.items() if found is tensor]:
        _hold(owner, tensor)  # `tensor` is a gradient that follows its parameter


def _hold(tensor: Tensor, gradient: Tensor) -> None:
    """Store a tensor's gradient, also one that C++ would refuse because the data is elsewhere."""
    _left[tensor] = gradient
    if is_meta(tensor) == is_meta(gradient) and (tensor.shape, tensor.dtype) == (gradient.shape, gradient.dtype):
        _set_grad(tensor, gradient)


def _keep_twin(tensor: Tensor, twin: Tensor) -> None:
    """Keep `twin` as the C++ tensor that `tensor` gets back on that device; until then it takes no memory."""
    twin.grad = None
    # Another dtype makes autograd give the tensor a new node, as it does when data comes from another device.
    dtype = torch.float32 if twin.dtype == torch.float64 else torch.float64
    with torch.no_grad():
        # Empty, so that the memory of the tensor's old place is free while the tensor is elsewhere.
        _replace(twin, twin.new_empty(0, dtype=dtype))
    _twins[tensor] = twin


def _replace(tensor: Tensor, value: Tensor) -> None:
    with torch._C.DisableTorchFunction():
        _DATA.__set__(tensor, value)


def _get_grad(tensor: Tensor) -> Tensor | None:
    with torch._C.DisableTorchFunction():
        found: Tensor | None = _GRAD.__get__(tensor)
    return _left.get(tensor) if found is None and len(_left) else found


def _set_grad(tensor: Tensor, value: Tensor | None) -> None:
    _left.pop(tensor, None)
    with torch._C.DisableTorchFunction():
        _GRAD.__set__(tensor, value)


def _delete_grad(tensor: Tensor) -> None:
    _set_grad(tensor, None)
