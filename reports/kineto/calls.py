"""Collects calls of operators that launched kernels from a profiler's trace, with arguments and kernels' times."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reports.kineto.names import communicates
from reports.kineto.operators import NOWHERE, Operators
from reports.kineto.steps import launches_of, steps_of
from reports.kineto.trace_file import COPIES, CPU_OP, KERNEL, Event, Trace, as_text

_SHAPES = "Input Dims"
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_HOST_COPIES = ("HtoD", "DtoH", "Host", "Pageable", "Pinned")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What ran on the GPU, in microseconds; `blocks` of its grid. `is_host_copy`: between the host and the GPU."""

    name: str
    us: float
    blocks: int
    is_host_copy: bool


@dataclass(slots=True)
class Call:
    """A call of an operator, annotation or function of autograd: its kernels, and the calls in it that have some.

    `dims`, `strides`, `types` and `values` are its arguments as the profiler writes them. `gradients` are the
    dimensions of what its function of autograd was given.
    """

    name: str
    dims: Sequence[Any] = ()
    strides: Sequence[Any] = ()
    types: Sequence[str] = ()
    values: Sequence[str] = ()
    gradients: Sequence[Any] | None = None
    kernels: list[Kernel] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The outermost calls of a trace by their starts, and what else a table of them says.

    `has_shapes`: the profiler recorded the operators' arguments. `parameters` are the shapes of the parameters whose
    gradients a backward pass accumulates, about in the order of the forward pass. `left_out_us` is the time of kernels
    that no operator launched, `communication_us` of those that communicate.
    """

    calls: list[Call]
    has_shapes: bool
    parameters: list[list[int]]
    left_out_us: float
    communication_us: float
    gpu: str
    date: str


def calls_of(trace: Trace) -> Calls:
    """Return the calls of operators of one trace."""
    operators = Operators(trace)
    launches = launches_of(trace)
    made: dict[int, Call] = {}
    roots: list[int] = []
    left_out = communication = 0.0
    for category in (KERNEL, *COPIES):
        for event in trace.events.get(category, []):
            kernel = _kernel(event, category)
            place = operators.innermost(launches.get(str(event.args.get("correlation")), event), event.args)
            if category == KERNEL and communicates(event.name):
                communication += kernel.us
            elif place == NOWHERE:
                left_out += kernel.us
            else:
                _call(place, operators, made, roots).kernels.append(kernel)
    for place, call in made.items():
        call.gradients = _gradients(place, operators)
    first = min((one.start_ns for events in trace.events.values() for one in events), default=0)
    date = datetime.fromtimestamp(first // 10**9, UTC).date().isoformat() if trace.since_1970 else ""
    return Calls(
        calls=[made[place] for place in sorted(roots)],
        has_shapes=any(_SHAPES in event.args for event in trace.events.get(CPU_OP, [])),
        parameters=_parameters(trace),
        left_out_us=left_out,
        communication_us=communication,
        gpu=_gpu(trace),
        date=date,
    )


def _call(place: int, operators: Operators, made: dict[int, Call], roots: list[int]) -> Call:
    """Return the call at a place, put into those around it."""
    if place in made:
        return made[place]
    event = operators.events[place]
    found = made[place] = Call(event.name)
    if operators.is_operator(place):
        keys = (_SHAPES, "Input Strides", "Input type", "Concrete Inputs")
        said = (event.args.get(key) for key in keys)
        found.dims, found.strides, found.types, found.values = (one if isinstance(one, list) else () for one in said)
    parent = operators.parents[place]
    if parent == NOWHERE:
        roots.append(place)
    else:
        _call(parent, operators, made, roots).calls.append(found)
    return found


def _gradients(place: int, operators: Operators) -> Sequence[Any] | None:
    """Return the dimensions of what the function of autograd that an operator made was given."""
    for function in operators.made_by(place):
        for inside in operators.within(function):
            dims = operators.events[inside].args.get(_SHAPES)
            if isinstance(dims, list) and dims:
                return dims
    return None


def _parameters(trace: Trace) -> list[list[int]]:
    """Return the shapes of the gradients that most steps accumulate, once each, the last accumulated first."""
    steps = steps_of(trace)
    starts = [step.start_ns for step in steps]
    by_step: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    at = 0
    for event in trace.events.get(CPU_OP, []):
        if event.name == _ACCUMULATES and (dims := event.args.get(_SHAPES)):
            while at < len(starts) and starts[at] <= event.start_ns:
                at += 1
            by_step[at].append(tuple(dims[0]))
    most = Counter(map(tuple, by_step.values())).most_common(1)
    found = list(most[0][0]) if most else []
    for passes in range(2, len(found) + 1):  # of a step of several backward passes
        length, rest = divmod(len(found), passes)
        if not rest and all(found[:length] == found[length * one : length * (one + 1)] for one in range(passes)):
            found = found[:length]
            break
    return [list(shape) for shape in reversed(found)]


def _kernel(event: Event, category: str) -> Kernel:
    grid = event.args.get("grid")
    is_grid = isinstance(grid, list) and all(isinstance(one, int) for one in grid)
    is_host_copy = category in COPIES and any(word in event.name for word in _HOST_COPIES)
    blocks = math.prod(grid) if isinstance(grid, list) and is_grid else 0
    return Kernel(event.name, (event.end_ns - event.start_ns) / 1000, blocks, is_host_copy)


def _gpu(trace: Trace) -> str:
    listed = trace.about.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return as_text(first.get("name", ""))
