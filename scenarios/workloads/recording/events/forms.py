"""Checks of values in a recording, a file that users hand in: each returns whether a value has the form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import is_operation
from scenarios.seam.roles import ROLES
from scenarios.sharding_kind import ShardingKind

MOST_RANKS = 1 << 20
_MOST = 1 << 62  # so that sums of whole numbers fit into 64 bits
_MOST_ELEMENTS = 1 << 48  # of a tensor
_DEEPEST = 8  # levels of nested kernels
_KERNEL = {field.name: field.type for field in fields(Kernel)}

Form = Callable[[Any], bool]


def is_anything(value: Any) -> bool:
    """Accept any value of a line."""
    return True


def is_flag(value: Any) -> bool:
    """Return whether the value is True or False."""
    return type(value) is bool


def is_integer(value: Any) -> bool:
    """Return whether the value is an integer of any sign."""
    return type(value) is int


def is_whole(value: Any) -> bool:
    """Return whether the value is a non-negative integer below 2^62."""
    return type(value) is int and 0 <= value < _MOST


def is_below(most: int, value: Any) -> bool:
    """Return whether the value is a non-negative integer below `most`."""
    return type(value) is int and 0 <= value < most


def is_count(value: Any) -> bool:
    """Return whether the value is a possible number of ranks, hosts or steps."""
    return type(value) is int and 0 < value <= MOST_RANKS


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number."""
    return type(value) in (int, float) and math.isfinite(value)


def is_text(value: Any) -> bool:
    """Return whether the value is a string."""
    return isinstance(value, str)


def is_role(value: Any) -> bool:
    """Return whether the value is a role of `scenarios.seam.roles`, or "" for none."""
    return value == "" or (is_text(value) and value in ROLES)


def is_sharding(value: Any) -> bool:
    """Return whether the value is a `ShardingKind`, or "" for none."""
    return value == "" or (is_text(value) and value in tuple(ShardingKind))


def is_table(value: Any) -> bool:
    """Return whether the value is a dict."""
    return isinstance(value, dict)


def is_list(value: Any, holds: Form) -> bool:
    """Return whether the value is a list whose elements all pass the check `holds`."""
    return isinstance(value, list) and all(map(holds, value))


def is_row(value: Any, *forms: Form) -> bool:
    """Return whether the value is a list with one value of each form, in order."""
    is_long = isinstance(value, list) and len(value) == len(forms)
    return is_long and all(form(one) for form, one in zip(forms, value, strict=True))


def is_tensors(value: Any) -> bool:
    """Return whether the value is a list of [shape, dtype, whether the tensor's values were known]."""
    return is_list(value, lambda one: is_row(one, _is_shape, is_text, is_flag))


def _is_shape(value: Any) -> bool:
    return is_list(value, is_whole) and math.prod(value) <= _MOST_ELEMENTS


def is_kernel(value: Any, depth: int = 0) -> bool:
    """Return whether the value is a dict of the fields of a `Kernel`, at most `_DEEPEST` levels of parts deep."""
    if not isinstance(value, dict) or not set(value) <= set(_KERNEL) or "kind" not in value or depth > _DEEPEST:
        return False
    return all(_is_figure(name, figure, depth) for name, figure in value.items()) and all(
        place < len(value.get("parts", ())) for _, runs in value.get("layers", ()) for place, _ in runs
    )


def _is_figure(name: str, figure: Any, depth: int) -> bool:
    """Return whether a value fits the field of a `Kernel` with this name."""
    if name == "parts":
        return is_list(figure, lambda one: is_kernel(one, depth + 1))
    of_fields = {"operations": lambda one: is_list(one, is_operation), "host": is_host_work}
    of_fields["layers"] = lambda one: is_list(one, _is_layer)
    of_types = {"str": is_text, "int": is_whole}
    form: Form = of_fields.get(name) or of_types.get(str(_KERNEL[name]), _is_amount)
    return form(figure)


def _is_layer(value: Any) -> bool:
    """Return whether the value is a [path, runs] pair of `Layers`."""
    return is_row(value, is_text, lambda runs: is_list(runs, lambda run: is_pair(run) and run[1] > 0))


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0


def is_verb(value: Any) -> bool:
    """Return whether the value can name a verb of `Rank`: a public identifier."""
    return is_text(value) and value.isidentifier() and not value.startswith("_")


def is_group(value: Any) -> bool:
    """Return whether the value is a non-empty list of distinct ranks."""
    return is_list(value, is_whole) and len(value) == len(set(value)) > 0


def is_host_work(value: Any) -> bool:
    """Return whether the value is a list with one count per field of `HostWork`."""
    return is_row(value, *[is_whole] * len(HostWork._fields))


def is_cpu_work(value: Any) -> bool:
    """Return whether the value is a list of CPU computations: [what, the script's line, counts of `HostWork`]."""
    return is_list(value, lambda one: is_row(one, is_text, is_text, is_host_work))


def is_batch(value: Any) -> bool:
    """Return whether the value holds the five fields of a `LoadedBatch`."""
    return is_row(value, *[is_whole] * 4, is_text) and 0 < value[1] * value[2] <= MOST_RANKS


def is_replica(value: Any) -> bool:
    """Return whether it is a replica, as `ReplicaGradients` has it."""
    return is_row(value, is_whole, is_whole, is_flag, lambda shapes: isinstance(shapes, list))


def is_metric(value: Any) -> bool:
    """Return whether the value is a [name, value] pair of a metric."""
    return is_row(value, is_text, is_anything)


def is_pair(value: Any) -> bool:
    """Return whether the value is a list of two non-negative integers."""
    return is_row(value, is_whole, is_whole)
