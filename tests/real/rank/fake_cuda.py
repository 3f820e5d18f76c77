"""A stand-in for `torch.cuda`: streams and events of a device in imagined time; what runs on it is given in ns.

The host's clock stands still but for what `Device.idle` and each look at it take, so that what a test sees follows from
the order of streams and events alone. An operation is done when what is before it on its stream is, and what it waits
for; the device's own clock, which `elapsed_time` reads, may run at another rate than the host's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from real.rank import cuda

MS = 1_000_000
LOOK_NS = 200
NAME = torch.device("cuda", 3)


@dataclass
class Operation:
    """`ends(since_ns)` is when it ends if it may begin then, None if nobody knows yet; `then` is what it does."""

    queued_ns: int
    ends: Callable[[int], int | None]
    then: Callable[[int], None] = lambda at_ns: None


class Stream:
    def __init__(self, device: Device) -> None:
        self.device, self.free_ns, self.queue = device, 0, deque[Operation]()
        device.streams.append(self)

    def put(self, ends: Callable[[int], int | None], then: Callable[[int], None] = lambda at_ns: None) -> None:
        self.queue.append(Operation(self.device.now_ns, ends, then))

    def wait_event(self, event: Event) -> None:
        assert event.is_recorded, "a wait for what was never recorded waits for nothing"
        self.put(lambda since_ns: None if event.passed_ns is None else max(since_ns, event.passed_ns))

    def synchronize(self) -> None:
        self.device.finish(lambda: not self.queue)


class Event:
    """`device` is set by `install`."""

    device: Device

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.is_recorded = False
        self.passed_ns: int | None = None

    def record(self, stream: Stream) -> None:
        assert not self.is_recorded, "each mark has an event of its own"
        self.is_recorded = True
        latency_ns = self.device.latency_ns()
        stream.put(lambda since_ns: since_ns + latency_ns, self._pass)

    def query(self) -> bool:
        self.device.idle(LOOK_NS)
        return self.passed_ns is not None

    def elapsed_time(self, other: Event) -> float:
        assert self.passed_ns is not None, "device not ready"
        assert other.passed_ns is not None, "device not ready"
        passed = self.device.clock_ns(other.passed_ns) - self.device.clock_ns(self.passed_ns)
        return float(np.float32(passed / 1e6))

    def _pass(self, at_ns: int) -> None:
        self.passed_ns = at_ns


@dataclass
class Device:
    """`latency_ns()` is how long an event takes from the host to the device; `rate` of its clock for a host's ns."""

    rate: float = 1.0
    latency_ns: Callable[[], int] = lambda: 0
    now_ns: int = 10**15
    streams: list[Stream] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)  # those that were put onto this device
    made: list[Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._current = threading.local()
        self._lock = threading.RLock()
        self.default = Stream(self)

    @property
    def current(self) -> Stream:
        stream: Stream = getattr(self._current, "stream", self.default)
        return stream

    def event(self) -> Event:
        made: Event = torch.cuda.Event(enable_timing=True)  # type: ignore[assignment, no-untyped-call]
        return made

    def launch(self, taken_ns: int, then: Callable[[], object] = lambda: None) -> None:
        """A kernel on the thread's current stream."""

        def end(at_ns: int) -> None:
            then()

        self.current.put(lambda since_ns: since_ns + taken_ns, end)

    def clock_ns(self, at_ns: int) -> float:
        return (at_ns - 10**15) * self.rate + 777_000

    def read_ns(self) -> int:
        """The host's clock."""
        self.idle(LOOK_NS)
        return self.now_ns

    def idle(self, taken_ns: int) -> None:
        """The host's time goes by, and what the device can end, ends."""
        with self._lock:
            self.now_ns += taken_ns
            while sum(self._goes_on(stream) for stream in list(self.streams)):
                pass

    def finish(self, is_done: Callable[[], bool]) -> None:
        """The host waits."""
        for _ in range(10**6):
            if is_done():
                return
            self.idle(1_000)
        raise AssertionError("the host would wait forever")

    def synchronize(self) -> None:
        self.finish(lambda: not any(stream.queue for stream in self.streams))

    def _goes_on(self, stream: Stream) -> bool:
        if not stream.queue:
            return False
        first = stream.queue[0]
        ends_ns = first.ends(max(stream.free_ns, first.queued_ns))
        if ends_ns is None or ends_ns > self.now_ns:
            return False
        stream.queue.popleft()
        stream.free_ns = ends_ns
        first.then(ends_ns)
        return True

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self._current.stream = self.current, stream
        try:
            yield
        finally:
            self._current.stream = before

    def is_here(self) -> None:
        """The calling thread is put onto this device."""
        self.threads.append(threading.current_thread().name)


def install(monkeypatch: pytest.MonkeyPatch, device: Device) -> Device:
    """The device, in the place of `torch.cuda`'s."""

    def of(name: torch.device) -> Device:
        assert name == NAME, "all is asked of the rank's own device"
        return device

    def stream(name: torch.device, priority: int = 0) -> Stream:
        made = Stream(of(name))
        device.made.append(made)
        return made

    monkeypatch.setattr(torch.cuda, "Event", type("Event", (Event,), {"device": device}))
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda name: of(name).current)
    monkeypatch.setattr(torch.cuda, "stream", device.on)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda name: of(name).synchronize())
    monkeypatch.setattr(torch.cuda, "set_device", lambda name: of(name).is_here())
    monkeypatch.setattr(cuda, "now_ns", device.read_ns)
    return device


class NcclWork:
    """As torch's: it runs on a stream of the library's after what the caller's had; `wait` lets go of the tensors."""

    def __init__(self, library: Stream, ends: Callable[[int], int | None], tensors: Any) -> None:
        device, self.stashed = library.device, tensors
        begun, self._end = device.event(), device.event()
        begun.record(device.current)
        library.wait_event(begun)
        library.put(ends)
        self._end.record(library)

    def wait(self) -> None:
        self._end.device.current.wait_event(self._end)
        self.stashed = None
