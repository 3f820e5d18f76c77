"""Creates the arguments of a torch call on the meta device from a profiler's trace.

A trace has, for each argument in the order of the operator's schema, dimensions, strides and a type, and for numbers
the value as text. An argument without text or tensor type is None, a device, a string, or a list of tensors some of
which are None: it gets the parameter's default.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Torch's names of C++ types in traces.
DTYPES = {
    "float": torch.float32, "double": torch.float64, "c10::Half": torch.float16, "c10::BFloat16": torch.bfloat16,
    "long int": torch.int64, "long": torch.int64, "int": torch.int32, "short": torch.int16,
    "signed char": torch.int8, "unsigned char": torch.uint8, "bool": torch.bool,
    "c10::complex<float>": torch.complex64, "c10::complex<double>": torch.complex128,
    "c10::Float8_e4m3fn": torch.float8_e4m3fn, "c10::Float8_e5m2": torch.float8_e5m2,
}  # fmt: skip
# Indices in the enumerations of c10/core/ScalarType.h and c10/core/MemoryFormat.h.
_SCALAR_TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
    23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
}  # fmt: skip
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
# Python numbers that stand for scalar tensors.
_NUMBERS = {"double": 1.0, "long int": 1, "long": 1}
_PLACES = frozenset({"device", "layout", "pin_memory"})
_LIST, _SCALAR, _SCALARS = "TensorList", "Scalar", "ScalarList"


class NotKnownError(Exception):
    """An argument that the trace omits, and without which the operator cannot be described."""


@dataclass(frozen=True, slots=True)
class TracedArgument:
    """An operator's argument in a profiler's trace.

    Attributes:
        dims: a tensor's dimensions, or those of each tensor of a list.
        strides: strides of the same tensors, in elements; None if the trace lacks them.
        type: the type's name in the trace.
        value: a scalar's value as text.
        dtype: dtype of a list's tensors, which traces omit: assumed.
    """

    dims: Sequence[Any]
    strides: Sequence[Any] | None
    type: str
    value: str
    dtype: torch.dtype = torch.float32

    @property
    def is_tensor(self) -> bool:
        """True for a tensor."""
        return self.type in DTYPES

    @property
    def is_list(self) -> bool:
        """True for a list of tensors."""
        return self.type == _LIST


# Returns the value of an argument that is a list of tensors or None, and of which the trace says nothing.
Lists = Callable[[Any, TracedArgument], Any]


def calls(
    packet: Any, given: Sequence[TracedArgument], lists: Lists
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Yield the overloads of an operator that take these arguments, with positional and named arguments.

    `lists` returns lists of tensors that the trace leaves open.

    Raises:
        NotKnownError: by `lists`.
    """
    for name in packet.overloads():
        func = getattr(packet, name)
        declared = func._schema.arguments
        if len(declared) == len(given) and all(map(_fits, declared, given)):
            yield (func, *_arguments(func, given, lists))


def tensor(dims: Sequence[int], strides: Sequence[int] | None, dtype: torch.dtype) -> Tensor:
    """Return a meta tensor, contiguous if its strides are unknown."""
    if strides is None or len(strides) != len(dims):
        return torch.empty(tuple(dims), dtype=dtype, device="meta")
    return torch.empty_strided(tuple(dims), tuple(strides), dtype=dtype, device="meta")


def tensors(given: TracedArgument) -> list[Tensor]:
    """Return the tensors of a list argument."""
    strides = given.strides or [None] * len(given.dims)
    return [tensor(dims, own, given.dtype) for dims, own in zip(given.dims, strides, strict=True)]


def _fits(declared: Any, given: TracedArgument) -> bool:
    kind = str(declared.type)
    is_optional = kind.startswith("Optional[")
    plain = kind.removeprefix("Optional[").removesuffix("]") if is_optional else kind
    if given.is_tensor:
        return plain == "Tensor"
    if given.is_list:
        return plain.startswith(("List[Tensor", "List[Optional[Tensor"))
    if given.type == _SCALARS:
        return plain in ("List[int]", "List[float]", "List[bool]", "List[number]", "List[SymInt]")
    if given.type == _SCALAR:
        is_truth = given.value in ("True", "False")
        return plain == "bool" if is_truth else plain in ("int", "float", "number", "SymInt", "Device")
    return is_optional or plain not in ("List[Tensor]", "int", "float", "bool", "number")  # a tensor may be undefined


def _arguments(func: Any, given: Sequence[TracedArgument], lists: Lists) -> tuple[tuple[Any, ...], dict[str, Any]]:
    places: list[Any] = []
    named: dict[str, Any] = {}
    is_pointwise = torch.Tag.pointwise in func.tags
    for place, (declared, each) in enumerate(zip(func._schema.arguments, given, strict=True)):
        if declared.name in _PLACES:
            if declared.name == "device":
                named["device"] = torch.device("meta")
            continue
        value = _value(declared, each, lists, is_number=is_pointwise and place > 0)
        if declared.kwarg_only:
            named[declared.name] = value
        else:
            places.append(value)
    return tuple(places), named


def _value(declared: Any, given: TracedArgument, lists: Lists, *, is_number: bool) -> Any:
    if given.is_tensor:
        # As in torch, a Python number decides the result's dtype less than a tensor does.
        number = _NUMBERS.get(given.type) if is_number and not given.dims else None
        return tensor(given.dims, given.strides, DTYPES[given.type]) if number is None else number
    if given.is_list or "List[Optional[Tensor" in str(declared.type):
        return tensors(given) if given.is_list and given.dims else lists(declared, given)
    if not given.value or given.type not in (_SCALAR, _SCALARS):
        return given.value or declared.default_value
    value, real = _number(given.value), str(declared.real_type)
    if "ScalarType" in real:
        return _SCALAR_TYPES.get(value)
    return _MEMORY_FORMATS[value] if "MemoryFormat" in real else value


def _number(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        try:
            return float(text)  # inf, nan
        except ValueError:
            raise NotKnownError(text) from None
