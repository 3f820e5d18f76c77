"""Collect the operator calls that launched kernels from a profiler's trace, with arguments and kernel times."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reports.kineto.names import communicates
from reports.kineto.operators import NOWHERE, Operators
from reports.kineto.steps import launches_of, steps_of
from reports.kineto.trace_file import COPIES, CPU_OP, KERNEL, Event, TraceFile, as_text
from scenarios.kernel_tables.traced import TracedCall, TracedKernel

_SHAPES, _STRIDES = "Input Dims", "Input Strides"
_LARGEST = 2**40
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_HOST_COPIES = ("HtoD", "DtoH", "Host", "Pageable", "Pinned")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCalls:
    """The outermost calls of a trace by their starts, and facts that a table made of them states.

    `has_shapes`: the profiler recorded the operators' arguments. `parameters` are the shapes of the gradients that a
    step accumulates, the last one first, which is about the order of the forward pass. `left_out_us` is the time of
    kernels that no operator launched, without those that communicate.
    """

    calls: list[TracedCall]
    has_shapes: bool
    parameters: list[list[int]]
    left_out_us: float
    gpu: str
    date: str


def calls_of(trace: TraceFile) -> TracedCalls:
    """Return the calls of operators of one trace."""
    operators = Operators(trace)
    launches = launches_of(trace)
    made: dict[int, TracedCall] = {}
    roots: list[int] = []
    left_out = 0.0
    for category in (KERNEL, *COPIES):
        for event in trace.events.get(category, []):
            kernel = _kernel(event, category)
            place = operators.innermost(launches.get(str(event.args.get("correlation")), event), event.args)
            if category == KERNEL and communicates(event.name):
                continue
            if place == NOWHERE:
                left_out += kernel.us
            else:
                _call(place, operators, made, roots).kernels.append(kernel)
    for place, call in made.items():
        call.gradients = _gradients(place, operators)
    first = min((one.start_ns for events in trace.events.values() for one in events), default=0)
    date = datetime.fromtimestamp(first // 10**9, UTC).date().isoformat() if trace.since_1970 else ""
    return TracedCalls(
        calls=[made[place] for place in sorted(roots)],
        has_shapes=any(_SHAPES in event.args for event in trace.events.get(CPU_OP, [])),
        parameters=_parameters(trace),
        left_out_us=left_out,
        gpu=_gpu(trace),
        date=date,
    )


def _call(place: int, operators: Operators, made: dict[int, TracedCall], roots: list[int]) -> TracedCall:
    """Return the operator's call at a place of the trace, and add it and its enclosing calls to the tree of calls."""
    inner: TracedCall | None = None
    for around in operators.above(place):
        is_known = around in made
        found = made[around] if is_known else _make_call(around, operators)
        made[around] = found
        if inner is not None:
            found.calls.append(inner)
        if is_known:
            return made[place]
        inner = found
    roots.append(around)
    return made[place]


def _make_call(place: int, operators: Operators) -> TracedCall:
    event = operators.events[place]
    found = TracedCall(event.name)
    if operators.is_operator(place):
        found.dims, found.types = (
            _list_of_event(event, _SHAPES, _is_extents),
            _list_of_event(event, "Input type", _is_text),
        )
        found.strides, found.values = (
            _list_of_event(event, _STRIDES, _is_extents),
            _list_of_event(event, "Concrete Inputs", _is_text),
        )
        if len(found.dims) != len(found.types):
            found.dims = found.types = ()
    return found


def _gradients(place: int, operators: Operators) -> Sequence[Any] | None:
    """Return the dimensions of the arguments of the autograd function that an operator made."""
    for function in operators.functions_made_by(place):
        for inside in operators.within(function):
            if dims := _list_of_event(operators.events[inside], _SHAPES, _is_extents):
                return dims
    return None


def _list_of_event(event: Event, key: str, is_right: Callable[[object], bool]) -> Sequence[Any]:
    """Return a list from an operator's event, one entry per argument; empty unless profilers write such entries."""
    found = event.args.get(key)
    return found if isinstance(found, list) and all(map(is_right, found)) else ()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_extents(value: object) -> bool:
    """Return whether a value is the dimensions or strides of a tensor, or of each tensor of a list."""
    return isinstance(value, list) and (_are_extents(value) or all(map(_are_extents, value)))


def _are_extents(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < _LARGEST for one in value)


def _parameters(trace: TraceFile) -> list[list[int]]:
    """Return the shapes of the gradients that most steps accumulate, once each, the last accumulated first."""
    steps = steps_of(trace)
    starts = [step.start_ns for step in steps]
    by_step: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    at = 0
    for event in trace.events.get(CPU_OP, []):
        dims = _list_of_event(event, _SHAPES, _is_extents) if event.name == _ACCUMULATES else ()
        if dims and _are_extents(dims[0]):
            while at < len(starts) and starts[at] <= event.start_ns:
                at += 1
            by_step[at].append(tuple(dims[0]))
    most = Counter(map(tuple, by_step.values())).most_common(1)
    return [list(shape) for shape in reversed(most[0][0])] if most else []


def _kernel(event: Event, category: str) -> TracedKernel:
    grid = event.args.get("grid")
    blocks = math.prod(grid) if isinstance(grid, list) and _are_extents(grid) else 0
    is_host_copy = category in COPIES and any(word in event.name for word in _HOST_COPIES)
    return TracedKernel(event.name, (event.end_ns - event.start_ns) / 1000, blocks, is_host_copy)


def _gpu(trace: TraceFile) -> str:
    listed = trace.about.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return as_text(first.get("name", ""))
