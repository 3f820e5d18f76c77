"""The clerk of a group: a thread that lets the members agree on each call before it begins, and keeps their order.

A verb only hands its call over and returns. What the members say to each other is left to `agreement`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

from real.agreement import disagreement_of_all
from real.clock import Pending
from real.drive import Player
from real.wire import Joined
from scenarios.calls import Call
from scenarios.errors import CollectiveError

# Whether what is issued now is checked; a spawned coroutine inherits it, so that it is the same on all ranks.
CHECKING: ContextVar[bool] = ContextVar("checking", default=False)


class Held:
    """A call in a clerk's hands: a `Pending` that fails if the members' calls do not fit, and else begins."""

    def __init__(self, call: Call, begin: Callable[[], Pending] | None, *, is_checked: bool) -> None:
        """`begin` starts the collective; there is none for a call whose arguments were refused."""
        self._call, self._begin, self._is_checked = call, begin, is_checked
        self._released = threading.Event()
        self._pending: Pending | None = None
        self._error: Exception | None = None

    def serve(self, joined: Joined) -> None:
        """On the clerk's thread: wait for what the other members call, then begin."""
        try:
            sentence = disagreement_of_all(joined, self._call) if self._is_checked else None
            if sentence is not None:
                raise CollectiveError(sentence)
            assert self._begin is not None, "the members do not agree on a call that was refused"
            self._pending = self._begin()
        except Exception as error:  # raised again where the program awaits
            self._error = error

    def release(self) -> None:
        """Let go on who waits."""
        self._released.set()

    def is_told(self, timeout_s: float) -> bool:
        """Whether the other members have heard of it, within that time."""
        return self._released.wait(timeout_s)

    def is_over(self) -> bool:
        """See `Pending.is_over`."""
        return self._pending is not None and self._pending.is_over()

    def wait(self) -> None:
        """See `Pending.wait`; CollectiveError if the calls do not fit."""
        self._released.wait()
        if self._error is not None:
            raise self._error
        assert self._pending is not None, "what did not fail has begun"
        self._pending.wait()


class Clerk:
    """Of one group on one rank. Its thread starts with the first call that it is handed."""

    def __init__(self, rank: int, joined: Joined) -> None:
        self.joined = joined
        self._player = Player(f"rank {rank} clerk of {joined.group.name}")
        self._lock = threading.Lock()
        self._held = 0

    @property
    def is_idle(self) -> bool:
        """Whether all that it was handed has begun or failed: then a call may begin without it."""
        return self._held == 0

    def hold(self, held: Held) -> Held:
        """Serve it after all before it."""
        with self._lock:
            self._held += 1
        self._player.submit(lambda: self._serve(held))
        return held

    def dismiss(self) -> None:
        """There will be no further call: end the thread."""
        self._player.stop()

    def _serve(self, held: Held) -> None:
        held.serve(self.joined)
        with self._lock:
            self._held -= 1
        held.release()
