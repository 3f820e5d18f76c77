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

    A timed step lies between two marks of the script's own stream, for which the host does not wait; `note` makes spans
    of kind "step" of them, outside of the run's steps. `ended_s` is when the host came to the end of the last one.
    """

    def __init__(self, journal: Journal, lane: Lane, stream: str, first: int, count: int) -> None:
        """`first` is the number of the first step of all these."""
        self._journal, self._lane, self._stream = journal, lane, stream
        self._number, self._first, self._last = first, first + SETTLING, first + SETTLING + count - 1
        self._begun: tuple[int, Mark] | None = None  # when the host began the step, and its mark
        self._timed: list[tuple[int, int, Mark, Mark]] = []  # with their numbers, not yet noted
        self._looked_s = self.ended_s = time.monotonic()

    @property
    def timed(self) -> int:
        """The number of steps that were timed."""
        return max(0, self._number - self._first)

    def end_step(self) -> bool:
        """End a step and begin the next one; return whether the last one has ended."""
        issued_ns, at = time.monotonic_ns(), self._lane.mark()
        if self._begun is not None:
            self._timed.append((self._number, *self._begun, at))
        self._number += 1
        if self._number >= self._first:
            self._begun = issued_ns, at
        self.ended_s = issued_ns / 1e9
        if self.ended_s - self._looked_s >= SPOOLED_EVERY_S:
            self._look()
        return self._number > self._last

    def note(self) -> None:
        """Note the steps that were timed since the last time, which is not to happen in a step."""
        timed, self._timed = self._timed, []
        for number, issued_ns, start, end in timed:
            entry = Entry(self._lane, self._stream, "step", f"step {number}", start=start, step=-1)
            entry.issued = entry.wait_from = entry.wait_until = issued_ns  # not later than a device passes its mark
            entry.end = end
            self._journal.note(entry)

    def _look(self) -> None:
        """Look at the device's clock, apart from the time of any step."""
        self._lane.between_steps()
        self._looked_s = time.monotonic()
        if self._begun is not None:
            self._begun = time.monotonic_ns(), self._lane.mark()
