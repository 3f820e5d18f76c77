"""Counts the Python functions that a script calls, in its process."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from scenarios.modules.describing.host import HostCounter
from scenarios.workloads.script.host.measured import Stretches

_Function = TypeVar("_Function", bound=Callable[..., Any])
# A function counts; it does not, but what it calls may; neither does.
_COUNTED, _PASSED_THROUGH, _SIMULATION = range(3)
# Python that runs only because the GPU is simulated: here, but for functions that call the script's or a library's own,
# in what torch has around modes, and where Python calls finalizers, as the simulation gives one to each tensor.
_CALLING_OTHERS = frozenset({"__torch_function__", "recorded", "forward", "watched", "advance"})
_OF_MODES = (
    *("torch/_library/simple_registry.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/overrides.py"),
    *("torch/utils/_python_dispatch.py", "torch/compiler/__init__.py"),
)
_FINALIZER = weakref.finalize.__call__.__code__
_OURS = tuple(f"{Path(__file__).parents[4] / room}/" for room in ("scenarios", "sim"))


class CountedCalls:
    """A count, in `counter.calls`, of the main thread's calls of Python functions; `stretches` lie between them."""

    def __init__(self, counter: HostCounter, stretches: Stretches) -> None:
        self._counter, self._stretches = counter, stretches
        self._inside = 0  # how deep the thread is in Python of the simulation
        self._kinds: dict[CodeType, int] = {}
        self._has_begun = False

    def begin(self) -> None:
        """Count the main thread's calls from now on; in another thread, or once it counts, do nothing."""
        if not self._has_begun and threading.current_thread() is threading.main_thread():
            self._has_begun = True
            sys.setprofile(self._profile)
            self._stretches.begin()

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if self._inside:
            if event == "call":
                self._inside += 1
            elif event == "return":
                self._inside -= 1
                if not self._inside:
                    self._stretches.start()
        elif event == "call":
            self._stretches.end(frame.f_back)
            kind = self._kinds.get(frame.f_code)
            if kind is None:
                kind = self._kinds[frame.f_code] = _kind(frame.f_code)
            if kind == _COUNTED:
                self._counter.calls += 1
            elif kind == _SIMULATION:
                self._inside = 1
        elif event == "return":
            self._stretches.end(frame)
        else:
            self._stretches.seen += 1


def uncounted(function: _Function) -> _Function:
    """Return a function of the simulation that runs without the count, whose thousands of events it would ignore."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        count = sys.getprofile()
        if getattr(count, "__func__", None) is not CountedCalls._profile:
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(count)

    return called  # type: ignore[return-value]


def _kind(code: CodeType) -> int:
    if code.co_filename.startswith(_OURS):
        return _PASSED_THROUGH if code.co_name in _CALLING_OTHERS else _SIMULATION
    return _PASSED_THROUGH if code.co_filename.endswith(_OF_MODES) or code is _FINALIZER else _COUNTED
