"""Compares what two ranks ask: whether they do the same, each in groups of its own, and if not, where they part."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.workloads.script.events.event import Request
from scenarios.workloads.script.events.notes import ScriptEnd, StepEnd
from scenarios.workloads.script.events.waits import Query
from scenarios.workloads.script.events.work import Turn
from scenarios.workloads.script.recording.lines import Replay


def difference(expected: Replay, found: Replay, *, steps: int | None = None) -> str | None:
    """Return where two ranks part, as a phrase; None if they ask the same until the end of so many steps, or at all.

    Args:
        expected: the first one's requests, as the second one would ask them.
        found: the second one's.
        steps: how many ends of steps are looked at; None: what follows the last one, too.

    Raises:
        ProgramError: the second rank is in no group like one of the first.
    """
    left = -1 if steps is None else steps
    for number in count(1):
        (one, has_one_polled), (two, has_two_polled) = _next(expected), _next(found)
        if _compared(one.request) != _compared(two.request):
            return f"{one.request.in_words()} is not {two.request.in_words()} (request {number})"
        if one.spent != two.spent:
            return f"they compute differently before {one.request.in_words()} (request {number})"
        if has_one_polled != has_two_polled:
            return f"polls keep only one of them waiting before {one.request.in_words()} (request {number})"
        left -= isinstance(one.request, StepEnd)
        if isinstance(one.request, ScriptEnd) or left == 0:
            return None
    raise AssertionError("requests end")


def _next(replay: Replay) -> tuple[Turn, bool]:
    """Return what is asked next, with what was given to the GPU since the request before, and whether loops of polls
    ended in waits since then, which are no requests of their own here.
    """
    spent, has_polled = list[Any](), False
    looks, last = Counter[Request | None](), None  # at each thing, and the last one if nothing came since
    while True:
        before, request = replay.next()
        spent += before
        if last is not None and looks[last] > 1 and request == last.wait:
            has_polled = True
        elif not request.is_free:
            break
        last = request if isinstance(request, Query) else None
        looks.update([last])
    launched = [each for each in spent if not isinstance(each, HostWork)]
    return Turn(launched, request), has_polled


def _compared(request: Request) -> object:
    return type(request) if request.is_own else request
