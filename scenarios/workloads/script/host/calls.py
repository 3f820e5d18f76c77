"""Counts the Python functions that a script calls, in its process."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from scenarios.modules.describing.host import HostCounter
from scenarios.workloads.script.host.measured import LEAST_NS, Stretches

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Profile = Callable[[FrameType, str, Any], None]
# A function counts; it does not, but what it calls may; neither does.
_COUNTED, _PASSED_THROUGH, _SIMULATION = range(3)
# Python that runs only because the GPU is simulated: here, but for functions that call the script's or a library's own,
# in what torch has around modes, and where Python calls finalizers, as the simulation gives one to each tensor.
_CALLING_OTHERS = frozenset({"__torch_function__", "recorded", "forward", "watched", "advance"})
_OF_MODES = (
    *("torch/_library/simple_registry.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/overrides.py"),
    *("torch/utils/_python_dispatch.py", "torch/compiler/__init__.py"),
)
_OF_PYTHON = ("call", "return")  # events of Python functions, others are of C functions
_FINALIZER = weakref.finalize.__call__.__code__
_OURS = tuple(f"{Path(__file__).parents[4] / room}/" for room in ("scenarios", "sim"))


class CountedCalls:
    """A count, in `counter.calls`, of the main thread's calls of Python functions; `stretches` lie between them."""

    def __init__(self, counter: HostCounter, stretches: Stretches) -> None:
        self._counter, self._stretches = counter, stretches
        self._has_begun = False

    def begin(self) -> None:
        """Count the main thread's calls from now on; in another thread, or once it counts, do nothing."""
        if not self._has_begun and threading.current_thread() is threading.main_thread():
            self._has_begun = True
            sys.setprofile(_counting(self._counter, self._stretches))
            self._stretches.begin()


def _counting(counter: HostCounter, stretches: Stretches) -> _Profile:
    """Return the function to which Python tells each call and return: a closure, as it takes a fourth of a step."""
    inside = 0  # how deep the thread is in Python of the simulation
    kinds = _Kinds()
    clock = time.perf_counter_ns

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal inside
        if inside:
            if event == "call":
                inside += 1
            elif event == "return":
                inside -= 1
                if not inside:
                    stretches.start()
            return
        if event not in _OF_PYTHON:
            stretches.seen += 1
            return
        is_call, now_ns = event == "call", clock()
        if now_ns - stretches.mark_ns < LEAST_NS:
            stretches.mark_ns, stretches.seen = now_ns, 0
        else:
            stretches.end(now_ns, frame.f_back if is_call else frame)
        if is_call:
            kind = kinds[frame.f_code]
            if kind == _COUNTED:
                counter.calls += 1
            elif kind == _SIMULATION:
                inside = 1

    count.is_of_calls = True  # type: ignore[attr-defined]
    return count


def uncounted(function: _Function) -> _Function:
    """Return a function of the simulation that runs without the count, whose thousands of events it would ignore."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        count = sys.getprofile()
        if not hasattr(count, "is_of_calls"):
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(count)

    return called  # type: ignore[return-value]


class _Kinds(dict[CodeType, int]):
    """A table of what becomes of the calls of a function, by its code, found once."""

    def __missing__(self, code: CodeType) -> int:
        if code.co_filename.startswith(_OURS):
            kind = _PASSED_THROUGH if code.co_name in _CALLING_OTHERS else _SIMULATION
        else:
            is_around = code.co_filename.endswith(_OF_MODES) or code is _FINALIZER
            kind = _PASSED_THROUGH if is_around else _COUNTED
        self[code] = kind
        return kind
