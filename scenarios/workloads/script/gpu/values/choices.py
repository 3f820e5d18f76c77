"""Integers and masks that an operator chooses among unknown scores, such as predicted classes.

No size follows from them: where a script reads them, any will do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from scenarios.workloads.script.gpu.known_values import Shadows

# Operators whose integer results are choices, if their values are unknown.
_CHOOSE = frozenset(
    {"argmax", "argmin", "topk", "sort", "argsort", "max", "min", "median", "mode", "kthvalue", "multinomial"}
)
# Operators whose results are choices if an argument is: they move choices, or compare them one by one.
_FOLLOW = frozenset(
    {
        *("cat", "stack", "clone", "index", "index_select", "gather", "take", "where", "flip", "roll", "repeat"),
        *("_to_copy", "copy_", "_unsafe_view", "index_put_", "_index_put_impl_", "masked_fill", "masked_fill_"),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or"),
    }
)


def note_choices(shadows: Shadows, func: Any, given: Iterable[Tensor], made: Iterable[Tensor]) -> None:
    """Note which of an operator's unknown results `made` are choices, from its tensors `given`."""
    name = func.overloadpacket.__name__
    if name in _CHOOSE or (name in _FOLLOW and any(map(shadows.is_choice, given))):
        shadows.note_choices(made)
