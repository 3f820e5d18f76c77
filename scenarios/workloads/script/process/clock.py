"""The clock that a script's own files read: the simulated time of its rank's host, where it is known; and the timer of
what its process computes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any

from scenarios.workloads.script.events.work import ComputeOnCpu, GradientReady
from scenarios.workloads.script.users_lines import is_users_file

# What a reading after another takes at least, so that a loop that waits for a time comes to its end.
_READING_NS = 1_000
_NOT_SIMULATED = (
    "times that the script reads are of this machine, not simulated: with --ranks alike or more than 64 ranks, ranks"
    " are recorded before they are simulated"
)


class ScriptCpuTimer:
    """The CPU time that a rank's process computes between an answer and its next request, by what it is for."""

    def __init__(self, label: str) -> None:
        self._mark_ns, self._label = time.process_time_ns(), label
        self._before: list[ComputeOnCpu | GradientReady] = []  # up to the last turn or gradient

    def turn(self, label: str) -> None:
        """Count what is computed from now on under a label."""
        if label != self._label:
            self._cut()
            self._label = label

    def mark(self, ready: GradientReady) -> None:
        """Note that a gradient is ready at this point."""
        self._cut()
        self._before.append(ready)

    def take(self, *, is_cut: bool) -> list[ComputeOnCpu | GradientReady]:
        """Return what was computed, of which nothing is left; without `is_cut`, up to the last turn or gradient."""
        if is_cut:
            self._cut()
        found, self._before = self._before, []
        return found

    def restart(self) -> None:
        """Count from now on, and drop the time since the last turn or gradient."""
        self._mark_ns = time.process_time_ns()

    def since_answer_ns(self) -> int:
        """Return how long the process has computed since the last answer."""
        before_ns = sum(each.cpu_ns for each in self._before if isinstance(each, ComputeOnCpu))
        return before_ns + time.process_time_ns() - self._mark_ns

    def _cut(self) -> None:
        now_ns = time.process_time_ns()
        self._before.append(ComputeOnCpu(now_ns - self._mark_ns, self._label))
        self._mark_ns = now_ns


class ScriptClock:
    """Simulated time, as the simulator tells it with each answer; between two answers a CPU's time goes on.

    `computing_ns` gives how long a CPU has computed since the last answer. `pass_ns` has the simulator pass time in
    which the script sleeps and other ranks go on, and returns whether it has: beside a GPU ranks run at once.
    `catch_up` hears the answers that have not been awaited, ahead of a reading. Readings never fall. What the simulator
    does not charge, such as setting up, the script has seen to pass all the same. torch and other libraries read this
    machine's clock, by which their time-outs go.
    """

    def __init__(
        self,
        computing_ns: Callable[[], int],
        pass_ns: Callable[[int], bool],
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._computing_ns, self._pass_ns, self._catch_up = computing_ns, pass_ns, catch_up
        self._told_ns: int | None = None
        self._base_ns = self._seen_ns = self._shown_ns = 0
        self._has_said = False

    @property
    def is_simulated(self) -> bool:
        """Return whether a simulation gives the time."""
        return self._told_ns is not None

    def hear(self, now_ns: int | None) -> None:
        """Take the simulated time of an answer; None where nothing is simulated yet."""
        if now_ns is not None:
            passed_ns = 0 if self._told_ns is None else now_ns - self._told_ns
            self._told_ns, self._base_ns = now_ns, max(self._seen_ns, self._base_ns + passed_ns)

    def read_ns(self) -> int:
        """Return the time of the host, in ns since the script began."""
        self._catch_up()
        self._seen_ns = self._base_ns + self._computing_ns()
        self._shown_ns = self._seen_ns if self._seen_ns > self._shown_ns else self._shown_ns + _READING_NS
        return self._shown_ns

    def is_read(self) -> bool:
        """Return whether a reading is of simulated time; say once where it is not."""
        if not (self.is_simulated or self._has_said):
            self._has_said = True
            if os.environ["RANK"] == "0":
                print(f"note: {_NOT_SIMULATED}", file=sys.stderr, flush=True)
        return self.is_simulated

    def install(self) -> None:
        """Have the script's files read this clock where they ask `time` or `timeit`; what they sleep passes on it."""
        for name in ("time", "perf_counter", "monotonic"):
            self._replace(name, getattr(time, f"{name}_ns")())
        timeit.default_timer = time.perf_counter
        sleep, own = time.sleep, os.getpid()

        def slept(seconds: Any) -> None:
            sleep(seconds)
            slept_ns, is_main = round(seconds * 1e9), threading.current_thread() is threading.main_thread()
            if not is_users_file(sys._getframe(1).f_code.co_filename):
                return
            self._catch_up()
            if not (is_main and os.getpid() == own and self._pass_ns(slept_ns)):
                self._base_ns = max(self._base_ns, self._shown_ns) + slept_ns

        time.sleep = slept

    def _replace(self, name: str, start_ns: int) -> None:
        in_s, in_ns = getattr(time, name), getattr(time, f"{name}_ns")

        def seconds() -> Any:
            if is_users_file(sys._getframe(1).f_code.co_filename) and self.is_read():
                return (start_ns + self.read_ns()) / 1e9
            return in_s()

        def nanoseconds() -> Any:
            if is_users_file(sys._getframe(1).f_code.co_filename) and self.is_read():
                return start_ns + self.read_ns()
            return in_ns()

        setattr(time, name, seconds)
        setattr(time, f"{name}_ns", nanoseconds)
