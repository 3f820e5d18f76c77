"""Find the steps of a trace: by annotations, else by its optimizers, else by repetition."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reports.kineto.trace_file import ANNOTATION, COPIES, CPU_OP, KERNEL, LAUNCHES, Event, TraceFile

_STEP = re.compile(r"ProfilerStep#(\d{1,15})")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_BACKWARD = "autograd::engine::evaluate_function"
# An operator has it if it was called with gradients enabled, as in a forward pass and not in an optimizer.
_SEQUENCE = "Sequence number"
# The number of least frequent operators, and of distances between their calls, that are tried.
_TRIED = 64
# The least share of a step that has to repeat exactly for a period to count.
_ALIKE = 0.5
# A repetition without a backward pass may be one of layers: it counts as steps only if it leaves out less than this.
_LEFT_OUT = 0.02
# A first or last part with a smaller share of a step is incomplete.
_WHOLE = 0.9


def steps_of(trace: TraceFile) -> list[Event]:
    """Return the steps as annotations `ProfilerStep#N`, by their starts; empty where the trace is one step."""
    annotations = trace.events.get(ANNOTATION, [])
    return (
        [event for event in annotations if _STEP.fullmatch(event.name)] or _by_optimizer(trace) or _by_repetition(trace)
    )


def step_number(event: Event) -> int:
    """Return the number of a step."""
    found = _STEP.fullmatch(event.name)
    assert found, "only steps are asked"
    return int(found[1])


def outermost(events: Sequence[Event]) -> list[Event]:
    """Return the events that no other event of their thread encloses; input is by start, enclosing events first."""
    until: dict[tuple[str, str], int] = {}
    found = []
    for event in events:
        if event.thread not in until or event.end_ns > until[event.thread]:
            until[event.thread] = event.end_ns
            found.append(event)
    return found


def _by_optimizer(trace: TraceFile) -> list[Event]:
    """Return the steps of a trace without step annotations: each ends with its optimizers; none with fewer than two.

    Calls of optimizers without a backward pass between them end one step. Launches after the last optimizer are outside
    of steps.
    """
    calls = outermost([event for event in trace.events.get(ANNOTATION, []) if _OPTIMIZER.match(event.name)])
    backward = [event.start_ns for event in trace.events.get(CPU_OP, []) if event.name.startswith(_BACKWARD)]
    ends: list[int] = []
    for event in calls:
        passes = bisect_right(backward, event.start_ns) - bisect_right(backward, ends[-1]) if ends else 1
        ends[len(ends) - (not passes) :] = [event.end_ns]
    if len(ends) < 2:
        return []
    first = min(event.start_ns for events in trace.events.values() for event in events)
    return _number_steps([first, *ends], calls[0])


def _number_steps(bounds: Sequence[int], like: Event) -> list[Event]:
    found = pairwise(bounds)
    return [Event(start, end, f"ProfilerStep#{at}", like.thread, {}) for at, (start, end) in enumerate(found)]


def _by_repetition(trace: TraceFile) -> list[Event]:
    """Return the steps of a trace whose operators, or kernels in the order of their launches, repeat."""
    listed = outermost(trace.events.get(CPU_OP, [])) or _in_order_of_launch(trace)
    if len(listed) < 2:
        return []
    names = {name: number for number, name in enumerate(dict.fromkeys(event.name for event in listed))}
    tokens = np.array([names[event.name] for event in listed], np.int64)
    is_backward = np.array([event.name.startswith(_BACKWARD) for event in listed], bool)
    found = _period(tokens, is_backward)
    if found is None:
        return []
    start, period = found
    begin = start + _first_of_step(listed, is_backward, start, period)
    places = [*range(begin % period, len(listed), period)]
    bounds = [listed[place].start_ns for place in places]
    if places[0] >= _WHOLE * period:
        bounds.insert(0, listed[0].start_ns)
    elif places[0] < (1 - _WHOLE) * period:  # a first step that is a little longer than others
        bounds[0] = listed[0].start_ns
    if len(listed) - places[-1] >= _WHOLE * period:
        bounds.append(max(event.end_ns for events in trace.events.values() for event in events))
    return _number_steps(bounds, listed[0]) if len(bounds) > 2 else []


def _period(tokens: npt.NDArray[np.int64], is_backward: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
    """Return where the longest repetition of tokens begins, and its period; None if there is none.

    Layers repeat within a step, too: so if the trace has a backward pass, the period must contain forward and backward
    operators.
    """
    trains = bool(is_backward.any()) and not is_backward.all()
    best: tuple[int, int, int] | None = None
    for period in _candidates(tokens):
        start, length = _longest_run(tokens[period:] == tokens[:-period])
        if length < _ALIKE * period:
            continue
        own = is_backward[start : start + period]
        if trains and (own.all() or not own.any()):
            continue
        covered = length + period
        if not trains and len(tokens) - covered >= _LEFT_OUT * len(tokens):
            continue
        if not trains and not set(tokens.tolist()) <= set(tokens[start : start + covered].tolist()):
            continue
        # A multiple of a period covers no more, except for tokens cut off at the ends.
        if best is None or covered > best[0] + best[2] // 2:
            best = covered, start, period
    return None if best is None else best[1:]


def _candidates(tokens: npt.NDArray[np.int64]) -> list[int]:
    """Return distances between calls of the least frequent operators, the shortest first."""
    counts = Counter(tokens.tolist())
    seldom = sorted((count, token) for token, count in counts.items() if count >= 2)
    found: Counter[int] = Counter()
    for _, token in seldom[:_TRIED]:
        found.update(np.diff(np.flatnonzero(tokens == token)).tolist())
    return sorted(period for period, _ in found.most_common(_TRIED))


def _longest_run(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return where the longest run of truths begins, and its length."""
    breaks = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
    lengths = np.diff(breaks) - 1
    at = int(np.argmax(lengths))
    return int(breaks[at]), int(lengths[at])


def _first_of_step(listed: Sequence[Event], is_backward: npt.NDArray[np.bool_], start: int, period: int) -> int:
    """Return the number of events from `start` to a step's first event, the first forward operator after a backward
    pass.

    Without a backward pass a step begins at `start`: 0.
    """
    own = is_backward[start : start + period]
    if not own.any():
        return 0
    places = np.flatnonzero(own)
    # the last backward operator before the longest pause
    last = int(places[np.argmax(np.diff(places, append=places[0] + period))])
    for behind in range(1, period):
        event = listed[start + (last + behind) % period]
        if _SEQUENCE in event.args and not event.name.startswith(_BACKWARD):
            return (last + behind) % period
    return 0


def _in_order_of_launch(trace: TraceFile) -> list[Event]:
    """Return kernels and copies, each at the time of its launch where that is known."""
    launches = launches_of(trace)
    kernels = [event for category in (KERNEL, *COPIES) for event in trace.events.get(category, [])]
    issued = [(launches.get(str(event.args.get("correlation")), event), event) for event in kernels]
    found = [
        Event(issue.start_ns, max(event.end_ns, issue.start_ns), event.name, event.thread, {})
        for issue, event in issued
    ]
    return sorted(found, key=lambda event: event.order)


def launches_of(trace: TraceFile) -> dict[str, Event]:
    """Return the calls that launched GPU work, by the correlation number that both sides carry."""
    found: dict[str, Event] = {}
    for category in LAUNCHES:
        for event in trace.events.get(category, []):
            found.setdefault(str(event.args.get("correlation")), event)
    found.pop("None", None)  # "None" is a number missing on both sides, so it joins nothing
    return found
