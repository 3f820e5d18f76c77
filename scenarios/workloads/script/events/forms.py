"""Forms of values in a recording, which a user may hand in: each a function that says whether a value has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import is_operation

MOST_RANKS = 1 << 20
_MOST = 1 << 62  # of whole numbers, so that sums of them stay numbers of 64 bits
_DEEPEST = 8  # kernels of kernels
_KERNEL = {field.name: field.type for field in fields(Kernel)}

Form = Callable[[Any], bool]


def is_anything(value: Any) -> bool:
    """Return True."""
    return True


def is_flag(value: Any) -> bool:
    """Return whether it is true or false."""
    return type(value) is bool


def is_integer(value: Any) -> bool:
    """Return whether it is a whole number of any sign."""
    return type(value) is int


def is_whole(value: Any) -> bool:
    """Return whether it is a whole number, 0 or more."""
    return type(value) is int and 0 <= value < _MOST


def is_below(most: int, value: Any) -> bool:
    """Return whether it is a whole number below `most`."""
    return type(value) is int and 0 <= value < most


def is_count(*values: Any) -> bool:
    """Return whether all are numbers of ranks, hosts or steps."""
    return all(type(value) is int and 0 < value <= MOST_RANKS for value in values)


def is_number(value: Any) -> bool:
    """Return whether it is a finite number."""
    return type(value) in (int, float) and math.isfinite(value)


def is_text(value: Any) -> bool:
    """Return whether it is a text."""
    return isinstance(value, str)


def is_table(value: Any) -> bool:
    """Return whether it is a table of values by name."""
    return isinstance(value, dict)


def is_list(value: Any, holds: Form) -> bool:
    """Return whether it is a list of values that have a form."""
    return isinstance(value, list) and all(map(holds, value))


def is_tensors(value: Any) -> bool:
    """Return whether it is a list of tensors, each its shape, its dtype and whether its values were known."""
    return is_list(value, _is_tensor)


def _is_tensor(value: Any) -> bool:
    shape = isinstance(value, list) and len(value) == 3
    return shape and is_list(value[0], is_whole) and is_text(value[1]) and type(value[2]) is bool


def is_kernel(value: Any, depth: int = 0) -> bool:
    """Return whether it is a table of a kernel's figures."""
    if not isinstance(value, dict) or not set(value) <= set(_KERNEL) or "kind" not in value or depth > _DEEPEST:
        return False
    for name, figure in value.items():
        if name == "parts":
            if not is_list(figure, lambda one: is_kernel(one, depth + 1)):
                return False
        elif name == "operations":
            if not is_list(figure, is_operation):
                return False
        elif _KERNEL[name] == "str":
            if not is_text(figure):
                return False
        elif not (is_whole(figure) if _KERNEL[name] == "int" else is_number(figure) and figure >= 0):
            return False
    return True


def is_verb(value: Any) -> bool:
    """Return whether it can be a verb of `Rank`."""
    return is_text(value) and value.isidentifier() and not value.startswith("_")


def is_group(value: Any) -> bool:
    """Return whether it is a list of ranks, each once."""
    return is_list(value, is_whole) and len(value) == len(set(value)) > 0


def is_host_work(value: Any) -> bool:
    """Return whether it is a list of the counts of `HostWork`."""
    return is_list(value, is_whole) and len(value) == len(HostWork._fields)


def is_cpu_work(value: Any) -> bool:
    """Return whether it is a list of what a host computed, each with the line of the script and counts."""
    return is_list(value, _is_computed)


def _is_computed(value: Any) -> bool:
    is_told = isinstance(value, list) and len(value) == 3
    return is_told and is_list(value[:2], is_text) and is_host_work(value[2])


def is_batch(value: Any) -> bool:
    """Return whether it is a batch that workers have loaded, as `LoadedBatch` has it."""
    if not (isinstance(value, list) and len(value) == 5 and is_list(value[:4], is_whole) and is_text(value[4])):
        return False
    _, workers, prefetch, *_ = value
    return bool(0 < workers * prefetch <= MOST_RANKS)


def is_replica(value: Any) -> bool:
    """Return whether it is a replica, as `ReplicaGradients` has it."""
    if not (isinstance(value, list) and len(value) == 4):
        return False
    return is_list(value[:2], is_whole) and is_flag(value[2]) and isinstance(value[3], list)


def is_metric(value: Any) -> bool:
    """Return whether it is the name of a number and the number."""
    return isinstance(value, list) and len(value) == 2 and is_text(value[0])


def is_pair(value: Any) -> bool:
    """Return whether it is a list of two whole numbers."""
    return is_list(value, is_whole) and len(value) == 2
