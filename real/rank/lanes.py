"""A rank's clock, its streams on the device (`StreamLane`), and the alignment of hosts' clocks to one axis."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:  # the launcher imports this module for its clock, without loading torch
    import torch
    import torch.distributed as dist
    from torch import Tensor

T = TypeVar("T")

# A moment: ns of this host's monotonic clock, an event that a device will pass, or the latest of several.
Mark: TypeAlias = "int | torch.cuda.Event | tuple[Mark, ...]"

ROUND_TRIPS = 32


def now_ns() -> int:
    """Return this host's clock, shared by all its processes (CLOCK_MONOTONIC on Linux)."""
    return time.monotonic_ns()


def lasting(least_ns: int, function: Callable[..., T], *arguments: object) -> T:
    """Call the function and return its result, but not before `least_ns` have passed."""
    due_ns = now_ns() + least_ns
    value = function(*arguments)
    time.sleep(max(0, due_ns - now_ns()) / 1e9)
    return value


class SpanTimes(Protocol):
    """The fields that a lane fills with an operation's begin and end."""

    start: Mark
    end: Mark | None
    wait_from: Mark | None
    wait_until: Mark | None

    @property
    def queue(self) -> str:
        """Queue of a call: the library runs one queue's calls in order; other queues may overtake."""
        ...


class Reading(Protocol):
    """A number that a device may not have computed yet."""

    def is_past(self) -> bool:
        """Return whether the number has arrived on the host."""
        ...

    def value(self) -> float:
        """Return the number; valid only after `is_past()` returns True."""
        ...


class PendingCall(Protocol):
    """A collective in progress."""

    def is_over(self) -> bool:
        """Return whether the collective's outputs are filled; False if only waiting can tell."""
        ...

    def wait(self) -> None:
        """Wait until the collective's outputs are filled, in the caller's order; RuntimeError if it failed."""
        ...


_HERE: AbstractContextManager[None] = nullcontext()


