"""Counts the Python functions that a script calls in its process, and measures the main thread's CPU work that no
operator describes: NumPy, tokenizers, loops.

No described operator of torch and no counted call lies between two calls of Python functions, or between a call and its
return: CPU time that passes there is other work.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import numpy as np

from scenarios.config.host_costs import LOOP_TURNS
from scenarios.modules.describing.host import HostCounter

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
# Shorter stretches are ignored: they belong to the interpreter, and to counted calls and operators.
LEAST_NS = 20_000
# If a stretch's own time is below this share of the profile function's time in it, its calls are counted instead.
_LEAST_SHARE = 0.25
# Under a function mode, as the simulation's, torch reads each element of NumPy arrays that index a tensor, which takes
# about this many turns.
_READ_TURNS = 25
# Reading a thread's CPU time is a system call, ten times as expensive as the clock: it is read at this interval.
_CPU_TIME_EVERY_NS = 200_000
_REPEATS = 5


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
            stretches.end(now_ns, frame.f_back if is_call else frame, _read_elements(frame) if is_call else 0)
        if is_call:
            # By code object, not name: one dict look-up is all that a call costs.
            kind = kinds[frame.f_code]
            if kind == _COUNTED:
                counter.calls += 1
            elif kind == _SIMULATION:
                inside = 1

    count.is_of_calls = True  # type: ignore[attr-defined]
    return count


def _read_elements(called: FrameType) -> int:
    """Return how many elements of NumPy arrays torch has read because a function mode is called for an indexing."""
    if called.f_code.co_name != "__torch_function__":
        return 0
    given = called.f_locals
    if getattr(given["func"], "__name__", "") not in ("__getitem__", "__setitem__"):
        return 0
    index = given["args"][1]
    arrays = [each for each in (index if isinstance(index, tuple) else (index,)) if isinstance(each, np.ndarray)]
    return sum(len(each) for each in arrays if each.ndim)


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


@cache
def turn_ns(*, is_seen: bool) -> float:
    """Return the CPU time in ns of one turn of a Python loop on this machine, the unit of measured work.

    `is_seen`: whether a profile function sees the work, which makes Python 3.11 nearly twice as slow.
    """
    usual = sys.getprofile()
    sys.setprofile((usual or _ignore) if is_seen else None)
    try:
        return min(_loop_ns() for _ in range(_REPEATS)) / LOOP_TURNS
    finally:
        sys.setprofile(usual)


def _ignore(*_: object) -> None:
    """Ignore an event: a profile function."""


def _loop_ns() -> int:
    began_ns, added = time.thread_time_ns(), 0
    for number in range(LOOP_TURNS):
        added += number
    return time.thread_time_ns() - began_ns


def turns_of(cpu_ns: float, *, is_seen: bool = True) -> int:
    """Return how many turns of a Python loop take `cpu_ns` on this machine; `is_seen` as in `turn_ns`."""
    return round(cpu_ns / turn_ns(is_seen=is_seen))


class Stretches:
    """A meter of one thread's stretches of CPU time between calls and returns of Python functions.

    `note(cpu_ns, frame)` is called for each long stretch, with the frame in which the stretch ends.

    Attributes:
        mark_ns: when the current stretch began, by `time.perf_counter_ns`.
        seen: how many calls and returns of C functions this stretch had.
    """

    def __init__(self, note: Callable[[float, FrameType | None], None]) -> None:
        self._note, self.mark_ns, self.seen = note, 0, 0
        self._read_ns = self._cpu_ns = 0  # when the CPU time was last read, and its value
        self._event_ns = 0.0
        self._is_paused, self._thread = True, 0

    def begin(self) -> None:
        """Start measuring this thread, after timing the profile function, which must be set already."""
        turn_ns(is_seen=True), turn_ns(is_seen=False)  # now: within the profile function neither would be seen
        began_ns = time.thread_time_ns()
        for _ in range(LOOP_TURNS // 10):
            len(())
        self._event_ns = (time.thread_time_ns() - began_ns) / (2 * (LOOP_TURNS // 10))
        self._is_paused, self._thread = False, threading.get_ident()
        # A collection falls on whichever line allocates: its time would be charged to that line.
        gc.callbacks.append(self._collecting)
        self.start()

    def start(self) -> None:
        """Start a stretch of CPU time."""
        now_ns = self.mark_ns = time.perf_counter_ns()
        self.seen = 0
        if now_ns - self._read_ns > _CPU_TIME_EVERY_NS:
            self._read_ns, self._cpu_ns = now_ns, time.thread_time_ns()

    def end(self, now_ns: int, frame: FrameType | None, read: int = 0) -> None:
        """End a stretch in a frame, and start the next one; `read`: elements that torch read for the simulation."""
        took_ns, seen = now_ns - self.mark_ns, self.seen
        self.mark_ns, self.seen = now_ns, 0
        if took_ns < LEAST_NS or self._is_paused:
            return
        took_ns -= self._off_cpu_ns(now_ns)
        if took_ns < LEAST_NS:
            return
        seeing_ns = seen * self._event_ns + read * _READ_TURNS * turn_ns(is_seen=False)
        own_ns = took_ns - seeing_ns
        if own_ns < _LEAST_SHARE * seeing_ns:  # a call of a C function, two events, takes about two turns
            own_ns = seen * turn_ns(is_seen=True)
        if own_ns >= LEAST_NS:
            self._note(own_ns, frame)
            self.start()

    def _off_cpu_ns(self, now_ns: int) -> int:
        """Return the ns for which the thread was off the CPU since its CPU time was last read."""
        cpu_ns = time.thread_time_ns()
        off_ns = max(0, now_ns - self._read_ns - (cpu_ns - self._cpu_ns))
        self._read_ns, self._cpu_ns = now_ns, cpu_ns
        return off_ns

    def _collecting(self, phase: str, _: object) -> None:
        """Exclude this thread's garbage collections, which occur at arbitrary places."""
        if threading.get_ident() != self._thread:  # another thread's collection does not use this thread's CPU time
            return
        self._is_paused = phase == "start"
        self.start()
