"""One stream of a rank on a CUDA device: marks are events, put onto the host's clock.

The host runs ahead of the device and waits for it only before the first step and in `settle`. So what a kernel or a
collective still uses must not be freed when the host has no more use for it: torch's allocator may hand memory to
whatever is launched next on the stream that it was taken for, and that does not wait for other streams. What crosses
streams is therefore held until its end has passed; only a result, whose further use nobody sees, is recorded instead.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from real.rank.lanes import ROUND_TRIPS, Mark, PendingCall, Reading, SpanTimes, StreamLane, now_ns

T = TypeVar("T")

# Between two steps: so many looks at most, and so long for each, which an idle stream needs a tenth of.
_LOOKS, _PATIENCE_NS = 4, 100_000
# An anchor that is not older stays: within that time the clocks drift apart by 5 us, at the most.
_FRESH_NS = 50_000_000
# Two quartz clocks, each within 50 parts per million of its rate: what an anchor loses of its worth as it gets older.
_DRIFT = 1e-4
# As many as are looked through for what passed long before it is asked for.
_ANCHORS = 64
# A pool of streams of its own (torch has 32 a priority), so that none is also one of NCCL's or of a program's.
_URGENT = -1

_HERE: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True)
class _Anchor:
    event: torch.cuda.Event
    ns: int
    error_ns: int


class Anchors:
    """Events whose time on the host's clock is known: each was passed between two readings of it.

    They are recorded on a stream that does nothing else, so that they wait for no kernel. The device's clock drifts
    against the host's: between steps a new anchor follows, unless what is known of the last one is still better.
    """

    def __init__(self, device: torch.device) -> None:
        torch.cuda.synchronize(device)
        self._stream = _stream(device, _URGENT)
        looks = (self._look(None) for _ in range(ROUND_TRIPS))
        best = min((look for look in looks if look is not None), key=lambda look: look.error_ns)
        self._anchors = deque([best], maxlen=_ANCHORS)

    def renew(self) -> None:
        """Look again; for the time between two steps, as it takes the host some ten microseconds a look."""
        last, looks = self._anchors[-1], list[_Anchor]()
        if now_ns() - last.ns < _FRESH_NS:
            return
        while len(looks) < _LOOKS and (look := self._look(_PATIENCE_NS)) is not None:
            looks.append(look)
        best = min(looks, key=lambda look: look.error_ns, default=last)
        if best is not last and best.error_ns <= last.error_ns + (best.ns - last.ns) * _DRIFT:
            self._anchors.append(best)

    def ns(self, event: torch.cuda.Event) -> int:
        """When a passed event was, from the last anchor before it; elapsed_time is a float32 of ms: best when near."""
        at = 0
        for anchor in reversed(tuple(self._anchors)):
            elapsed_ns = round(anchor.event.elapsed_time(event) * 1e6)
            at = anchor.ns + elapsed_ns
            if elapsed_ns >= 0:
                break
        return at

    def _look(self, patience_ns: int | None) -> _Anchor | None:
        """None if the event has not passed in that time: its stream shares a hardware queue with work."""
        event = _new_event()
        asked_ns = now_ns()
        event.record(self._stream)
        while not _is_past(event):
            if patience_ns is not None and now_ns() - asked_ns > patience_ns:
                return None
        answered_ns = now_ns()
        return _Anchor(event, (asked_ns + answered_ns) // 2, (answered_ns - asked_ns + 1) // 2)


class InUse:
    """What one stream still uses: each thing is held until the event after its last use has passed."""

    def __init__(self) -> None:
        self._held: deque[tuple[torch.cuda.Event, object]] = deque()
        self._lock = threading.RLock()  # what is let go may have a finaliser that comes back here

    def hold(self, event: torch.cuda.Event, held: object) -> None:
        """Until the device has passed the event, and the host has come by to see it."""
        with self._lock:
            self.let_go()
            self._held.append((event, held))

    def let_go(self) -> None:
        """Everything whose event has passed."""
        with self._lock:
            while self._held and _is_past(self._held[0][0]):
                self._held.popleft()


class CudaLane(StreamLane):
    """A CUDA stream, one more from which call checkers start collectives, and those that see when collectives ended."""

    def __init__(self, device: torch.device, anchors: Anchors, *, is_main: bool) -> None:
        self._device = device
        self._anchors = anchors
        self._is_main = is_main
        self._stream = torch.cuda.current_stream(device) if is_main else _stream(device)
        self._aside = _stream(device)
        self._followers: dict[str, _Follower] = {}
        self._in_use = InUse()
        self._threads = threading.local()

    def entered(self, after: Mark) -> AbstractContextManager[object]:
        """Make it the thread's current stream; what it gets from now on comes after that mark of the caller's."""
        return _HERE if self._is_current() else self._on(self._stream, after)

    def beside(self, after: Mark) -> AbstractContextManager[object]:
        """Another stream that waits for that mark only, and not for what the program has launched on this one since."""
        self._is_current()
        return self._on(self._aside, after)

    @contextmanager
    def playing(self, coroutine: Coroutine[Any, Any, Any], after: Mark) -> Iterator[None]:
        """On a worker thread; holds what the coroutine was given, which ends on the host before the device used it."""
        given = _given_to(coroutine)
        self._is_current()
        with self._on(self._stream, after):
            try:
                yield
            finally:
                self._in_use.hold(_event(self._device), given)

    def mark(self) -> Mark:
        """An event on the caller's current stream."""
        return _event(self._device)

    def run(self, timed: SpanTimes, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        """Launch it on this stream. What the main stream is given there lives in its own order, and is not held."""
        is_current = self._is_current()
        with self.entered(timed.start):
            if not is_current:  # else it begins where it was issued, just now
                timed.start = _event(self._device)
            try:
                return function(*arguments)
            finally:
                timed.end = end = _event(self._device)
                if not (is_current and self._is_main):
                    self._in_use.hold(end, (function, arguments))

    def overtakes(self) -> None:
        """Every collective is followed anyway."""

    def follow(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Queue the end, and what finishes it, on a stream that follows this group's collectives only."""
        follower = self._followers.get(timed.queue)
        if follower is None:
            follower = self._followers[timed.queue] = _Follower(self._device)
        return follower.follow(timed, work, finish, held)

    def follow_awaited(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Let the caller's stream wait now, for which the host does not: no other stream has to follow the call."""
        work.wait()
        if finish is not None:
            finish()
        timed.wait_from = timed.start
        timed.end = timed.wait_until = end = _event(self._device)
        return _Queued(end, self._device)

    def stand(self, timed: SpanTimes, pending: PendingCall, since: Mark | None = None) -> Mark:
        """See `StreamLane.stand`: the stream goes on when it has come here and the collective has ended.

        Both are known without a further event.
        """
        came = _event(self._device) if since is None else since
        timed.wait_from = came
        try:
            pending.wait()
        except BaseException:
            timed.wait_until = came
            raise
        assert timed.end is not None, "what is followed has an end"
        timed.wait_until = until = (came, timed.end)
        return until

    def take(self, timed: SpanTimes, value: object) -> None:
        """See `StreamLane.take`: what follows on the kernel's own stream waits for nothing else."""
        assert timed.end is not None, "a lane marks the end of every kernel"
        if self._is_current():
            timed.wait_from = timed.wait_until = timed.end
            return
        timed.wait_from = came = _event(self._device)
        self.wait_for(timed.end, value)
        timed.wait_until = (came, timed.end)

    def after(self, since: Mark) -> Mark:
        """See `StreamLane.after`: what the host has done meanwhile took nothing of the stream's time."""
        return since

    def wait_for(self, mark: Mark, value: object = None) -> None:
        """The caller's current stream waits for the event; `value` may live until that stream is through with it."""
        assert isinstance(mark, torch.cuda.Event), "a CUDA lane's marks are events"
        current = torch.cuda.current_stream(self._device)
        current.wait_event(mark)
        if value is not None and current != self._stream:
            for tensor in tensors_in(value):
                if tensor.is_cuda:
                    tensor.record_stream(current)

    def synchronize(self) -> None:
        """Wait until the device has done what the caller's current stream was given."""
        torch.cuda.current_stream(self._device).synchronize()

    def read(self, value: Tensor | float) -> float | Reading:
        """A number of the device is copied in its turn, and read when it has arrived."""
        if not isinstance(value, Tensor) or not value.is_cuda or value.numel() != 1 or value.is_complex():
            return float(value)
        return _Copied(value.detach().to("cpu", non_blocking=True), _event(self._device))

    def is_past(self, mark: Mark) -> bool:
        """Whether the device has passed it."""
        if isinstance(mark, int):
            return True
        if isinstance(mark, tuple):
            return all(map(self.is_past, mark))
        self._come()
        return _is_past(mark)

    def ns(self, mark: Mark) -> int:
        """The event's time on the host's clock."""
        if isinstance(mark, tuple):
            return max(map(self.ns, mark))
        return mark if isinstance(mark, int) else self._anchors.ns(mark)

    def let_go(self) -> None:
        """What was held for the device, and has been used."""
        for in_use in (self._in_use, *(follower.in_use for follower in tuple(self._followers.values()))):
            in_use.let_go()

    def between_steps(self) -> None:
        """Look at both clocks, and let go of what collectives have used."""
        self._anchors.renew()
        self.let_go()

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)
        self.between_steps()

    def _come(self) -> None:
        """Put the thread onto our device when it first comes: it begins on device 0."""
        if not getattr(self._threads, "is_here", False):
            torch.cuda.set_device(self._device)
            self._threads.is_here = True

    def _is_current(self) -> bool:
        """Whether this is the thread's stream."""
        self._come()
        return bool(torch.cuda.current_stream(self._device) == self._stream)

    def _on(self, stream: torch.cuda.Stream, after: Mark) -> AbstractContextManager[object]:
        for mark in after if isinstance(after, tuple) else (after,):
            if isinstance(mark, torch.cuda.Event):
                stream.wait_event(mark)
        context: AbstractContextManager[object] = torch.cuda.stream(stream)
        return context


class _Follower:
    """The stream that sees when the collectives of one group ended: a library plays them in order, one at a time."""

    def __init__(self, device: torch.device) -> None:
        self.in_use = InUse()
        self._device, self._stream = device, _stream(device, _URGENT)

    def follow(self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object) -> PendingCall:
        """`wait` lets go of the tensors that the library holds, though it is our stream alone that waits."""
        with torch.cuda.stream(self._stream):
            work.wait()
            if finish is not None:
                finish()
            timed.end = end = _event(self._device)
        self.in_use.hold(end, (work, finish, held))
        return _Queued(end, self._device)


class _Queued:
    """A collective whose end is an event."""

    __slots__ = ("_device", "_end")

    def __init__(self, end: torch.cuda.Event, device: torch.device) -> None:
        self._end, self._device = end, device

    def is_over(self) -> bool:
        return False  # the host cannot tell without asking the device; the marks around `wait` will

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._end)


class _Copied:
    """A number on its way to the host."""

    __slots__ = ("_event", "_number")

    def __init__(self, number: Tensor, event: torch.cuda.Event) -> None:
        self._number, self._event = number, event

    def is_past(self) -> bool:
        return _is_past(self._event)

    def value(self) -> float:
        return float(self._number)


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors of a result: itself, or those in its lists, tuples, dicts, sets and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))


def _given_to(coroutine: Coroutine[Any, Any, Any]) -> list[object]:
    """The arguments of a coroutine that has not begun, and those of coroutines among them."""
    values = list(inspect.getcoroutinelocals(coroutine).values())
    return [*values, *(_given_to(value) for value in values if inspect.iscoroutine(value))]


def _stream(device: torch.device, priority: int = 0) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority)


def _new_event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)
    return event


def _event(device: torch.device) -> torch.cuda.Event:
    event = _new_event()
    event.record(torch.cuda.current_stream(device))
    return event


def _is_past(event: torch.cuda.Event) -> bool:
    return bool(event.query())
