"""Measures what a script computes on the CPU that nothing describes: NumPy, tokenizers, loops, in its main thread.

Between two calls of Python functions, or from one to its return, there is no operator of torch that is described and no
call that is counted; where CPU time passes there all the same, something else has taken it.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from functools import cache
from types import FrameType

from scenarios.config.host_costs import LOOP_TURNS

# Shorter stretches are left out: the interpreter itself takes them, and calls and operators that are counted.
LEAST_NS = 20_000
# Of the time in which calls of C functions are seen to pass, what is left must be worth measuring.
_LEAST_SHARE = 0.25
# A thread's CPU time is a call of the kernel, ten times as dear as the clock: it is read once in so long.
_CPU_TIME_EVERY_NS = 200_000
_REPEATS = 5
# Freeing takes up to such a share of what operators and copies on the CPU have taken, page by page, and so long for
# each dispatched operator, for its tensors and nodes.
_FREEING_SHARE, _FREEING_NS = 0.5, 150


@cache
def turn_ns() -> float:
    """Return what a turn of a Python loop takes on this machine, in ns of CPU time: the unit of what is measured."""
    return min(_loop_ns() for _ in range(_REPEATS)) / LOOP_TURNS


def _loop_ns() -> int:
    began_ns, added = time.thread_time_ns(), 0
    for number in range(LOOP_TURNS):
        added += number
    return time.thread_time_ns() - began_ns


def turns_of(cpu_ns: float) -> int:
    """Return how many turns take as long on this machine."""
    return round(cpu_ns / turn_ns())


class Stretches:
    """A watch on one thread, which measures stretches of CPU time between calls and returns of Python functions.

    `note(cpu_ns, frame)` is called for each long stretch, with the frame in which the stretch ends.

    Attributes:
        mark_ns: when the present stretch began, by `time.perf_counter_ns`.
        seen: calls of C functions, and their returns, in this stretch.
    """

    def __init__(self, note: Callable[[float, FrameType | None], None]) -> None:
        self._note, self.mark_ns, self.seen = note, 0, 0
        self._read_ns = self._cpu_ns = 0  # when the CPU time was read last, and what it was
        self._event_ns = 0.0
        self._is_paused, self._thread = True, 0

    def begin(self) -> None:
        """Measure this thread from now on; find first what its profile function, which is set already, takes itself."""
        turn_ns()
        began_ns = time.thread_time_ns()
        for _ in range(LOOP_TURNS // 10):
            len(())
        self._event_ns = (time.thread_time_ns() - began_ns) / (2 * (LOOP_TURNS // 10))
        self._is_paused, self._thread = False, threading.get_ident()
        gc.callbacks.append(self._collecting)
        self.start()

    def start(self) -> None:
        """Begin a stretch."""
        now_ns = self.mark_ns = time.perf_counter_ns()
        self.seen = 0
        if now_ns - self._read_ns > _CPU_TIME_EVERY_NS:
            self._read_ns, self._cpu_ns = now_ns, time.thread_time_ns()

    def end(self, now_ns: int, frame: FrameType | None) -> None:
        """End a stretch in a frame, and begin the next one."""
        took_ns, seen = now_ns - self.mark_ns, self.seen
        self.mark_ns, self.seen = now_ns, 0
        if took_ns < LEAST_NS or self._is_paused:
            return
        took_ns -= self._off_cpu_ns(now_ns)
        if took_ns < LEAST_NS:
            return
        seeing_ns = seen * self._event_ns
        own_ns = took_ns - seeing_ns
        if own_ns < _LEAST_SHARE * seeing_ns:  # a call of a C function takes about two turns
            own_ns = seen * turn_ns()
        if own_ns >= LEAST_NS:
            self._note(own_ns, frame)
            self.start()

    def _off_cpu_ns(self, now_ns: int) -> int:
        """Return how long the thread did not run since its CPU time was last read: others had the CPU."""
        cpu_ns = time.thread_time_ns()
        off_ns = max(0, now_ns - self._read_ns - (cpu_ns - self._cpu_ns))
        self._read_ns, self._cpu_ns = now_ns, cpu_ns
        return off_ns

    def _collecting(self, phase: str, _: object) -> None:
        """Leave out garbage collections of this thread, which begin at no fixed place."""
        if threading.get_ident() != self._thread:  # whose CPU time is another clock
            return
        self._is_paused = phase == "start"
        self.start()


class Freeing:
    """A budget of CPU time to free what this step and the last one have made; measured work counts beyond it."""

    def __init__(self) -> None:
        self._last_ns = self._now_ns = 0.0
        self._dispatched = 0

    def add(self, computed_ns: float) -> None:
        """Add what operators and copies have made in that time."""
        self._now_ns += _FREEING_SHARE * computed_ns

    def beyond(self, cpu_ns: float, dispatched: int) -> float:
        """Return what a stretch has taken beyond freeing; `dispatched`: operators so far."""
        self._see(dispatched)
        freeing_ns = min(cpu_ns, self._last_ns + self._now_ns)
        of_last_ns = min(freeing_ns, self._last_ns)
        self._last_ns -= of_last_ns
        self._now_ns -= freeing_ns - of_last_ns
        return cpu_ns - freeing_ns

    def end_step(self, dispatched: int) -> None:
        """Let go of what the step before the last one has made."""
        self._see(dispatched)
        self._last_ns, self._now_ns = self._now_ns, 0.0

    def _see(self, dispatched: int) -> None:
        self._now_ns += _FREEING_NS * (dispatched - self._dispatched)
        self._dispatched = dispatched
