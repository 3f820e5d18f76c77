"""What the host polls for, look by look: an event, a stream, a call."""

from __future__ import annotations

from typing import Any

# A look takes the host 1 us; after as many with nothing else between them, the host waits for what it polls for.
MOST_POLLS = 1_000


class Polls:
    """Looks of a rank's host at simulated time, by way of its `link`."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._polled: tuple[str, int] | None = None
        self._count = 0  # of looks at it in a row

    def end(self) -> None:
        """Begin anew, as the host does something else."""
        self._polled = None

    def is_over(self, kind: str, number: int) -> bool:
        """Return whether an "event", a "stream" or a "call" is over in simulated time, by its number."""
        link, polled = self._link, (kind, number)
        self._count = self._count + 1 if polled == self._polled and not link.launched else 1
        self._polled = polled
        if link.is_captured:
            return True
        if self._count < MOST_POLLS:
            return link.ask("query", polled, is_cut=False) is not False
        if kind == "event":
            link.synchronize_event(number)
        elif kind == "stream":
            link.synchronize(number)
        return True
