"""One stream of a rank on a CUDA device: marks are events, put onto the host's clock; a CPU's lane is in `clock`.

Nothing here makes the host wait for the device, except `settle` at the end of a run and one anchor at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
import torch.distributed as dist

from real.clock import Mark, Pending, Timed, now_ns

T = TypeVar("T")

# elapsed_time is a float32 of ms: within 4 s it is good to half a microsecond, so anchors are renewed by then.
ANCHOR_NS = 4_000_000_000


class Anchors:
    """Events whose time on the host's clock is known: the first by waiting, each later one from the one before."""

    def __init__(self, device: torch.device) -> None:
        torch.cuda.synchronize(device)
        self._event = _event()
        self._event.synchronize()
        self._ns = now_ns()

    def ns(self, event: torch.cuda.Event) -> int:
        """When a passed event was; it becomes the anchor when the present one is too long ago."""
        at: int = self._ns + round(self._event.elapsed_time(event) * 1e6)
        if at - self._ns > ANCHOR_NS:
            self._event, self._ns = event, at
        return at


class CudaLane:
    """A CUDA stream, and one more that follows collectives and sees when each ended."""

    def __init__(self, device: torch.device, anchors: Anchors, *, is_main: bool) -> None:
        self._device = device
        self._anchors = anchors
        self._stream = torch.cuda.current_stream(device) if is_main else _stream(device)
        self._follower = _stream(device)

    def entered(self) -> AbstractContextManager[object]:
        """Make it the thread's current stream, after what the caller's stream has launched so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def mark(self) -> Mark:
        """An event on the caller's current stream."""
        return _event()

    def run(self, timed: Timed, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        """Launch it on this stream."""
        with self.entered():
            timed.start = _event()
            try:
                return function(*arguments)
            finally:
                timed.end = _event()

    def overtakes(self) -> None:
        """Every collective is followed anyway."""

    def follow(self, timed: Timed, work: dist.Work, finish: Callable[[], None] | None) -> Pending:
        """Queue the end, and what finishes it, on the following stream."""
        with torch.cuda.stream(self._follower):
            work.wait()
            if finish is not None:
                finish()
            timed.end = end = _event()
        return _Queued(end, (work, finish))

    def wait_for(self, mark: Mark) -> None:
        """The caller's current stream waits for the event."""
        assert isinstance(mark, torch.cuda.Event), "a CUDA lane's marks are events"
        torch.cuda.current_stream(self._device).wait_event(mark)

    def is_past(self, mark: Mark) -> bool:
        """Whether the device has passed it."""
        return not isinstance(mark, torch.cuda.Event) or bool(mark.query())  # type: ignore[no-untyped-call]

    def ns(self, mark: Mark) -> int:
        """The event's time on the host's clock."""
        return mark if isinstance(mark, int) else self._anchors.ns(mark)

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)


class _Queued:
    """A collective whose end is an event; keeps its buffers until it is dropped."""

    __slots__ = ("_end", "_kept")

    def __init__(self, end: torch.cuda.Event, kept: object) -> None:
        self._end, self._kept = end, kept

    def is_over(self) -> bool:
        return False  # the host cannot tell without asking the device; the marks around `wait` will

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self._end)


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
