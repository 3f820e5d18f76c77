"""A rank's stream on a CUDA device: marks are events, converted to the host's clock.

The host runs ahead of the device and waits for it only before the first step and in `settle`. Tensors that a kernel or
collective still uses must therefore outlive the host's own references: torch's allocator may reuse freed memory for the
next launch on the stream that allocated it, without waiting for other streams. Tensors that cross streams are held
until the event after their last use has passed; only results, whose later use is unknown, use `record_stream`.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from real.rank.lanes import ROUND_TRIPS, Mark, PendingCall, Reading, SpanTimes, StreamLane, now_ns

T = TypeVar("T")

# Between steps: at most this many clock readings, each given up after this time; an idle stream takes a tenth of it.
_LOOKS, _PATIENCE_NS = 4, 100_000
# A younger anchor is kept: within this time the clocks drift apart by at most 5 us.
_FRESH_NS = 50_000_000
# Two quartz clocks, each within 50 ppm of its rate: growth of an anchor's error with its age.
_DRIFT = 1e-4
# Anchors kept, for events converted long after they passed.
_ANCHORS = 64
# A priority whose pool (torch has 32 streams per priority) neither NCCL nor programs use, so that no stream is shared.
_URGENT = -1

_HERE: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True)
class _Anchor:
    event: torch.cuda.Event
    ns: int
    error_ns: int


class Anchors:
    """Events with a known time on the host's clock: each passed between two readings of that clock.

    The events are recorded on a stream of their own, so that they wait for no kernel. The device's clock drifts against
    the host's: between steps a new anchor is added, unless the last one, aged, is still more accurate.
    """

    def __init__(self, device: torch.device) -> None:
        torch.cuda.synchronize(device)
        self._stream = _stream(device, _URGENT)
        looks = (self._look(None) for _ in range(ROUND_TRIPS))
        best = min((look for look in looks if look is not None), key=lambda look: look.error_ns)
        self._anchors = deque([best], maxlen=_ANCHORS)

    def renew(self) -> None:
        """Add an anchor if that improves accuracy; call it between steps, as each reading takes the host some 10 us."""
        last, looks = self._anchors[-1], list[_Anchor]()
        if now_ns() - last.ns < _FRESH_NS:
            return
        while len(looks) < _LOOKS and (look := self._look(_PATIENCE_NS)) is not None:
            looks.append(look)
        best = min(looks, key=lambda look: look.error_ns, default=last)
        if best is not last and best.error_ns <= last.error_ns + (best.ns - last.ns) * _DRIFT:
            self._anchors.append(best)

    def ns(self, event: torch.cuda.Event) -> int:
        """Return the time of an event that has passed, in ns, measured from the last anchor before it.

        `elapsed_time` is a float32 of ms, so it is precise only over short times.
        """
        at = 0
        for anchor in reversed(tuple(self._anchors)):
            elapsed_ns = round(anchor.event.elapsed_time(event) * 1e6)
            at = anchor.ns + elapsed_ns
            if elapsed_ns >= 0:
                break
        return at

    def _look(self, patience_ns: int | None) -> _Anchor | None:
        """Return a new anchor; None if its event takes longer than `patience_ns`, as its hardware queue is shared with
        work.
        """
        event = _new_event()
        asked_ns = now_ns()
        event.record(self._stream)
        # Polled, since `synchronize` could not give up.
        while not _is_past(event):
            if patience_ns is not None and now_ns() - asked_ns > patience_ns:
                return None
        answered_ns = now_ns()
        return _Anchor(event, (asked_ns + answered_ns) // 2, (answered_ns - asked_ns + 1) // 2)


class InUse:
    """Objects that one stream still uses, each held until the event after its last use has passed."""

    def __init__(self) -> None:
        self._held: deque[tuple[torch.cuda.Event, object]] = deque()
        self._lock = threading.RLock()  # re-entrant: a released object's finaliser may call back here

    def hold(self, event: torch.cuda.Event, held: object) -> None:
        """Hold an object until the device has passed the event and `let_go` is called."""
        with self._lock:
            self.let_go()
            self._held.append((event, held))

    def let_go(self) -> None:
        """Drop the objects that the GPU no longer uses: those whose event has passed."""
        with self._lock:
            # Events of one stream pass in the order in which they were recorded, so the first decides.
            while self._held and _is_past(self._held[0][0]):
                self._held.popleft()


class CudaLane(StreamLane):
    """A CUDA stream, a second one for call checkers' collectives, and followers that see collectives end."""

    def __init__(self, device: torch.device, anchors: Anchors, *, is_main: bool) -> None:
        self._device = device
        self._anchors = anchors
        self._is_main = is_main
        self._stream = torch.cuda.current_stream(device) if is_main else _stream(device)
        self._aside = _stream(device)
        self._followers: dict[str, _Follower] = {}
        self._in_use = InUse()
        # torch's current stream belongs to a thread, so what this lane has made current is remembered for each thread.
        self._threads = threading.local()

    def enter(self, after: Mark) -> AbstractContextManager[object]:
        """Make this the thread's current stream; what is launched inside waits for the caller's mark `after`."""
        return _HERE if self._is_current() else self._on(self._stream, after)

    def beside(self, after: Mark) -> AbstractContextManager[object]:
        """Make the second stream current; it waits for that mark only, not for what this one was given since."""
        self._is_current()
        return self._on(self._aside, after)

    @contextmanager
    def playing(self, coroutine: Coroutine[Any, Any, Any], after: Mark) -> Iterator[None]:
        """Run a worker thread's coroutine here; holds its arguments, which the device may use after it ends."""
        given = _arguments_of(coroutine)
        self._is_current()
        with self._on(self._stream, after):
            try:
                yield
            finally:
                self._in_use.hold(_event(self._device), given)

    def mark(self) -> Mark:
        """Return an event on the caller's current stream."""
        return _event(self._device)

    def run(self, timed: SpanTimes, function: Callable[..., T], arguments: Sequence[object]) -> T:
        """Launch a kernel on this stream. Arguments from the main stream, run there, need no holding: its order
        suffices.
        """
        is_current = self._is_current()
        with self.enter(timed.start):
            if not is_current:  # else the mark at issue, just recorded, is its start
                timed.start = _event(self._device)
            try:
                return function(*arguments)
            finally:
                timed.end = end = _event(self._device)
                if not (is_current and self._is_main):
                    self._in_use.hold(end, (function, arguments))

    def overtakes(self) -> None:
        """Do nothing, as every collective is followed anyway."""

    def follow(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Queue the end mark and `finish` on the stream that follows this group's collectives only."""
        follower = self._followers.get(timed.queue)
        if follower is None:
            follower = self._followers[timed.queue] = _Follower(self._device)
        return follower.follow(timed, work, finish, held)

    def follow_awaited(
        self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object = None
    ) -> PendingCall:
        """Make the caller's stream wait for a call that is awaited at once, without a stream that follows the call.

        The host does not wait.
        """
        # NCCL's `wait` makes the current stream wait and returns at once.
        work.wait()
        if finish is not None:
            finish()
        timed.wait_from = timed.start
        timed.end = timed.wait_until = end = _event(self._device)
        return _Queued(end, self._device)

    def stand(self, timed: SpanTimes, pending: PendingCall, since: Mark | None = None) -> Mark:
        """Let the stream wait for a collective, as `StreamLane.stand` does on the host.

        The times need no further event.
        """
        came = _event(self._device) if since is None else since
        timed.wait_from = came
        try:
            pending.wait()
        except BaseException:
            # A failed call has no end event; without an end the span could not be written.
            timed.wait_until = came
            raise
        assert timed.end is not None, "what is followed has an end"
        timed.wait_until = until = (came, timed.end)
        return until

    def take(self, timed: SpanTimes, value: object) -> None:
        """Take a kernel's value, as `StreamLane.take` does: on the kernel's own stream nothing has to wait."""
        assert timed.end is not None, "a lane marks the end of every kernel"
        if self._is_current():
            timed.wait_from = timed.wait_until = timed.end
            return
        timed.wait_from = came = _event(self._device)
        self.wait_for(timed.end, value)
        timed.wait_until = (came, timed.end)

    def after(self, since: Mark) -> Mark:
        """Return `since`: work of the host alone takes no time of the stream."""
        return since

    def wait_for(self, mark: Mark, value: object = None) -> None:
        """Make the caller's current stream wait for the event; `value` is kept until that stream has used it."""
        assert isinstance(mark, torch.cuda.Event), "a CUDA lane's marks are events"
        current = torch.cuda.current_stream(self._device)
        current.wait_event(mark)
        # The allocator reuses a tensor's memory in the order of the stream that made it, unless told of others.
        if value is not None and current != self._stream:
            for tensor in tensors_in(value):
                if tensor.is_cuda:
                    tensor.record_stream(current)

    def synchronize(self) -> None:
        """Wait until the device has done what the caller's current stream was given."""
        torch.cuda.current_stream(self._device).synchronize()

    def read(self, value: Tensor | float) -> float | Reading:
        """Return a number; one on the device is copied in stream order, and read when it has arrived."""
        if not isinstance(value, Tensor) or not value.is_cuda or value.numel() != 1 or value.is_complex():
            return float(value)
        return _Copied(value.detach().to("cpu", non_blocking=True), _event(self._device))

    def is_past(self, mark: Mark) -> bool:
        """Return whether the device has passed the mark."""
        if isinstance(mark, int):
            return True
        if isinstance(mark, tuple):
            return all(map(self.is_past, mark))
        self._set_device()
        return _is_past(mark)

    def ns(self, mark: Mark) -> int:
        """Return the event's time on the host's clock."""
        if isinstance(mark, tuple):
            return max(map(self.ns, mark))
        return mark if isinstance(mark, int) else self._anchors.ns(mark)

    def let_go(self) -> None:
        """Release what the device has finished using."""
        for in_use in (self._in_use, *(follower.in_use for follower in tuple(self._followers.values()))):
            in_use.let_go()

    def between_steps(self) -> None:
        """Renew the clock anchors, and release what collectives have used."""
        self._anchors.renew()
        self.let_go()

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)
        self.between_steps()

    def _set_device(self) -> None:
        """Set this thread's CUDA device at its first call: threads begin with device 0."""
        if not getattr(self._threads, "is_here", False):
            torch.cuda.set_device(self._device)
            self._threads.is_here = True

    def _is_current(self) -> bool:
        """Return whether this is the thread's current stream."""
        self._set_device()
        return bool(torch.cuda.current_stream(self._device) == self._stream)

    def _on(self, stream: torch.cuda.Stream, after: Mark) -> AbstractContextManager[object]:
        for mark in after if isinstance(after, tuple) else (after,):
            if isinstance(mark, torch.cuda.Event):
                stream.wait_event(mark)
        context: AbstractContextManager[object] = torch.cuda.stream(stream)
        return context


