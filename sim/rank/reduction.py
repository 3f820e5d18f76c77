"""Reduction in group order: exact for whole numbers, and used for libraries whose order is not observable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scenarios.seam.calls import Call


def in_group_order(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    """Reduce the inputs one after the other; the result has an input's shape."""
    arithmetic = _WIDER.get(inputs[0].dtype, inputs[0].dtype)
    total = functools.reduce(_COMBINE[call.reduce], (given.to(arithmetic) for given in inputs))
    if call.reduce != "avg":
        return total
    if total.is_complex():
        return torch.view_as_complex(torch.view_as_real(total) / call.group.size)
    return torch.div(total, call.group.size, rounding_mode=None if total.is_floating_point() else "trunc")


# Dtypes that torch cannot add on a CPU.
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.complex32: torch.complex64}
_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}
