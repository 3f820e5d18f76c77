"""Comparison of two ranks' requests: whether they are identical, each in its own groups, and where they part."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import ScriptEnd, StepEnd
from scenarios.workloads.recording.events.waits import Query
from scenarios.workloads.recording.events.work import Turn
from scenarios.workloads.script.recording.replay import Replay


def difference(expected: Replay, found: Replay, *, steps: int | None = None) -> str | None:
    """Return a phrase about where two ranks part; None if their requests are identical.

    Args:
        expected: the first rank's requests, translated to the second rank's groups.
        found: the second rank's requests.
        steps: compare until the end of this many steps; None: until the end of the script.

    Raises:
        ProgramError: the second rank is in no group that corresponds to one of the first rank.
    """
    left = -1 if steps is None else steps
    for number in count(1):
        (one, has_one_polled), (two, has_two_polled) = _next(expected), _next(found)
        if _comparable(one.request) != _comparable(two.request):
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
    """Return the next turn whose request is not free, and whether a polling loop ended in a wait before it.

    A wait that ends a polling loop is no request of its own here; host work is left out.
    """
    spent, has_polled = list[Any](), False
    looks, last = Counter[Request | None](), None  # polls by target, and the previous request if it was a poll
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


def _comparable(request: Request) -> object:
    return type(request) if request.is_own else request
