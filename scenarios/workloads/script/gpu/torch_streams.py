"""The classes of torch.cuda's streams and events."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import torch

from scenarios.workloads.script.requests import Launched


class Streams:
    """The GPU's streams and events by numbers, and which stream is current; tells `link` what they are given."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self._here = threading.local()
        self.numbers, self.events = count(1), count()
        self.Stream, self.Event, self.StreamContext = _stream_class(self), _event_class(self), _context_class(self)
        self._by_number: dict[int, Any] = {}

    @property
    def stack(self) -> list[int]:
        """Of this thread's: the current one last."""
        if not hasattr(self._here, "stack"):
            self._here.stack = [0]
        found: list[int] = self._here.stack
        return found

    def enter(self, number: int) -> None:
        """It is the current one until it is left."""
        self.stack.append(number)
        self.link.stream = number

    def leave(self) -> None:
        """The one before is again."""
        self.stack.pop()
        self.link.stream = self.stack[-1]

    def tell(self, stream: int, *, record: int | None = None, wait: int | None = None) -> None:
        """An event is recorded, or waited for."""
        self.link.give_event(Launched(stream, record=record, wait=wait))

    def of(self, number: int) -> Any:
        """The stream of that number."""
        made: Any = self.Stream()
        made.number = made.cuda_stream = made.stream_id = number
        return self._by_number.setdefault(number, made)

    def current(self, device: Any = None) -> Any:
        """See `torch.cuda.current_stream`."""
        return self.of(self.stack[-1])


def _stream_class(streams: Streams) -> type:
    """Return what torch.cuda calls Stream."""

    class Stream:
        def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
            self.priority, self.number = priority, next(streams.numbers)
            self.device, self.device_index = torch.device("cuda", torch.cuda.current_device()), 0
            self.cuda_stream = self.stream_id = self.number

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def wait_stream(self, stream: Any) -> None:
            stream.record_event().wait(self)

        def record_event(self, event: Any = None) -> Any:
            event = event or streams.Event()
            event.record(self)
            return event

        def is_capturing(self) -> bool:
            return False

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            streams.link.synchronize(self.number)

        def __enter__(self) -> Any:
            streams.enter(self.number)
            return self

        def __exit__(self, *_: object) -> None:
            streams.leave()

    return Stream


def _event_class(streams: Streams) -> type:
    """Return what torch.cuda calls Event."""

    class Event:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.number: int | None = None

        def record(self, stream: Any = None) -> None:
            self.number = next(streams.events)
            streams.tell(streams.stack[-1] if stream is None else stream.number, record=self.number)

        def wait(self, stream: Any = None) -> None:
            if self.number is not None:
                streams.tell(streams.stack[-1] if stream is None else stream.number, wait=self.number)

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            if self.number is not None:
                streams.link.synchronize_event(self.number)

        def elapsed_time(self, other: Any) -> float:
            if self.number is None or other.number is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            elapsed_ms = streams.link.elapsed_ms(self.number, other.number)
            return 1.0 if elapsed_ms is None else float(elapsed_ms)

    return Event


def _context_class(streams: Streams) -> type:
    """Return what torch.cuda calls StreamContext."""

    class StreamContext:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                streams.enter(self.stream.number)

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                streams.leave()

    return StreamContext
