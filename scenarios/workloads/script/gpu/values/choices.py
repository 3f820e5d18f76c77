"""Integers and masks that an operator chooses among unknown scores, such as predicted classes.

No size follows from them: where a script reads them, any will do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.known_values import Shadows

# Operators whose integer results are choices among floats that are unknown.
_CHOOSE = frozenset(
    {"argmax", "argmin", "topk", "sort", "argsort", "max", "min", "median", "mode", "kthvalue", "multinomial"}
)
# Operators whose results are choices if an argument is: they move choices, or compare them one by one.
_FOLLOW = frozenset(
    {
        *("cat", "stack", "clone", "index", "index_select", "gather", "take", "where", "flip", "roll", "repeat"),
        *("copy_", "_unsafe_view", "index_put_", "_index_put_impl_", "masked_fill", "masked_fill_"),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or"),
    }
)
# Operators that compute with choices. Of masks they make counts, from which sizes may follow.
_COMPUTE = frozenset({"_to_copy", "add", "sub", "mul", "neg", "remainder", "floor_divide", "clamp", "sum"})
_NOTED = _CHOOSE | _FOLLOW | _COMPUTE


def note_choices(shadows: Shadows, func: Any, given: Iterable[Tensor], made: Iterable[Tensor]) -> None:
    """Note which of an operator's unknown results `made` are choices, from its tensors `given`."""
    name = func.overloadpacket.__name__
    if name not in _NOTED:
        return
    given = list(given)
    if name in _CHOOSE and given[0].is_floating_point():
        shadows.note_choices(made)
    else:
        chosen = [each for each in given if shadows.is_choice(each)]
        counts = name in _COMPUTE and any(each.dtype == torch.bool for each in chosen)
        if chosen and not counts:
            shadows.note_choices(made)
