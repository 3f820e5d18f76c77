"""Element-by-element operators as pure data: what a call reads and writes, and how its operands lie in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor that a pointwise operator reads or writes.

    `elements` counts each element once where the operand is broadcast. `stride` is the distance, in elements, between
    neighbours along the result's innermost dimension: 1 for a contiguous operand, 27 for the transpose of [128, 27].
    """

    dtype: str
    elements: int
    stride: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """One call of a pointwise operator, a fill, a cast or a copy on the device.

    `name` is torch's, without the overload ("add", "gelu_backward", "copy_"). `elements` is the result's number of
    elements, `dims` the number of dimensions that are left once those that lie next to each other in all operands have
    been merged: 1 if everything is contiguous.
    """

    name: str
    elements: int
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    dims: int = 1


def contiguous(name: str, elements: int, dtype: str, *, inputs: int = 1, outputs: int = 1) -> Pointwise:
    """Return a call whose operands are all contiguous, of `elements` elements and of one dtype."""
    operand = Operand(dtype=dtype, elements=elements)
    return Pointwise(name=name, elements=elements, inputs=(operand,) * inputs, outputs=(operand,) * outputs)
