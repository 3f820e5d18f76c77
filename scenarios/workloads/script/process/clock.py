"""The clock that a script's own files read, simulated time where known; and the timer of its process's CPU work."""

from __future__ import annotations

import os
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any

from scenarios.workloads.recording.events.work import ComputeOnCpu, GradientReady, Label
from scenarios.workloads.script.users_lines import is_users_file

# The least time between two readings, so that a loop that waits for a time ends.
_READING_NS = 1_000
_NOT_SIMULATED = (
    "times that the script reads are of this machine, not simulated: with --ranks alike or more than 64 ranks, ranks"
    " are recorded before they are simulated"
)


class ScriptCpuTimer:
    """The CPU time that a rank's process computes between an answer and its next request, by what it is for."""

    def __init__(self, label: Label) -> None:
        self._mark_ns, self._label = time.process_time_ns(), label
        self._before: list[ComputeOnCpu | GradientReady] = []  # up to the last turn or gradient

    def turn(self, label: Label) -> None:
        """Count what is computed from now on under a label."""
        if label != self._label:
            self._cut()
            self._label = label

    def mark(self, ready: GradientReady) -> None:
        """Note that a gradient is ready at this point."""
        self._cut()
        self._before.append(ready)

    def take(self, *, is_cut: bool) -> list[ComputeOnCpu | GradientReady]:
        """Return and forget what was computed; without `is_cut` only up to the last turn or gradient."""
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
        self._before.append(ComputeOnCpu(now_ns - self._mark_ns, *self._label))
        self._mark_ns = now_ns


class ScriptClock:
    """A clock of simulated time, set by each answer of the simulator; in between, CPU time advances it.

    Readings never decrease. Time that the simulator does not charge, such as set-up, still passes for the script. torch
    and other libraries read this machine's clock, as their timeouts depend on it.

    Args:
        computing_ns: returns how long the CPU has computed since the last answer.
        pass_ns: lets simulated time pass while the script sleeps and other ranks go on; returns whether it did.
        catch_up: receives pending answers before a reading.
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
        """Whether a simulation gives the time."""
        return self._told_ns is not None

    def hear(self, now_ns: int | None) -> None:
        """Set the clock to an answer's simulated time; None: nothing is simulated yet."""
        if now_ns is not None:
            # The first answer only sets where simulated time begins: what passes after it counts.
            passed_ns = 0 if self._told_ns is None else now_ns - self._told_ns
            # Not before what the script has read: measured CPU time may be ahead of the simulated time.
            self._told_ns, self._base_ns = now_ns, max(self._seen_ns, self._base_ns + passed_ns)

    def read_ns(self) -> int:
        """Return the host's time in ns since the script began."""
        self._catch_up()
        self._seen_ns = self._base_ns + self._computing_ns()
        self._shown_ns = self._seen_ns if self._seen_ns > self._shown_ns else self._shown_ns + _READING_NS
        return self._shown_ns

    def is_read(self) -> bool:
        """Return whether readings are simulated; print a note, once, if they are not."""
        if not (self.is_simulated or self._has_said):
            self._has_said = True
            if os.environ["RANK"] == "0":
                print(f"note: {_NOT_SIMULATED}", file=sys.stderr, flush=True)
        return self.is_simulated

    def install(self) -> None:
        """Make the script's files read this clock through `time` and `timeit`, and advance it by what they sleep."""
        # By the caller's file in each function, as libraries share the module `time` with the script.
        for name in ("time", "perf_counter", "monotonic"):
            start_ns = getattr(time, f"{name}_ns")()
            self._replace(name, start_ns, in_s=True)
            self._replace(f"{name}_ns", start_ns, in_s=False)
        timeit.default_timer = time.perf_counter
        sleep, own = time.sleep, os.getpid()

        def sleep_simulated(seconds: Any) -> None:
            # Slept for real, too: helpers of the script, such as its loader's workers, live in this machine's time.
            sleep(seconds)
            slept_ns, is_main = round(seconds * 1e9), threading.current_thread() is threading.main_thread()
            if not is_users_file(sys._getframe(1).f_code.co_filename):
                return
            self._catch_up()
            # Other threads and forked processes, such as a loader's workers, have no simulated rank to put to sleep.
            if not (is_main and os.getpid() == own and self._pass_ns(slept_ns)):
                self._base_ns = max(self._base_ns, self._shown_ns) + slept_ns

        time.sleep = sleep_simulated

    def _replace(self, name: str, start_ns: int, *, in_s: bool) -> None:
        usual = getattr(time, name)

        def read() -> Any:
            if is_users_file(sys._getframe(1).f_code.co_filename) and self.is_read():
                now_ns = start_ns + self.read_ns()
                return now_ns / 1e9 if in_s else now_ns
            return usual()

        setattr(time, name, read)
