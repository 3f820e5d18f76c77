"""Times the steps of a script with the recording off: only the end of each step is kept."""

from __future__ import annotations

import time

from real.rank.journal import Entry, Journal
from real.rank.lanes import Mark, StreamLane
from real.rank.run import SPOOLED_EVERY_S

# First steps that are not timed: recorded calls may still be in flight, and a GPU's launch queue is empty.
SETTLING = 2


class UnrecordedSteps:
    """The steps after the recorded ones: first `SETTLING` untimed steps, then `count` timed steps.

    A timed step lies between two marks of the script's own stream, for which the host does not wait; `note` turns timed
    steps into spans of kind "step", outside of the run's steps. `ended_s` is when the host ended the last step.
    """

    def __init__(self, journal: Journal, lane: StreamLane, stream: str, first: int, count: int) -> None:
        """Begin with step number `first`."""
        self._journal, self._lane, self._stream = journal, lane, stream
        self._number, self._first, self._last = first, first + SETTLING, first + SETTLING + count - 1
        self._step_start: tuple[int, Mark] | None = None  # host time and mark at the start of the current step
        self._unsent: list[tuple[int, int, Mark, Mark]] = []  # number, host start, start, end of steps not yet recorded
        self._clock_s = self.ended_s = time.monotonic()

    @property
    def timed_steps(self) -> int:
        """The number of steps that were timed."""
        return max(0, self._number - self._first)

    def end_step(self) -> bool:
        """End a step and begin the next one; return whether the last step has ended."""
        issued_ns, at = time.monotonic_ns(), self._lane.mark()
        if self._step_start is not None:
            self._unsent.append((self._number, *self._step_start, at))
        self._number += 1
        if self._number >= self._first:
            self._step_start = issued_ns, at
        self.ended_s = issued_ns / 1e9
        if self.ended_s - self._clock_s >= SPOOLED_EVERY_S:
            self._read_clock()
        return self._number > self._last

    def note(self) -> None:
        """Record the steps timed since the last call; call it between steps."""
        timed, self._unsent = self._unsent, []
        for number, issued_ns, start, end in timed:
            entry = Entry(self._lane, self._stream, "step", f"step {number}", start=start, step=-1)
            entry.issued = entry.wait_from = entry.wait_until = issued_ns  # not later than the device passes its mark
            entry.end = end
            self._journal.note(entry)

    def _read_clock(self) -> None:
        """Synchronise with the device's clock between two steps."""
        self._lane.between_steps()
        self._clock_s = time.monotonic()
        if self._step_start is not None:
            self._step_start = time.monotonic_ns(), self._lane.mark()