class _Follower:
    """A stream that sees when the collectives of one group end; a library runs them in order, one at a time."""

    def __init__(self, device: torch.device) -> None:
        self.in_use = InUse()
        self._device, self._stream = device, _stream(device, _URGENT)

    def follow(self, timed: SpanTimes, work: dist.Work, finish: Callable[[], None] | None, held: object) -> PendingCall:
        """Record the end and queue `finish`; `wait` holds up this stream alone, and frees the library's references."""
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
        return False  # a query would cost time; the marks around `wait` show it later

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._end)


class _Copied:
    """A number that is being copied to the host."""

    __slots__ = ("_event", "_number")

    def __init__(self, number: Tensor, event: torch.cuda.Event) -> None:
        self._number, self._event = number, event

    def is_past(self) -> bool:
        return _is_past(self._event)

    def value(self) -> float:
        return float(self._number)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors of a result: itself, or those in its lists, tuples, dicts, sets and dataclasses."""
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


def _arguments_of(coroutine: Coroutine[Any, Any, Any]) -> list[object]:
    """Return the arguments of a coroutine that has not begun, and those of coroutines among them."""
    values = list(inspect.getcoroutinelocals(coroutine).values())
    return [*values, *(_arguments_of(value) for value in values if inspect.iscoroutine(value))]


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
