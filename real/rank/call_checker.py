"""A thread for a group, or a pair in it, that lets its members agree on each call before it begins.

It keeps their order. A verb only hands its call over and returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

from real.libraries.moves import Joined
from real.rank.agreement import GroupAgreement
from real.rank.drive import StreamThread
from real.rank.lanes import PendingCall
from scenarios.seam.calls import Call
from scenarios.seam.errors import CollectiveError

# Whether what is issued now is checked; a spawned coroutine inherits it, so that it is the same on all ranks.
CHECKING: ContextVar[bool] = ContextVar("checking", default=False)


class CheckedCall:
    """A call that is being checked: a `PendingCall` that fails if the members' calls do not fit, and else begins."""

    def __init__(self, call: Call, begin: Callable[[], PendingCall] | None, *, is_checked: bool) -> None:
        """`begin` starts the collective; there is none for a call whose arguments were refused."""
        self._call, self._begin, self._is_checked = call, begin, is_checked
        self._released = threading.Event()
        self._pending: PendingCall | None = None
        self._error: Exception | None = None

    def serve(self, agreement: GroupAgreement) -> None:
        """On the checker's thread: wait for what the other members call, then begin."""
        try:
            sentence = agreement.disagreement(self._call, is_checked=self._is_checked) or self._call.mistake
            if sentence:
                raise CollectiveError(sentence)
            assert self._begin is not None, "only a call that was refused has nothing to begin"
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
        """See `PendingCall.is_over`."""
        return self._pending is not None and self._pending.is_over()

    def wait(self) -> None:
        """See `PendingCall.wait`; CollectiveError if the calls do not fit."""
        self._released.wait()
        if self._error is not None:
            raise self._error
        assert self._pending is not None, "what did not fail has begun"
        self._pending.wait()


class CallChecker:
    """Checks the calls of one group or pair on one rank. Its thread starts with the first call that it is handed."""

    def __init__(self, name: str, joined: Joined, agreement: GroupAgreement) -> None:
        """`joined` is the group that the members' calls travel on."""
        self.joined = joined
        self._agreement = agreement
        self._player = StreamThread(name)
        self._lock = threading.Lock()
        self._held = 0

    @property
    def is_needed(self) -> bool:
        """Whether a call that asks for no check has to wait for it: for others before, or as the members agreed."""
        return self._agreement.is_on or self._held > 0

    def hold(self, held: CheckedCall) -> CheckedCall:
        """Serve it after all before it."""
        with self._lock:
            self._held += 1
        self._player.submit(lambda: self._serve(held))
        return held

    def dismiss(self) -> None:
        """There will be no further call: end the thread."""
        self._player.stop()

    def _serve(self, held: CheckedCall) -> None:
        held.serve(self._agreement)
        with self._lock:
            self._held -= 1
        held.release()
