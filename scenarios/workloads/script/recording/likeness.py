"""Compares what two ranks ask: whether they do the same, each in groups of its own, and if not, where they part."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.workloads.script.recording.lines import AFTER_POLLS, Replay
from scenarios.workloads.script.requests import Collective, Request

# What ranks that do the same may tell otherwise: what their hosts load and compute, a little more or less memory, how
# often they poll, sleep and meet in stores, and the plan, which rank 0 tells for all.
_OF_ONE = frozenset({"left_out", "loaded", "memory", "met", "on_cpu", "plan", "query", "reserved", "sleep"})
# Of which the argument is each rank's own: values, and how its script ended.
_OWN = frozenset({"end", "record"})
_TOLD = {
    "end": "the script's end",
    "new_group": "a new group",
    "record": "a loss",
    "replica": "DistributedDataParallel's gradients",
    "step": "a step's end",
    "synchronize": "a wait for the GPU",
    "synchronize_call": "a wait for a call on the host",
    "synchronize_event": "a wait for an event",
    "wait": "a wait for a call",
}


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
        if one[1:] != two[1:]:
            return f"{_words(one)} is not {_words(two)} (request {number})"
        if one[0] != two[0]:
            return f"they compute differently before {_words(one)} (request {number})"
        if has_one_polled != has_two_polled:
            return f"polls keep only one of them waiting before {_words(one)} (request {number})"
        left -= one[1] == "step"
        if one[1] == "end" or left == 0:
            return None
    raise AssertionError("requests end")


def _next(replay: Replay) -> tuple[Request, bool]:
    """Return what is asked next, with what was given to the GPU since the request before, and whether loops of polls
    ended in waits since then, which are no requests of their own here.
    """
    spent, has_polled = list[Any](), False
    looks, last = Counter[Any](), None  # at each thing, and the thing of the last one if nothing came since
    while True:
        found = replay.next()
        spent += found[0]
        if last is not None and looks[last] > 1 and found[1:] == (AFTER_POLLS[last[0]], last[1]):
            has_polled = True
        elif found[1] not in _OF_ONE:
            break
        last = found[2] if found[1] == "query" else None
        looks.update([last])
    launched = [each for each in spent if not isinstance(each, HostWork)]
    return (launched, found[1], None if found[1] in _OWN else found[2]), has_polled


def _words(request: Request) -> str:
    """Return a request in a few words."""
    _, kind, argument = request
    if not isinstance(argument, Collective):
        return _TOLD.get(kind, kind)
    sizes = ", ".join(str(list(each.shape)) for each in argument.inputs)
    return f"{argument.label} of {sizes or 'nothing'}"
