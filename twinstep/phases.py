"""The duration of a command by phase; this module imports nothing that takes long to load."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

# A shorter command does not report its time.
_LEAST_S = 2.0


class Phases:
    """A sum of seconds for each phase of a command, the first of which begins now."""

    def __init__(self, first: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._phase = now_s, first
        self._began_s = self._since_s = now_s()
        self._s = defaultdict[str, float](float)

    @property
    def total_s(self) -> float:
        """The seconds of all phases so far."""
        return self._now_s() - self._began_s

    def begin(self, phase: str) -> None:
        """End the present phase and begin another one; nothing changes if it is the present one."""
        if phase != self._phase:
            now_s = self._now_s()
            self._s[self._phase] += now_s - self._since_s
            self._phase, self._since_s = phase, now_s

    def sentence(self) -> str:
        """Return how long all phases took, and which took longest; "" for a short command."""
        self._s[self._phase] += self._now_s() - self._since_s
        self._since_s = self._now_s()
        if self.total_s < _LEAST_S:
            return ""
        longest = max(self._s, key=lambda phase: self._s[phase])
        return f"predicted in {self.total_s:.1f} s, the longest part: {longest}, {self._s[longest]:.1f} s"
