"""A cache of operators' results and costs by the shapes of their arguments, as layers and steps repeat."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scenarios.modules.precision import rounds_to_tf32
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.gpu.known_values import META, is_meta

# Limits of cached calls and of parts of their keys; beyond either the cache is cleared, as shapes may vary by step.
_MOST_CALLS, _MOST_PARTS = 20_000, 500_000
_TENSORS = frozenset({Tensor, torch.nn.Parameter})
_VALUES = frozenset(
    {int, bool, str, float, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
)
_OF_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}


class CallOutcome(NamedTuple):
    """The outcome of a call, which calls with the same key share.

    Attributes:
        made: shape, stride and dtype of each new tensor.
        row: the type of the sequence that holds the new tensors; None: a single tensor.
        is_first: whether the result is the first argument; `made` is empty then.
        kernel: the kernel, if any.
        decides: whether the result's values may be needed.
    """

    made: tuple[tuple[Any, Any, torch.dtype], ...]
    row: type | None
    is_first: bool
    kernel: Kernel | None
    decides: bool

    def again(self, args: tuple[Any, ...]) -> Any:
        """Return the result of another call with these arguments."""
        if not self.made:
            return args[0] if self.is_first else None
        with torch._C.DisableTorchFunction():
            made = [torch.empty_strided(shape, stride, dtype=dtype, device=META) for shape, stride, dtype in self.made]
        return made[0] if self.row is None else self.row(made)


class Repeated:
    """A cache of calls' outcomes."""

    def __init__(self) -> None:
        self._known: dict[Any, CallOutcome] = {}
        self._parts = 0

    def find(self, key: Any) -> CallOutcome | None:
        """Return the outcome of an earlier call with this key; None if there was none, or the key is None."""
        return None if key is None else self._known.get(key)

    def note(
        self, key: Any, given: list[Tensor], result: Any, first: Any, kernel: Kernel | None, decides: bool
    ) -> None:
        """Store a call's outcome if repeatable: new tensors that fill their storages, the first argument, or None.

        `given` are the tensors among the arguments, `first` is the first argument.
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
        # Tried once: tensors made by shape and stride must have storages of the same sizes as the operator's own.
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
    """Return a key of all that decides an operator's result shapes and price; None if values may decide."""
    if not _is_repeatable(func):
        return None
    # Settings that decide dtypes and prices of results belong to the key, though they are no arguments.
    parts = [func, torch.get_default_dtype(), rounds_to_tf32()]
    numbers: dict[int, int] = {}  # tell repeated arguments apart from equal ones
    is_known = _note(args, parts, numbers, has_floats := _has_floats(func))
    for name, value in kwargs.items():
        parts.append(name)
        is_known = is_known and _note(value, parts, numbers, has_floats)
    return tuple(parts) if is_known else None


def _note(value: Any, parts: list[Any], numbers: dict[int, int], has_floats: bool) -> bool:
    """Append an argument to a key's parts; return False if the call cannot be cached.

    Floats count by type only, unless `has_floats`.
    """
    kind = type(value)
    if kind in _TENSORS:
        dtype = value.dtype
        is_on_gpu = is_meta(value)
        if dtype.is_complex or value.layout is not torch.strided:
            return False
        if not (is_on_gpu or dtype.is_floating_point):  # integers on the CPU may be sizes
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
    """Return whether float arguments may decide shapes.

    Elementwise operators' and optimizers' list operators' do not, and their floats vary from step to step.
    """
    is_of_lists = func.overloadpacket.__name__.startswith(("_foreach_", "_fused_"))
    return not is_of_lists and torch.Tag.pointwise not in func.tags


@cache
def _is_repeatable(func: Any) -> bool:
    """Return whether shapes alone decide an operator's result, which lies in new storages or in those of arguments."""
    is_plain = not func.is_view and _OF_VALUES.isdisjoint(func.tags) and "resize" not in func.overloadpacket.__name__
    has_out = any(each.is_out for each in func._schema.arguments)
    return func.namespace == "aten" and is_plain and not has_out and func.overloadpacket is not torch.ops.aten.set_
