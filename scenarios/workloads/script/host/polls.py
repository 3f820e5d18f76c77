"""What the host polls for, look by look: an event, a stream, a call."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from scenarios.workloads.script.events.waits import Query, SynchronizeCall

# A look takes the host 1 us; after as many at one thing with nothing launched between them, the host waits for it.
MOST_POLLS = 1_000


class Polls:
    """A rank's looks at simulated time, by way of its `link`."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._not_over = Counter[Query]()  # looks answered by no since the host did something else

    def end(self) -> None:
        """Begin anew, as the host does something else."""
        self._not_over.clear()

    def is_over(self, kind: Literal["event", "stream", "call"], number: int) -> bool:
        """Return whether an "event", a "stream" or a "call" is over in simulated time, by its number.

        A loop of looks ends in a wait: it takes no time where the last look says yes, but a recording that is played
        on slower hardware waits there.
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