class StreamLane:
    """A rank's stream on its device: it runs kernels, follows collectives, and records their times.

    This class is a CPU thread, on which a kernel runs when issued; `cuda.CudaLane` is a GPU stream.
    """

    _issued = threading.local()  # `last`: this thread's latest call, until it issues something else
    # Returns a mark for now, in the order of the caller's lane.
    mark: Callable[[], Mark] = staticmethod(time.monotonic_ns)
    # Converts a mark to this host's clock; on a CPU a mark is already an int.
    ns: Callable[[Mark], int] = staticmethod(operator.index)  # type: ignore[assignment]
    # Reads a number to record, in the order of the caller's lane, without waiting.
    read: Callable[[Tensor | float], float | Reading] = staticmethod(float)

    def enter(self, after: Mark) -> AbstractContextManager[object]:
        """Run the body on this lane, after that mark."""
        return _HERE

    def beside(self, after: Mark) -> AbstractContextManager[object]:
        """Run the body after that mark of this lane, but not after later work of the lane."""
        return _HERE

    def playing(self, coroutine: Coroutine[Any, Any, Any], after: Mark) -> AbstractContextManager[object]:
        """Run a coroutine's body as `enter` does, and keep its arguments alive until this lane has used them."""
        return _HERE

    def run(self, timed: SpanTimes, function: Callable[..., T], arguments: Sequence[object]) -> T:
        """Run a kernel on this lane and fill `timed`, also if the kernel raises."""
        timed.start = time.monotonic_ns()
        try:
            return function(*arguments)
        finally:
            timed.end = time.monotonic_ns()

    def overtakes(self) -> None:
        """Have gloo's thread finish the caller's last call, which the caller does not await at once."""
        last: _Underway | None = getattr(self._issued, "last", None)
        if last is not None:
            self._issued.last = None
            last.follow()

    def follow(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Fill `timed.end` when the collective has ended and `finish` has run; hold `held` until then; do not wait.

        The end is seen by gloo's own thread if another operation is issued first, else by the awaiting thread.
        """
        self._issued.last = underway = _Underway(timed, work, finish)
        return underway

    def follow_awaited(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Follow a collective that the caller awaits next, where it was issued; may already wait here."""
        return self.follow(timed, work, finish, held)

    def stand(self, timed: SpanTimes, pending: PendingCall, since: Mark | None = None) -> Mark:
        """Wait for a collective, from `since` or now on; fill `timed`, and return the mark at which the wait ends.

        RuntimeError if the collective failed.
        """
        # Read before the clock: a call that ends between the two counts as waited for, by next to nothing.
        was_over = pending.is_over()
        timed.wait_from = time.monotonic_ns() if since is None else since
        try:
            pending.wait()
        finally:
            now = time.monotonic_ns()
            # A collective that was over has kept nobody waiting; the time of `wait` itself is overhead.
            timed.wait_until = timed.wait_from if was_over else now
        return now

    def take(self, timed: SpanTimes, value: object) -> None:
        """Let the caller use the value of a kernel of this lane; fill the wait times of `timed`."""
        timed.wait_from = timed.wait_until = time.monotonic_ns()

    def after(self, since: Mark) -> Mark:
        """Return when the caller continues after a call from `since` that gave its stream no work."""
        return time.monotonic_ns()

    def wait_for(self, mark: Mark, value: object = None) -> None:
        """Order what the caller runs next after this mark of the lane; it may use `value`, made on the lane."""

    def synchronize(self) -> None:
        """Wait until all work of the caller's current stream has ended; on a CPU it already has."""

    def is_past(self, mark: Mark) -> bool:
        """Return whether `ns` can convert the mark."""
        return True

    def between_steps(self) -> None:
        """Do slow housekeeping outside of steps."""

    def settle(self) -> None:
        """Wait until every mark has passed."""


class _Underway:
    """A gloo collective in progress. Followed, gloo's own thread finishes it as soon as it ends; else the waiter does.

    Following costs a hand-over between threads, about as much as the rest of a call, so it is done only when the
    program issues something else before it awaits this. A send or recv cannot be followed: it ends when awaited.
    """

    __slots__ = ("_error", "_finish", "_is_ended", "_is_waited", "_lock", "_timed", "_work")

    def __init__(self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None) -> None:
        self._timed, self._work, self._finish = timed, work, finish
        self._lock = threading.Lock()
        self._is_waited = self._is_ended = False
        self._error: BaseException | None = None

    def follow(self) -> None:
        """Have gloo's thread finish the call from now on, unless someone already waits."""
        # Read without the lock: `_end` finishes a call once, even if both threads come to it.
        if not self._is_waited:
            # The finish then runs in `wait`, so such a call's end is seen only when it is awaited.
            with suppress(RuntimeError):  # sends and receives have no future
                self._work.get_future().add_done_callback(self._has_ended)

    def is_over(self) -> bool:
        return self._is_ended

    def wait(self) -> None:
        # Before the wait, so that `follow` on another thread leaves the finish to this one.
        self._is_waited = True
        self._work.wait()  # raises what went wrong in the transport
        self._end()
        if self._error is not None:
            raise self._error

    def _has_ended(self, future: torch.futures.Future[object]) -> None:
        """Finish the call on gloo's thread; transport errors are left to the waiter, which gets them too."""
        with suppress(RuntimeError):
            # Raises if the transport failed; then the outputs are undefined, and must not be finished.
            future.value()
            self._end()

    def _end(self) -> None:
        """Finish the call once, on whichever thread is first."""
        with self._lock:
            if self._is_ended:
                return
            try:
                if self._finish is not None:
                    self._finish()
            except BaseException as error:  # raised again where the program awaits
                self._error = error
            # After the finish: copying results out belongs to the call.
            self._timed.end = time.monotonic_ns()
            self._is_ended = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """A reading of the reference clock: requested and answered at times of our clock, `there_ns` by the other."""

    asked_ns: int
    there_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """An offset of the common axis: at `local_ns` of our clock, the axis read `offset_ns` more, within `error_ns`."""

    local_ns: int
    offset_ns: int
    error_ns: int


SAME_CLOCK = Sight(local_ns=0, offset_ns=0, error_ns=0)


def sight(trips: Iterable[RoundTrip]) -> Sight:
    """Return the offset from the quickest round trip, whose uncertainty is least."""
    best = min(trips, key=lambda trip: trip.answered_ns - trip.asked_ns)
    middle = (best.asked_ns + best.answered_ns) // 2
    return Sight(
        local_ns=middle, offset_ns=best.there_ns - middle, error_ns=(best.answered_ns - best.asked_ns + 1) // 2
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """An alignment from two sights, before and after a run, with linear drift between; without the second, no drift."""

    first: Sight = SAME_CLOCK
    last: Sight | None = None

    @property
    def residual_ns(self) -> int:
        """Largest error of a time on the axis, in ns."""
        return max(self.first.error_ns, self.last.error_ns if self.last else 0)

    def on_axis_ns(self, local_ns: int) -> int:
        """Convert a time of our clock to the axis, in integers: a float would lose ns."""
        if self.last is None or self.last.local_ns == self.first.local_ns:
            return local_ns + self.first.offset_ns
        elapsed = local_ns - self.first.local_ns
        drift = self.last.offset_ns - self.first.offset_ns
        return local_ns + self.first.offset_ns + elapsed * drift // (self.last.local_ns - self.first.local_ns)
