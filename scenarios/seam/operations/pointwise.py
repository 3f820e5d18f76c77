"""Element-by-element operators as pure data: the operands that a call reads and writes, and their memory layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from scenarios.seam.operations.operation import DescribedOperator, Words

# An operand: its dtype, and its stride in elements in each of the result's dimensions (0: broadcast).
Strided = tuple[str, tuple[int, ...]]


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
class Pointwise(DescribedOperator):
    """A call of a pointwise operator, a fill, a cast or a copy on the device.

    `name` is torch's, without the overload ("add", "gelu_backward", "copy_"). `elements` is the result's number of
    elements, `dims` the number of dimensions after merging those adjacent in all operands: 1 if all are contiguous.
    """

    name: str
    elements: int
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    dims: int = 1

    def words(self) -> Words:
        read, written = (
            " and ".join(dict.fromkeys(each.dtype for each in all_)) for all_ in (self.inputs, self.outputs)
        )
        dtypes = f"{read} to {written}" if read and written and read != written else read or written
        sizes = sorted({each.elements for each in self.inputs} - {self.elements}, reverse=True)
        broadcast = f" with {', '.join(map(str, sizes))}" if sizes else ""
        strided = f", {self.dims} dimensions" if self.dims > 1 else ""
        return self.name, f"{self.elements}{broadcast}, {dtypes}{strided}"


def contiguous(name: str, elements: int, dtype: str, *, inputs: int = 1, outputs: int = 1) -> Pointwise:
    """Return a call whose operands are all contiguous, with `elements` elements and one dtype."""
    operand = Operand(dtype=dtype, elements=elements)
    return Pointwise(name=name, elements=elements, inputs=(operand,) * inputs, outputs=(operand,) * outputs)


def stream_call(name: str, dtype: str, *, read: float, written: float) -> Pointwise:
    """Return a call that reads `read` and writes `written` contiguous elements."""
    inputs = (Operand(dtype=dtype, elements=round(read)),) if read else ()
    outputs = (Operand(dtype=dtype, elements=round(written)),) if written else ()
    return Pointwise(name=name, elements=round(max(read, written)), inputs=inputs, outputs=outputs)


def strided_call(name: str, shape: Sequence[int], inputs: Sequence[Strided], outputs: Sequence[Strided]) -> Pointwise:
    """Return a call of operands given by their strides, with neighbouring dimensions merged as torch merges them.

    `shape` is the result's; the strides are those of operands expanded to it. The innermost dimension is the one along
    which the first output's elements are neighbours.
    """
    every = (*inputs, *outputs)
    kept = [axis for axis, extent in enumerate(shape) if extent != 1]
    kept.sort(key=lambda axis: (outputs[0][1][axis], -axis))
    merged: list[tuple[int, tuple[int, ...]]] = []  # innermost first: extent, each operand's stride
    for axis in kept:
        steps = tuple(strides[axis] for _, strides in every)
        if merged and all(step == merged[-1][0] * inner for step, inner in zip(steps, merged[-1][1], strict=True)):
            merged[-1] = (merged[-1][0] * shape[axis], merged[-1][1])
        else:
            merged.append((shape[axis], steps))
    innermost = merged[0][1] if merged else (1,) * len(every)
    operands = [
        Operand(
            dtype=dtype,
            elements=prod(extent for extent, steps in merged if steps[place]),
            stride=innermost[place] or 1,
        )
        for place, (dtype, _) in enumerate(every)
    ]
    dims = len(merged) if len(merged) > 1 else 1 if all(step == 1 for step in innermost) else 2
    return Pointwise(
        name=name,
        elements=prod(shape),
        inputs=tuple(operands[: len(inputs)]),
        outputs=tuple(operands[len(inputs) :]),
        dims=dims,
    )
