"""Polls of the host: queries of an event, a stream or a call."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from scenarios.workloads.recording.events.waits import Query, SynchronizeCall

# A poll takes the host 1 us; after this many of one target with no launch in between, the host waits for the target.
MOST_POLLS = 1_000


class Polls:
    """A rank's polls of simulated time, through its `link`."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._not_over = Counter[Query]()  # polls answered with no since the host's last other work

    def end(self) -> None:
        """Reset the count of polls: the host does something else."""
        self._not_over.clear()

    def is_over(self, kind: Literal["event", "stream", "call"], number: int) -> bool:
        """Return whether an "event", "stream" or "call" is over in simulated time, by its number.

        A polling loop ends in a wait. The wait takes no time here, as the last poll says yes, but a replay on slower
        hardware waits there.
        """
        link, look = self._link, Query(kind, number)
        if link.is_captured:
            return True
        if link.launched:
            self.end()
        is_over = link.ask(look) is not False
        if not is_over:
            self._not_over[look] += 1
            is_over = self._not_over[look] >= MOST_POLLS
        if is_over and self._not_over[look]:
            self._wait(kind, number)
        return is_over

    def _wait(self, kind: str, number: int) -> None:
        if kind == "event":
            self._link.synchronize_event(number)
        elif kind == "stream":
            self._link.synchronize(number)
        else:
            self._link.ask(SynchronizeCall(number))
