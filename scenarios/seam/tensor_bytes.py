"""A tensor's own bytes, for what moves tensors of any type; which bytes go where is left to the worlds."""

from __future__ import annotations

import torch
from torch import Tensor


def resolved(tensor: Tensor) -> Tensor:
    """The same memory, unless it is a conjugate or negative view: these have none that says what they hold."""
    if tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg()
    return without_grad(tensor)


def without_grad(tensor: Tensor) -> Tensor:
    """The same memory, of which no gradient is recorded."""
    return tensor.detach() if tensor.requires_grad else tensor


def as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, of any dtype: a flat uint8 view of the same memory."""
    # A contiguous tensor of one element or none may have any strides: as numpy's empty arrays, 0.
    return resolved(tensor).as_strided((tensor.numel(),), (1,)).view(torch.uint8)
