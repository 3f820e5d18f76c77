"""Shows a prediction's progress on stderr, and handles Ctrl-C in it."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from scenarios.progress_line import ProgressLine
from sim.run import RunProgress
from twinstep.phases import Phases


class ProgressBar:
    """One line that `show` draws where stderr is a terminal, after a second, a few times a second; gone at the end.

    `plays`: how often the scenario is simulated in all: once, and once for each draw. What is said and done is put
    into `phases`, the command's.
    """

    def __init__(
        self,
        plays: int = 1,
        *,
        quiet: bool = False,
        now_s: Callable[[], float] = time.monotonic,
        phases: Phases | None = None,
    ) -> None:
        self._plays, self._play = plays, 0
        self._now_s, self.phases = now_s, phases or Phases("", now_s)
        self._doing = ""  # what a program says that it does
        self._began_s = self._moved_s = now_s()
        self._share = 0.0
        self._line = ProgressLine(quiet=quiet, first_s=1.0, now_s=now_s)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.end()

    def next_play(self) -> None:
        """Begin again: the scenario is simulated once more."""
        self._play += 1

    def show(self, where: Callable[[], RunProgress]) -> None:
        """Draw, if it is time; else this costs a look at the clock."""
        if not self._line.is_due():
            return
        now_s, position = self._now_s(), where()
        share = (self._play + position.share) / self._plays
        if share > self._share:
            self._share, self._moved_s = share, now_s
        if self._doing:
            self._line.draw(self._doing, self._share, clock_text(self.phases.total_s))
            return
        draw = f"draw {self._play} of {self._plays - 1}, " if self._play else ""
        times = f"{clock_text(now_s - self._began_s)}, {clock_text(self._left_s(now_s))} left"
        self._line.draw(f"{draw}{position}", self._share, times)

    def say(self, words: str) -> None:
        """What is under way, if the line is there by now; a phase is named by the words ahead of a colon."""
        self.phases.begin(words.partition(":")[0])
        self._doing = ""
        self._line.draw(words, self._share)

    def does(self, phase: str, words: str) -> None:
        """Take what a program says that it does, and draw these words, if there are any and it is time."""
        self.phases.begin(phase)
        self._doing = words
        if words and self._line.is_due():
            self._line.draw(words, self._share, clock_text(self.phases.total_s))

    def _left_s(self, now_s: float) -> float:
        """If what is left goes as fast as what is done; it counts down while no rank ends a step."""
        if not self._share:
            return math.nan
        at_last_s = (self._moved_s - self._began_s) * (1 - self._share) / self._share
        return max(at_last_s - (now_s - self._moved_s), 0.0)


class Interrupt:
    """Within it the first Ctrl-C only sets `requested`; the next is a KeyboardInterrupt, as without it.

    Where Ctrl-C is ignored (by nohup, say), it stays so.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self._before(number, frame)
        self.requested = True


def clock_text(seconds: float) -> str:
    """ "1:02:03", "2:03"; "?" for nan."""
    if math.isnan(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
