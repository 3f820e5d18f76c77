"""Finds the overload of a torch operator that takes given tensors, and fills in its other parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

# Values for parameters without a default: a number of any kind, an integer, a flag.
_NUMBER, _WHOLE, _IS_SO = 0.5, 1, False
_MISSING = object()
# Values by name for parameters whose usual value would run another operator.
_NAMED: Mapping[str, Any] = {"train": True, "lr": 1e-3, "is_first_step": False, "exponent": 2, "ord": 2}
# Overloads that take a number where these take a tensor of the same name; torch prefers these.
_TENSORS_FIRST = ("Tensor", "self", "List", "default")


def calls(
    name: str, tensors: Sequence[Tensor | Sequence[Tensor]], named: Mapping[str, Any] | None = None
) -> Iterator[Callable[[], object]]:
    """Yield calls of `torch.ops.aten.NAME` with all tensors, or lists of tensors, in order; torch's preferred ones
    first. `named` are values of further parameters.
    """
    packet = getattr(torch.ops.aten, name, None)
    overloads = () if packet is None else packet.overloads()
    order = sorted(overloads, key=lambda each: (each not in _TENSORS_FIRST, "Scalar" not in each))
    for with_number in (False, True):
        for each in order:
            overload = getattr(packet, each)
            filled = _fill_arguments(overload._schema.arguments, list(tensors), named or {}, with_number)
            if filled is not None:
                args, kwargs = filled
                yield partial(overload, *args, **kwargs)


def _fill_arguments(
    parameters: Sequence[Any], tensors: list[Any], named: Mapping[str, Any], with_number: bool
) -> tuple[list[Any], dict[str, Any]] | None:
    """Return positional and named arguments; None if the tensors do not fit.

    `with_number`: the last parameter that is a tensor may be a number, as in `x * 2`.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one in parameters:
        if one.is_out:
            return None
        value = _value(one, tensors, named, with_number)
        if value is _MISSING:
            return None
        if one.kwarg_only:
            kwargs[one.name] = value
        else:
            args.append(value)
    return None if tensors else (args, kwargs)


def _value(one: Any, tensors: list[Any], named: Mapping[str, Any], with_number: bool) -> Any:
    """Return a parameter's value, for tensors the next tensor; `_MISSING` if there is none."""
    kind = str(one.type)
    if one.name in named:
        return named[one.name]
    if kind in ("Tensor", "List[Tensor]"):
        return _tensor(one.name, kind, tensors, with_number)
    if one.has_default_value():
        return one.default_value
    usual = {"number": _NUMBER, "float": _NUMBER, "int": _WHOLE, "bool": _IS_SO}
    return _NAMED.get(one.name, None if kind.startswith("Optional[") else usual.get(kind, _MISSING))


def _tensor(name: str, kind: str, tensors: list[Any], with_number: bool) -> Any:
    is_list = bool(tensors) and not isinstance(tensors[0], Tensor)
    if tensors and is_list == (kind != "Tensor"):
        return tensors.pop(0)
    if kind == "Tensor":
        return torch.tensor(_NUMBER, dtype=torch.float64) if with_number and name in _NUMBERS else _MISSING
    return [] if name.startswith("max_") and not tensors else _MISSING


# Parameters that accept Python numbers in place of tensors.
_NUMBERS = frozenset({"other", "value", "exponent", "min", "max", "end", "weight"})
