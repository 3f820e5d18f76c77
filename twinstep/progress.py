"""Show a prediction's progress on stderr, sum what its phases take, and handle Ctrl-C in it."""

from __future__ import annotations

import math
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from scenarios.progress_line import ProgressLine

if TYPE_CHECKING:
    from sim.run import RunProgress

# A shorter command does not report its time.
_LEAST_S = 2.0


class ProgressBar:
    """A progress line on a terminal's stderr, redrawn a few times a second from the first second on, and removed at the
    end; elsewhere, lines of text if requested.

    Args:
        plays: number of simulations of the scenario: one, and one for each draw.
        quiet: whether to draw nothing.
        now_s: clock, in s.
        phases: the command's phases; a message also begins a phase.
        plain_s: where stderr is no terminal, minimum time between two lines.
    """

    def __init__(
        self,
        plays: int = 1,
        *,
        quiet: bool = False,
        now_s: Callable[[], float] = time.monotonic,
        phases: Phases | None = None,
        plain_s: float = math.inf,
    ) -> None:
        self._plays, self._play = plays, 0
        self._now_s, self.phases = now_s, phases or Phases("", now_s)
        self._doing = ""  # the program's own message
        self._began_s = self._moved_s = now_s()
        self._share = 0.0
        self._line = ProgressLine(quiet=quiet, first_s=1.0, plain_s=plain_s, now_s=now_s)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Remove the line and stop drawing."""
        self._line.end()

    def next_play(self) -> None:
        """Begin the next simulation of the scenario."""
        self._play += 1

    def show(self, where: Callable[[], RunProgress]) -> None:
        """Draw, if it is time; else only the clock is read."""
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

    def say(self, words: str, share: float | None = None) -> None:
        """Draw a message, if the line is visible by now; the words before a colon name the phase.

        `share` is how much is done of what the message is about; None: of the simulations so far.
        """
        self.phases.begin(words.partition(":")[0])
        self._doing = ""
        self._line.draw(words, self._share if share is None else share)

    def does(self, phase: str, words: str) -> None:
        """Begin a program's phase, and draw its message, if there is one and it is time."""
        self.phases.begin(phase)
        self._doing = words
        if words and self._line.is_due():
            self._line.draw(words, self._share, clock_text(self.phases.total_s))

    def _left_s(self, now_s: float) -> float:
        """Return the seconds left at the average pace so far; the number counts down while no rank ends a step."""
        if not self._share:
            return math.nan
        at_last_s = (self._moved_s - self._began_s) * (1 - self._share) / self._share
        return max(at_last_s - (now_s - self._moved_s), 0.0)


class Interrupt:
    """A context in which the first Ctrl-C only sets `requested`; the next is a KeyboardInterrupt, as outside.

    Where Ctrl-C is ignored (by nohup, say), it stays ignored.
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
    """Return "1:02:03", "2:03"; "?" for nan."""
    if math.isnan(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
