"""Measures the main thread's CPU work that no operator describes: NumPy, tokenizers, loops.

No described operator of torch and no counted call lies between two calls of Python functions, or between a call and its
return: CPU time that passes there is other work.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from functools import cache
from types import FrameType

from scenarios.config.host_costs import LOOP_TURNS

# Shorter stretches are ignored: they belong to the interpreter, and to counted calls and operators.
LEAST_NS = 20_000
# If a stretch's own time is below this share of the profile function's time in it, its calls are counted instead.
_LEAST_SHARE = 0.25
# Reading a thread's CPU time is a system call, ten times as expensive as the clock: it is read at this interval.
_CPU_TIME_EVERY_NS = 200_000
_REPEATS = 5
# Freeing memory takes up to this share of the CPU time of operators and copies (page by page), and this many ns per
# dispatched operator (tensors and autograd nodes).
_FREEING_SHARE, _FREEING_NS = 0.5, 150


@cache
def turn_ns() -> float:
    """Return the CPU time in ns of one turn of a Python loop on this machine, the unit of measured work."""
    return min(_loop_ns() for _ in range(_REPEATS)) / LOOP_TURNS


def _loop_ns() -> int:
    began_ns, added = time.thread_time_ns(), 0
    for number in range(LOOP_TURNS):
        added += number
    return time.thread_time_ns() - began_ns


def turns_of(cpu_ns: float) -> int:
    """Return how many turns of a Python loop take `cpu_ns` on this machine."""
    return round(cpu_ns / turn_ns())


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
        turn_ns()
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

    def end(self, now_ns: int, frame: FrameType | None) -> None:
        """End a stretch in a frame, and start the next one."""
        took_ns, seen = now_ns - self.mark_ns, self.seen
        self.mark_ns, self.seen = now_ns, 0
        if took_ns < LEAST_NS or self._is_paused:
            return
        took_ns -= self._off_cpu_ns(now_ns)
        if took_ns < LEAST_NS:
            return
        seeing_ns = seen * self._event_ns
        own_ns = took_ns - seeing_ns
        if own_ns < _LEAST_SHARE * seeing_ns:  # a call of a C function, two events, takes about two turns
            own_ns = seen * turn_ns()
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


class Freeing:
    """A budget of CPU time for freeing the results of this and the last step; only work beyond the budget counts."""

    def __init__(self) -> None:
        self._last_ns = self._now_ns = 0.0
        self._dispatched = 0

    def add(self, computed_ns: float) -> None:
        """Extend the budget for operators and copies that took `computed_ns`."""
        self._now_ns += _FREEING_SHARE * computed_ns

    def beyond(self, cpu_ns: float, dispatched: int) -> float:
        """Return the part of a stretch beyond the budget; `dispatched`: operators dispatched so far."""
        self._see(dispatched)
        freeing_ns = min(cpu_ns, self._last_ns + self._now_ns)
        of_last_ns = min(freeing_ns, self._last_ns)
        self._last_ns -= of_last_ns
        self._now_ns -= freeing_ns - of_last_ns
        return cpu_ns - freeing_ns

    def end_step(self, dispatched: int) -> None:
        """Drop the budget that is left of the step before."""
        self._see(dispatched)
        self._last_ns, self._now_ns = self._now_ns, 0.0

    def _see(self, dispatched: int) -> None:
        self._now_ns += _FREEING_NS * (dispatched - self._dispatched)
        self._dispatched = dispatched
