"""The classes of torch.cuda's streams and events, and the stack of current streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import torch

from scenarios.workloads.recording.events.work import RecordEvent, WaitEvent
from scenarios.workloads.script.gpu.cuda.names import refusing

# The lowest and the highest priority of streams (cudaDeviceGetStreamPriorityRange on GPUs since Volta).
_PRIORITIES = (0, -5)
_refuse_sharing = refusing("events of simulated GPUs cannot be shared between processes: expected interprocess=False")


class GpuStreams:
    """The GPU's streams and events by numbers, and each thread's current stream; sends items of streams to `link`.

    Attributes:
        any_stream, any_event: the classes torch.Stream and torch.Event, for all kinds of devices.
    """

    def __init__(self, link: Any) -> None:
        self.link = link
        self._here = threading.local()
        self.numbers, self.events = count(), count()
        of_these = {"streams": self}
        self.Stream: Any = type("Stream", (_Stream,), of_these)
        self.Event: Any = type("Event", (_Event,), of_these)
        self.StreamContext: Any = type("StreamContext", (_StreamContext,), of_these)
        self.any_stream = _of_any_device(torch.Stream, self.Stream, self.Stream)
        self.any_event = _of_any_device(
            torch.Event, self.Event, lambda device, *args, **more: self.Event(*args, **more)
        )
        self.default = self.Stream()

    @property
    def stack(self) -> list[Any]:
        """This thread's stack of streams; the current one is last."""
        if not hasattr(self._here, "stack"):
            self._here.stack = [self.default]
        found: list[Any] = self._here.stack
        return found

    def enter(self, stream: Any) -> None:
        """Push a stream on this thread's stack of current streams."""
        self.stack.append(stream)
        self.link.stream = stream.number

    def leave(self) -> None:
        """Pop the current stream, so that the previous one is current."""
        self.stack.pop()
        self.link.stream = self.stack[-1].number

    def set(self, stream: Any) -> None:
        """Replace the current stream, as `torch.cuda.set_stream` does."""
        if stream is not None:
            self.stack[-1] = stream
            self.link.stream = stream.number

    def current(self, device: Any = None) -> Any:
        """Return the current stream, as `torch.cuda.current_stream` does."""
        return self.stack[-1]


def _of_any_device(usual: Any, of_gpu: Any, make: Callable[..., Any]) -> Any:
    """Return a class like torch's `usual`, whose instances on "cuda" are of class `of_gpu`, created by `make`."""

    class Kind(type):
        def __call__(cls, device: Any = None, *args: Any, **more: Any) -> Any:
            kind = None if isinstance(device, int) or device is None else torch.device(device).type
            return (make if kind in (None, "cuda") else usual)(device, *args, **more)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, usual | of_gpu)

    return Kind(usual.__name__, (), {})


class _Stream:
    """A stream with torch.cuda's interface; number 0, created first, is the default stream of the current GPU."""

    streams: ClassVar[GpuStreams]

    def __init__(self, device: Any = None, priority: int = 0, **more: Any) -> None:
        self.priority = max(min(priority, _PRIORITIES[0]), _PRIORITIES[1])
        self.number: int = more["stream_id"] if "stream_id" in more else next(self.streams.numbers)
        device = more.get("device_index", device)
        named = None if isinstance(device, int) or device is None else torch.device(device).index
        index = device if isinstance(device, int) and device >= 0 else named
        # The default stream, number 0, has no GPU of its own: it is that of whichever GPU is current.
        self._index = torch.cuda.current_device() if index is None and self.number else index

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device() if self._index is None else self._index)

    @property
    def device_index(self) -> int:
        return int(self.device.index)

    @property
    def device_type(self) -> int:
        return 1  # c10's number of CUDA

    @property
    def stream_id(self) -> int:
        return int(self.number)

    cuda_stream = native_handle = stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return _PRIORITIES

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        stream.record_event().wait(self)

    def record_event(self, event: Any = None) -> Any:
        event = event or self.streams.Event()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        return bool(self.streams.link.is_captured)

    def query(self) -> bool:
        return bool(self.streams.link.polls.is_over("stream", self.number))

    def synchronize(self) -> None:
        self.streams.link.synchronize(self.number)

    def __enter__(self) -> Any:
        self.streams.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.streams.leave()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class _Event:
    """An event with torch.cuda's interface."""

    streams: ClassVar[GpuStreams]

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        if interprocess:
            _refuse_sharing()
        self.number: int | None = None
        self.is_timed = enable_timing
        self.device = torch.device("cuda", torch.cuda.current_device())

    @property
    def cuda_event(self) -> int:
        return 0 if self.number is None else self.number + 1

    event_id = cuda_event
    from_ipc_handle = ipc_handle = staticmethod(_refuse_sharing)

    def record(self, stream: Any = None) -> None:
        # A new number each time: waits for an earlier record of this event keep what they wait for, as in CUDA.
        self.number = next(self.streams.events)
        self.streams.link.give_event(RecordEvent((stream or self.streams.current()).number, self.number))

    def wait(self, stream: Any = None) -> None:
        if self.number is not None:
            self.streams.link.give_event(WaitEvent((stream or self.streams.current()).number, self.number))

    def query(self) -> bool:
        return self.number is None or bool(self.streams.link.polls.is_over("event", self.number))

    def synchronize(self) -> None:
        if self.number is not None:
            self.streams.link.synchronize_event(self.number)

    def elapsed_time(self, other: Any) -> float:
        if not (self.is_timed and other.is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.number is None or other.number is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        elapsed_ms = self.streams.link.elapsed_ms(self.number, other.number)
        # Where nothing is simulated, a positive time, because scripts divide by it.
        return 1.0 if elapsed_ms is None else float(elapsed_ms)


class _StreamContext:
    """A context manager that makes a stream the current one, as torch.cuda.StreamContext does."""

    streams: ClassVar[GpuStreams]

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.streams.enter(self.stream)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.streams.leave()
