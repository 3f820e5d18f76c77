"""Time as one rank sees it, and how hosts' clocks become one axis."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:  # the launcher reads the clock too, and has no need of torch
    import torch
    import torch.distributed as dist
    from torch import Tensor

T = TypeVar("T")

# A moment: ns of this host's monotonic clock, an event that a device will pass, or the last of several.
Mark: TypeAlias = "int | torch.cuda.Event | tuple[Mark, ...]"

ROUND_TRIPS = 32


def now_ns() -> int:
    """This host's clock, the same for all its processes (CLOCK_MONOTONIC on Linux)."""
    return time.monotonic_ns()


def lasting(least_ns: int, function: Callable[..., T], *arguments: object) -> T:
    """What the function gives, not before `least_ns` have passed."""
    due_ns = now_ns() + least_ns
    value = function(*arguments)
    time.sleep(max(0, due_ns - now_ns()) / 1e9)
    return value


class SpanTimes(Protocol):
    """Where a lane writes when an operation began and ended."""

    start: Mark
    end: Mark | None
    wait_from: Mark | None
    wait_until: Mark | None

    @property
    def queue(self) -> str:
        """The library plays the calls of one queue in order; others may pass them."""
        ...


class Reading(Protocol):
    """A number that a device has not computed yet."""

    def is_past(self) -> bool:
        """Whether it is here."""
        ...

    def value(self) -> float:
        """The value; valid only after `is_past()` returns True."""
        ...


class PendingCall(Protocol):
    """A collective under way."""

    def is_over(self) -> bool:
        """Whether its outputs are filled; where that is unknown before waiting, False."""
        ...

    def wait(self) -> None:
        """Until its outputs are filled, for what runs next in the caller's order; RuntimeError if it failed."""
        ...


_HERE: AbstractContextManager[None] = nullcontext()


