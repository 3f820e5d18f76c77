"""Finds shapes and strides of the operands of an element-by-element operator from its description."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

from real.calibration.operators.making.arena import CannotMakeError, packed_strides
from scenarios.seam.operations.pointwise import Operand, Pointwise, Strided, strided_call

# Extents to try where the description leaves them open.
_EXTENTS = (128, 64, 1024, 32, 16, 8, 4, 12, 26, 27, 3, 2, 5, 7, 13)
_MOST_TRIED = 4096
# Operands with gaps may span this many times their elements, unless no others are found.
_DENSE = 3
# Operators in place that write without reading first.
OVERWRITTEN = frozenset({"copy_", "zero_", "fill_", "bernoulli_", "uniform_", "normal_", "random_"})

_Strides = tuple[tuple[int, ...], ...]  # of each operand


@dataclass(frozen=True, slots=True)
class Laid:
    """A layout of an operator's operands: the result's shape, and each operand's strides, expanded to the shape."""

    shape: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def lay(call: Pointwise) -> Laid:
    """Return shapes and strides that `strided_call` describes as `call`, with a choice of extents that it leaves open.

    An output that torch allocates is contiguous; an output passed in lies as described, and is the first input too
    unless the operator overwrites it.

    Raises:
        CannotMakeError: no tried layout matches the description.
    """
    every = (*call.inputs, *call.outputs)
    cut = len(call.inputs)
    if call.dims == 1 and all(each.elements == call.elements and each.stride == 1 for each in every):
        return Laid((call.elements,), ((1,),) * cut, ((1,),) * len(call.outputs))
    is_read = is_in_place(call.name) and call.name not in OVERWRITTEN
    sparse = None
    for strides, shape in islice(_candidates(call), _MOST_TRIED):
        if (not is_read or strides[0] == strides[cut]) and _fits(call, every, shape, strides):
            layout = Laid(shape, strides[:cut], strides[cut:])
            if max(_reach(each, shape) for each in strides) <= _DENSE * call.elements:
                return layout
            sparse = sparse or layout
    if sparse is None:
        raise CannotMakeError("no shapes found that lie in memory as described")
    return sparse


def _reach(steps: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))


def is_in_place(name: str) -> bool:
    """Return whether an operator changes its first argument."""
    return name.endswith("_")


def _candidates(call: Pointwise) -> Iterator[tuple[_Strides, tuple[int, ...]]]:
    """Yield strides and shapes: first of tensors without gaps, then of slices of wider tensors."""
    is_given = is_in_place(call.name)
    # New results have the order of dimensions of their inputs.
    may_permute = is_given or call.name == "clone"
    for has_gaps in (False, True):
        for shape in _shapes(call):
            inputs = [tuple(_strides(each, shape, may_permute)) for each in call.inputs]
            outputs = [
                tuple(_strides(each, shape, False)) if is_given else (packed_strides(shape),) for each in call.outputs
            ]
            for strides in product(*inputs, *outputs):
                if not has_gaps:
                    yield strides, shape
                else:
                    places = range(len(strides) if is_given else len(inputs))
                    yield from ((each, shape) for each in _pad(strides, shape, places))


def _fits(call: Pointwise, every: Sequence[Operand], shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> bool:
    operands: list[Strided] = [(each.dtype, steps) for each, steps in zip(every, strides, strict=True)]
    cut = len(call.inputs)
    return strided_call(call.name, shape, operands[:cut], operands[cut:]) == call


def _shapes(call: Pointwise) -> Iterator[tuple[int, ...]]:
    """Yield shapes with the described number of dimensions, innermost last."""
    whole, every = call.elements, (*call.inputs, *call.outputs)
    sizes = {each.elements for each in every} | {each.stride for each in every}
    sizes |= {whole // each for each in sizes if each and whole % each == 0}
    sizes |= {a // b for a in sizes for b in sizes if b and a % b == 0}
    extents = [each for each in (*sorted(sizes, reverse=True), *_EXTENTS) if 1 < each < whole and whole % each == 0]
    # Transposed operands without gaps first.
    across = [whole // each.stride for each in every if each.stride > 1 and whole % each.stride == 0]
    extents = list(dict.fromkeys(each for each in (*across, *extents) if 1 < each < whole))
    for inner in product(extents, repeat=max(call.dims, 2) - 1):
        size = math.prod(inner)
        if whole % size == 0 and whole > size:
            yield whole // size, *inner
    if call.dims == 2:  # one dimension, of which an operand is every other element
        yield (whole,)


def _strides(operand: Operand, shape: tuple[int, ...], may_permute: bool) -> Iterator[tuple[int, ...]]:
    """Yield possible strides of a shape, broadcast from an operand of the described number of elements and stride."""
    axes = range(len(shape))
    for count in range(len(shape), -1, -1):
        for own in combinations(axes, count):
            if math.prod(shape[axis] for axis in own) == operand.elements:
                yield from _steps(own, shape, operand.stride, may_permute)


def _steps(own: tuple[int, ...], shape: tuple[int, ...], inner: int, may_permute: bool) -> Iterator[tuple[int, ...]]:
    """Yield strides of the dimensions `own`; the innermost dimension, if it is one of them, has the step `inner`."""
    last = len(shape) - 1
    if not own or own[-1] != last or inner == 1:
        orders = [own] if inner == 1 else []
        if may_permute and inner == 1 and len(own) > 1 and own[-1] == last:  # outer dimensions in another order
            orders.append((*reversed(own[:-1]), last))
        for order in orders:
            yield _pack(order, shape)
        return
    # Other dimensions lie between neighbours of the innermost one as far as they fit, and the rest beyond.
    steps, inside, outside = [0] * len(shape), 1, inner * shape[last]
    steps[last] = inner
    for axis in reversed(own[:-1]):
        if inside * shape[axis] <= inner:
            steps[axis], inside = inside, inside * shape[axis]
        else:
            steps[axis], outside = outside, outside * shape[axis]
    yield tuple(steps)


def _pack(order: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, size = [0] * len(shape), 1
    for axis in reversed(order):
        steps[axis], size = size, size * shape[axis]
    return tuple(steps)


def _pad(strides: _Strides, shape: tuple[int, ...], places: Sequence[int]) -> Iterator[_Strides]:
    """Yield the strides with one operand, or all operands of its layout, cut out of wider tensors."""
    for steps in dict.fromkeys(strides[place] for place in places):
        order = sorted((axis for axis in range(len(shape)) if steps[axis]), key=lambda axis: -steps[axis])
        wider, step = list(steps), 0
        for axis in reversed(order):
            if step:
                wider[axis] = step
            else:
                step = steps[axis]
            step = (wider[axis] * shape[axis] + 7) // 8 * 8 + 8
        if len(order) < 2:
            continue
        same_layout = [place for place in places if strides[place] == steps]
        for changed in (same_layout[:1], same_layout[-1:], [same_layout[0], same_layout[-1]]):
            yield tuple(tuple(wider) if place in changed else each for place, each in enumerate(strides))
