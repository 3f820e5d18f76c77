"""Remembers what torch's operators give and cost, by the shapes of what they are given, as layers and steps repeat."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scenarios.modules.operators import rounds_to_tf32
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.gpu.known_values import META, is_meta

# Calls that are remembered, and parts of their keys; then all are forgotten, as shapes may differ from step to step.
_MOST_CALLS, _MOST_PARTS = 20_000, 500_000
_TENSORS = frozenset({Tensor, torch.nn.Parameter})
_VALUES = frozenset(
    {int, bool, str, float, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
)
_OF_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}


class CallOutcome(NamedTuple):
    """What a call gave: new tensors of these shapes, strides and types, alone, as a `row` of a type, or nothing new,
    with `is_first` its first argument; its kernel; whether its values may decide something.
    """

    made: tuple[tuple[Any, Any, torch.dtype], ...]
    row: type | None
    is_first: bool
    kernel: Kernel | None
    decides: bool

    def again(self, args: tuple[Any, ...]) -> Any:
        """Return what a call with such arguments gives."""
        if not self.made:
            return args[0] if self.is_first else None
        with torch._C.DisableTorchFunction():
            made = [torch.empty_strided(shape, stride, dtype=dtype, device=META) for shape, stride, dtype in self.made]
        return made[0] if self.row is None else self.row(made)


class Repeated:
    """A memory of calls' outcomes."""

    def __init__(self) -> None:
        self._known: dict[Any, CallOutcome] = {}
        self._parts = 0

    def find(self, key: Any) -> CallOutcome | None:
        """Return the outcome of the call of this key; None if there was none, or the call has no key."""
        return None if key is None else self._known.get(key)

    def note(
        self, key: Any, given: list[Tensor], result: Any, first: Any, kernel: Kernel | None, decides: bool
    ) -> None:
        """Note the outcome of a call, `result` of the tensors `given` and the `first` argument, if another call with
        this key gives the like: new tensors that fill storages of their own, its first argument, or nothing.
        """
        if result is None or (result is first and key[0]._schema.is_mutable):
            self._keep(key, CallOutcome((), None, result is not None, kernel, decides))
            return
        row = type(result) if type(result) in (tuple, list) else None
        made = list(result) if row is not None else [result]
        taken = {each.untyped_storage()._cdata for each in given}
        if key[0]._schema.is_mutable or not made or not all(type(each) is Tensor and is_meta(each) for each in made):
            return
        found = tuple((each.shape, each.stride(), each.dtype) for each in made)
        known = CallOutcome(found, row, False, kernel, decides)
        again = [known.again(())] if row is None else known.again(())
        for each, other in zip(made, again, strict=True):
            storage = each.untyped_storage()
            if storage._cdata in taken or each.storage_offset() or storage.nbytes() != other.untyped_storage().nbytes():
                return
            taken.add(storage._cdata)
        self._keep(key, known)

    def _keep(self, key: Any, outcome: CallOutcome) -> None:
        if len(self._known) >= _MOST_CALLS or self._parts >= _MOST_PARTS:
            self._known.clear()
            self._parts = 0
        self._known[key] = outcome
        self._parts += len(key) + len(outcome.made)


def key_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what decides about the shapes and the price of an operator's results; None where values may decide."""
    if not _is_repeatable(func):
        return None
    parts = [func, torch.get_default_dtype(), rounds_to_tf32()]
    numbers: dict[int, int] = {}  # the same tensor may be given twice
    is_known = _note(args, parts, numbers, has_floats := _has_floats(func))
    for name, value in kwargs.items():
        parts.append(name)
        is_known = is_known and _note(value, parts, numbers, has_floats)
    return tuple(parts) if is_known else None


def _note(value: Any, parts: list[Any], numbers: dict[int, int], has_floats: bool) -> bool:
    """Add an argument to the parts of a key; return False if it has no place there. Without `has_floats` their kinds
    alone count of floats.
    """
    kind = type(value)
    if kind in _TENSORS:
        dtype = value.dtype
        is_on_gpu = is_meta(value)
        if dtype.is_complex or value.layout is not torch.strided:
            return False
        if not (is_on_gpu or dtype.is_floating_point):  # sizes may be its values
            return False
        number = numbers.setdefault(id(value), len(numbers))
        parts.append((value.shape, value.stride(), dtype, number, is_on_gpu))
        return True
    if kind in _VALUES:
        parts.append((kind, value if has_floats or kind is not float else None))
        return True
    if kind is list or kind is tuple:
        parts.append((kind, len(value)))
        return all(_note(each, parts, numbers, has_floats) for each in value)
    return False


@cache
def _has_floats(func: Any) -> bool:
    """Return whether floats may decide about shapes: not where an operator works element by element, or on lists, as
    those of optimizers do, whose floats differ from step to step.
    """
    is_of_lists = func.overloadpacket.__name__.startswith(("_foreach_", "_fused_"))
    return not is_of_lists and torch.Tag.pointwise not in func.tags


@cache
def _is_repeatable(func: Any) -> bool:
    """Return whether shapes alone decide what an operator gives, in storages that are new or that it is given."""
    is_plain = not func.is_view and _OF_VALUES.isdisjoint(func.tags) and "resize" not in func.overloadpacket.__name__
    has_out = any(each.is_out for each in func._schema.arguments)
    return func.namespace == "aten" and is_plain and not has_out and func.overloadpacket is not torch.ops.aten.set_