class StreamLane:
    """What one stream of a rank is on its device: it runs kernels, follows collectives, and says when they were.

    This one is a CPU thread, where a kernel runs when it is issued and is its own order; `cuda.CudaLane` is a GPU's.
    """

    _issued = threading.local()  # `last`: what this thread has issued last, while nothing else was
    # Now, in the order of the caller's lane.
    mark: Callable[[], Mark] = staticmethod(time.monotonic_ns)
    # When a mark was, on this host's clock; here the mark itself, an int.
    ns: Callable[[Mark], int] = staticmethod(operator.index)  # type: ignore[assignment]
    # A number that the program records, as it is now in the order of the caller's lane; does not wait.
    read: Callable[[Tensor | float], float | Reading] = staticmethod(float)

    def entered(self, after: Mark) -> AbstractContextManager[object]:
        """What runs inside runs on this lane, after that mark."""
        return _HERE

    def beside(self, after: Mark) -> AbstractContextManager[object]:
        """What runs inside comes after that mark of this lane, but not after what the lane was given since."""
        return _HERE

    def playing(self, coroutine: Coroutine[Any, Any, Any], after: Mark) -> AbstractContextManager[object]:
        """As `entered`, for a coroutine that is about to begin: what it was given lives until this lane is through."""
        return _HERE

    def run(self, timed: SpanTimes, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        """Run a kernel on this lane; fills `timed`, also when the kernel raises."""
        timed.start = time.monotonic_ns()
        try:
            return function(*arguments)
        finally:
            timed.end = time.monotonic_ns()

    def overtakes(self) -> None:
        """The caller issues something further: what it issued last is followed, as it is not about to be awaited."""
        last: _Underway | None = getattr(self._issued, "last", None)
        if last is not None:
            self._issued.last = None
            last.follow()

    def follow(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Fill `timed.end` when the collective has ended and `finish` has run, hold `held` until then; no wait.

        Here gloo's own thread sees the end if something overtakes it, else whoever awaits it.
        """
        self._issued.last = underway = _Underway(timed, work, finish)
        return underway

    def follow_awaited(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """See `follow`, for a collective that the caller awaits next, where it was issued; it may be awaited here."""
        return self.follow(timed, work, finish, held)

    def stand(self, timed: SpanTimes, pending: PendingCall, since: Mark | None = None) -> Mark:
        """Wait for a collective, to which the caller came at `since`, or now; fill `timed`, return when it goes on.

        RuntimeError if the collective failed.
        """
        was_over = pending.is_over()
        timed.wait_from = time.monotonic_ns() if since is None else since
        try:
            pending.wait()
        finally:
            now = time.monotonic_ns()
            timed.wait_until = timed.wait_from if was_over else now
        return now

    def take(self, timed: SpanTimes, value: object) -> None:
        """Let the caller go on with the value of a kernel of this lane; fill `timed` with when it stood for that."""
        timed.wait_from = timed.wait_until = time.monotonic_ns()

    def after(self, since: Mark) -> Mark:
        """Return when the caller goes on that came to a call at `since`, which gave its stream nothing to do."""
        return time.monotonic_ns()

    def wait_for(self, mark: Mark, value: object = None) -> None:
        """What the caller runs next comes after this mark of the lane, and may use this value that the lane made."""

    def synchronize(self) -> None:
        """Wait until all has ended that the caller has given its current stream; a CPU has run it."""

    def is_past(self, mark: Mark) -> bool:
        """Whether `ns` can say when that was."""
        return True

    def between_steps(self) -> None:
        """Do what takes the host some time, and is not to be part of a step."""

    def settle(self) -> None:
        """Wait until every mark is past."""


class _Underway:
    """A collective of gloo. Followed, it is finished by gloo's own thread as soon as it has ended; else by who waits.

    Following costs a hand-over between threads, about as much as everything else here: so it is done only when the
    program issues something else before it awaits this. A send or recv cannot be followed: it ends when awaited.
    """

    __slots__ = ("_error", "_finish", "_is_ended", "_is_waited", "_lock", "_timed", "_work")

    def __init__(self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None) -> None:
        self._timed, self._work, self._finish = timed, work, finish
        self._lock = threading.Lock()
        self._is_waited = self._is_ended = False
        self._error: BaseException | None = None

    def follow(self) -> None:
        """From now on, if nobody waits yet."""
        if not self._is_waited:
            with suppress(RuntimeError):  # no future
                self._work.get_future().add_done_callback(self._has_ended)

    def is_over(self) -> bool:
        return self._is_ended

    def wait(self) -> None:
        self._is_waited = True
        self._work.wait()  # raises what went wrong in the transport
        self._end()
        if self._error is not None:
            raise self._error

    def _has_ended(self, future: torch.futures.Future[object]) -> None:
        """On gloo's thread; it says nothing of what went wrong in the transport, as the waiting one is told."""
        with suppress(RuntimeError):
            future.value()
            self._end()

    def _end(self) -> None:
        """Once, by whoever comes first."""
        with self._lock:
            if self._is_ended:
                return
            try:
                if self._finish is not None:
                    self._finish()
            except BaseException as error:  # raised again where the program awaits
                self._error = error
            self._timed.end = time.monotonic_ns()
            self._is_ended = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """One question to the clock that all are aligned to: asked and answered by ours, `there_ns` by the other."""

    asked_ns: int
    there_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Where the axis stood: at `local_ns` of our clock it read `offset_ns` more, give or take `error_ns`."""

    local_ns: int
    offset_ns: int
    error_ns: int


SAME_CLOCK = Sight(local_ns=0, offset_ns=0, error_ns=0)


def sight(trips: Iterable[RoundTrip]) -> Sight:
    """The quickest round trip says most: the other clock was read somewhere between question and answer."""
    best = min(trips, key=lambda trip: trip.answered_ns - trip.asked_ns)
    middle = (best.asked_ns + best.answered_ns) // 2
    return Sight(
        local_ns=middle, offset_ns=best.there_ns - middle, error_ns=(best.answered_ns - best.asked_ns + 1) // 2
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Two sights, before and after a run; between them the clocks drift evenly. Without the second, they do not."""

    first: Sight = SAME_CLOCK
    last: Sight | None = None

    @property
    def residual_ns(self) -> int:
        """How far a time on the axis may be off."""
        return max(self.first.error_ns, self.last.error_ns if self.last else 0)

    def on_axis_ns(self, local_ns: int) -> int:
        """A time of our clock as a time of the axis, in integers: a float would lose ns."""
        if self.last is None or self.last.local_ns == self.first.local_ns:
            return local_ns + self.first.offset_ns
        elapsed = local_ns - self.first.local_ns
        drift = self.last.offset_ns - self.first.offset_ns
        return local_ns + self.first.offset_ns + elapsed * drift // (self.last.local_ns - self.first.local_ns)
