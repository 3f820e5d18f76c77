"""Finds shapes and strides of the operands of an element-by-element operator from its description."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

from real.calibration.operators.making.arena import CannotMakeError, packed
from scenarios.seam.operations.pointwise import Operand, Pointwise, Strided, strided

# Extents that are tried where the description leaves them open.
_EXTENTS = (128, 64, 1024, 32, 16, 8, 4, 12, 26, 27, 3, 2, 5, 7, 13)
_MOST_TRIED = 4096
# Operands with gaps reach over that many times their elements, unless no others are found.
_DENSE = 3
# Operators in place that write without reading first.
OVERWRITTEN = frozenset({"copy_", "zero_", "fill_", "bernoulli_", "uniform_", "normal_", "random_"})

_Strides = tuple[tuple[int, ...], ...]  # of each operand


@dataclass(frozen=True, slots=True)
class Laid:
    """Operands of one operator: the result's shape, and the strides of each operand expanded to it."""

    shape: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def lay(call: Pointwise) -> Laid:
    """Return shapes and strides that `strided` describes as `call`; extents that it does not tell are chosen.

    An output that torch makes is contiguous; one that is given lies as described, and is the first input as well
    unless the operator overwrites it.

    Raises:
        CannotMakeError: none of those that were tried is described so.
    """
    every = (*call.inputs, *call.outputs)
    cut = len(call.inputs)
    if call.dims == 1 and all(each.elements == call.elements and each.stride == 1 for each in every):
        return Laid((call.elements,), ((1,),) * cut, ((1,),) * len(call.outputs))
    is_read = is_in_place(call.name) and call.name not in OVERWRITTEN
    sparse = None
    for strides, shape in islice(_candidates(call), _MOST_TRIED):
        if (not is_read or strides[0] == strides[cut]) and _fits(call, every, shape, strides):
            found = Laid(shape, strides[:cut], strides[cut:])
            if max(_reach(each, shape) for each in strides) <= _DENSE * call.elements:
                return found
            sparse = sparse or found
    if sparse is None:
        raise CannotMakeError("no shapes found that lie in memory as described")
    return sparse


def _reach(steps: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))


def is_in_place(name: str) -> bool:
    """Return whether an operator changes what it is given."""
    return name.endswith("_")


def _candidates(call: Pointwise) -> Iterator[tuple[_Strides, tuple[int, ...]]]:
    """Yield strides and shapes: first of tensors without gaps, then of slices of wider ones."""
    is_given = is_in_place(call.name)
    # Results of other operators have the order of dimensions of what these are given.
    may_permute = is_given or call.name == "clone"
    for has_gaps in (False, True):
        for shape in _shapes(call):
            inputs = [tuple(_strides(each, shape, may_permute)) for each in call.inputs]
            outputs = [tuple(_strides(each, shape, False)) if is_given else (packed(shape),) for each in call.outputs]
            for strides in product(*inputs, *outputs):
                if not has_gaps:
                    yield strides, shape
                else:
                    places = range(len(strides) if is_given else len(inputs))
                    yield from ((each, shape) for each in _padded(strides, shape, places))


def _fits(call: Pointwise, every: Sequence[Operand], shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> bool:
    operands: list[Strided] = [(each.dtype, steps) for each, steps in zip(every, strides, strict=True)]
    cut = len(call.inputs)
    return strided(call.name, shape, operands[:cut], operands[cut:]) == call


def _shapes(call: Pointwise) -> Iterator[tuple[int, ...]]:
    """Yield shapes of as many dimensions as are described, innermost last."""
    whole, every = call.elements, (*call.inputs, *call.outputs)
    told = {each.elements for each in every} | {each.stride for each in every}
    told |= {whole // each for each in told if each and whole % each == 0}
    told |= {a // b for a in told for b in told if b and a % b == 0}
    extents = [each for each in (*sorted(told, reverse=True), *_EXTENTS) if 1 < each < whole and whole % each == 0]
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
    """Yield ways in which an operand of so many elements may lie, expanded to the shape."""
    axes = range(len(shape))
    for count in range(len(shape), -1, -1):
        for own in combinations(axes, count):
            if math.prod(shape[axis] for axis in own) == operand.elements:
                yield from _steps(own, shape, operand.stride, may_permute)


def _steps(own: tuple[int, ...], shape: tuple[int, ...], inner: int, may_permute: bool) -> Iterator[tuple[int, ...]]:
    """Yield strides of the dimensions `own`, where the innermost of the shape has the step `inner` if it is one."""
    last = len(shape) - 1
    if not own or own[-1] != last or inner == 1:
        orders = [own] if inner == 1 else []
        if may_permute and inner == 1 and len(own) > 1 and own[-1] == last:  # outer dimensions in another order
            orders.append((*reversed(own[:-1]), last))
        for order in orders:
            yield _packed(order, shape)
        return
    # Others lie between neighbours of the innermost one as far as they fit, and the rest beyond.
    steps, inside, outside = [0] * len(shape), 1, inner * shape[last]
    steps[last] = inner
    for axis in reversed(own[:-1]):
        if inside * shape[axis] <= inner:
            steps[axis], inside = inside, inside * shape[axis]
        else:
            steps[axis], outside = outside, outside * shape[axis]
    yield tuple(steps)


def _packed(order: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, size = [0] * len(shape), 1
    for axis in reversed(order):
        steps[axis], size = size, size * shape[axis]
    return tuple(steps)


def _padded(strides: _Strides, shape: tuple[int, ...], places: Sequence[int]) -> Iterator[_Strides]:
    """Yield the strides with one operand, or all that lie as it does, cut out of wider tensors."""
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
        alike = [place for place in places if strides[place] == steps]
        for changed in (alike[:1], alike[-1:], [alike[0], alike[-1]]):
            yield tuple(tuple(wider) if place in changed else each for place, each in enumerate(strides))
