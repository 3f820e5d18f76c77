"""A thread for a group, or for a pair in it, on which members compare each call before it begins.

The thread keeps the calls' order. A verb only submits its call and returns.
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

# Whether calls issued now are checked; spawned coroutines inherit it, so that all ranks agree.
CHECKING: ContextVar[bool] = ContextVar("checking", default=False)


class CheckedCall:
    """A `PendingCall` that is compared first: it fails if the members' calls do not fit, and begins otherwise."""

    def __init__(self, call: Call, begin: Callable[[], PendingCall] | None, *, is_checked: bool) -> None:
        """Store the call; `begin` starts it, and is None for a call whose arguments were refused."""
        self._call, self._begin, self._is_checked = call, begin, is_checked
        self._released = threading.Event()
        self._pending: PendingCall | None = None
        self._error: Exception | None = None

    def serve(self, agreement: GroupAgreement) -> None:
        """Compare with the other members' calls, then begin; runs on the checker's thread."""
        try:
            sentence = agreement.disagreement(self._call, is_checked=self._is_checked) or self._call.mistake
            if sentence:
                raise CollectiveError(sentence)
            assert self._begin is not None, "only a call that was refused has nothing to begin"
            self._pending = self._begin()
        except Exception as error:  # raised again where the program awaits the call
            self._error = error

    def release(self) -> None:
        """Wake up the threads that wait for the comparison with the other members' calls, which is over."""
        self._released.set()

    def is_told(self, timeout_s: float) -> bool:
        """Return whether the comparison is over, that is, the other members have this call, within `timeout_s`."""
        return self._released.wait(timeout_s)

    def is_over(self) -> bool:
        """Return whether the call has ended."""
        return self._pending is not None and self._pending.is_over()

    def wait(self) -> None:
        """See `PendingCall.wait`; CollectiveError if the calls do not fit."""
        self._released.wait()
        if self._error is not None:
            raise self._error
        assert self._pending is not None, "what did not fail has begun"
        self._pending.wait()


class CallChecker:
    """A checker of the calls of one group or pair on one rank; its thread starts with the first call."""

    def __init__(self, name: str, joined: Joined, agreement: GroupAgreement) -> None:
        """Store the arguments; `joined` is the group on which the members' calls travel."""
        self.joined = joined
        self._agreement = agreement
        self._player = StreamThread(name)
        self._lock = threading.Lock()
        self._held = 0

    @property
    def is_needed(self) -> bool:
        """Whether an unchecked call must also queue here: behind held calls, or as the members agreed to compare."""
        return self._agreement.is_on or self._held > 0

    def hold(self, held: CheckedCall) -> CheckedCall:
        """Queue a call behind all earlier ones."""
        # Locked, as the checker's thread subtracts from the number.
        with self._lock:
            self._held += 1
        self._player.submit(lambda: self._serve(held))
        return held

    def dismiss(self) -> None:
        """End the thread; there must be no further call."""
        self._player.stop()

    def _serve(self, held: CheckedCall) -> None:
        held.serve(self._agreement)
        # Before `release`, or the program's next unchecked call would queue here for nothing.
        with self._lock:
            self._held -= 1
        held.release()
