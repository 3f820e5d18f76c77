"""The steps of a script that are timed with the recording off: only where each ends is kept."""

from __future__ import annotations

import time

from real.rank.journal import Entry, Journal
from real.rank.lanes import Lane, Mark
from real.rank.run import SPOOLED_EVERY_S

# First steps that are not timed: works that the recording began may still be under way, and a GPU's queue is empty.
SETTLING = 2


class UnrecordedSteps:
    """The steps behind the recorded ones, `SETTLING` that are not timed and then `count` that are.

    Each timed step becomes a span of kind "step" outside of the run's steps, from one mark of the script's own stream
    to the next; the host waits for none. `ended_s` is when the host came to the end of the last one.
    """

    def __init__(self, journal: Journal, lane: Lane, stream: str, first: int, count: int) -> None:
        """`first` is the number of the first step of all these."""
        self._journal, self._lane, self._stream = journal, lane, stream
        self._number, self._first, self._last = first, first + SETTLING, first + SETTLING + count - 1
        self._issued = 0
        self._since: Mark | None = None
        self._looked_s = self.ended_s = time.monotonic()

    @property
    def timed(self) -> int:
        """The number of steps that were timed."""
        return max(0, self._number - self._first)

    def end_step(self) -> bool:
        """End a step and begin the next one; return whether the last one has ended."""
        issued_ns, at = time.monotonic_ns(), self._lane.mark()
        if self._since is not None:
            self._journal.note(self._step(at))
        self._journal.moves += 1
        self.ended_s = time.monotonic()
        self._number += 1
        if self._number >= self._first:
            self._issued, self._since = issued_ns, at
        if self.ended_s - self._looked_s >= SPOOLED_EVERY_S:
            self._look()
        return self._number > self._last

    def _step(self, end: Mark) -> Entry:
        entry = Entry(self._lane, self._stream, "step", f"step {self._number}", start=self._since, step=-1)
        entry.issued = self._issued  # a device that is idle passes a mark before this is written
        entry.wait_from = entry.wait_until = self._issued
        entry.end = end
        return entry

    def _look(self) -> None:
        """Look at the device's clock, apart from the time of any step."""
        self._lane.between_steps()
        self._looked_s = time.monotonic()
        if self._since is not None:
            self._issued, self._since = time.monotonic_ns(), self._lane.mark()
