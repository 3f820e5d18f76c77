"""Counts the Python functions that a script calls in its process."""

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
# A function's call counts; only calls within it may count; neither counts.
_COUNTED, _PASSED_THROUGH, _SIMULATION = range(3)
# Python code that runs only because the GPU is simulated: this project's (`passes_through` marks what calls scripts or
# libraries in turn), torch's around modes, and calls of finalizers, which the simulation attaches to each tensor.
_PASSING = {weakref.finalize.__call__.__code__}
_OF_MODES = (
    *("torch/_library/simple_registry.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/overrides.py"),
    *("torch/utils/_python_dispatch.py", "torch/compiler/__init__.py"),
)
_OF_PYTHON = ("call", "return")  # events of Python functions; the others belong to C functions
_OURS = tuple(f"{Path(__file__).parents[4] / room}/" for room in ("scenarios", "sim"))


class CountedCalls:
    """A count, in `counter.calls`, of the main thread's calls of Python functions; `stretches` measures between."""

    def __init__(self, counter: HostCounter, stretches: Stretches) -> None:
        self._counter, self._stretches = counter, stretches
        self._has_begun = False

    def begin(self) -> None:
        """Start counting the main thread's calls; do nothing in another thread or if already counting."""
        if not self._has_begun and threading.current_thread() is threading.main_thread():
            self._has_begun = True
            sys.setprofile(_counting(self._counter, self._stretches))
            self._stretches.begin()


def _counting(counter: HostCounter, stretches: Stretches) -> _Profile:
    """Return a profile function that counts calls: a closure, for speed, as it takes a fourth of a step's time."""
    inside = 0  # depth of nested calls within the simulation's own Python code
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
            # By code object, not name: one dict look-up is all that a call costs.
            kind = kinds[frame.f_code]
            if kind == _COUNTED:
                counter.calls += 1
            elif kind == _SIMULATION:
                inside = 1

    count.is_of_calls = True  # type: ignore[attr-defined]
    return count


def passes_through(function: _Function) -> _Function:
    """Decorate a function of the simulation that calls the script or a library: what it calls counts."""
    _PASSING.add(function.__code__)
    return function


def without_counting(function: _Function) -> _Function:
    """Decorate a function of the simulation to run without the profile function, which would ignore its many events."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        count = sys.getprofile()
        if not hasattr(count, "is_of_calls"):
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(count)

    return call  # type: ignore[return-value]


class _Kinds(dict[CodeType, int]):
    """A cache of how a function's calls count, by its code object."""

    def __missing__(self, code: CodeType) -> int:
        if code in _PASSING or code.co_filename.endswith(_OF_MODES):
            self[code] = _PASSED_THROUGH
        else:
            self[code] = _SIMULATION if code.co_filename.startswith(_OURS) else _COUNTED
        return self[code]
