"""The classes of torch.cuda's streams and events."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any, NoReturn

import torch

from scenarios.workloads.script.requests import Launched

# The lowest and the highest priority of streams (cudaDeviceGetStreamPriorityRange on GPUs since Volta).
_PRIORITIES = (0, -5)


class Streams:
    """The GPU's streams and events by numbers, and which stream is current; tells `link` what they are given.

    Attributes:
        any_stream, any_event: what torch calls Stream and Event, of all kinds of devices.
    """

    def __init__(self, link: Any) -> None:
        self.link = link
        self._here = threading.local()
        self.numbers, self.events = count(1), count()
        self.Stream, self.Event, self.StreamContext = _stream_class(self), _event_class(self), _context_class(self)
        self.any_stream, self.any_event = (
            _of_any_device(torch.Stream, self.Stream),
            _of_any_device(torch.Event, self.Event),
        )
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

    def set(self, stream: Any) -> None:
        """See `torch.cuda.set_stream`."""
        if stream is not None:
            self.stack[-1] = self.link.stream = stream.number

    def tell(self, stream: int, *, record: int | None = None, wait: int | None = None) -> None:
        """An event is recorded, or waited for."""
        self.link.give_event(Launched(stream, record=record, wait=wait))

    def of(self, number: int) -> Any:
        """The stream of that number."""
        if number not in self._by_number:
            self._by_number[number] = made = self.Stream()
            made.number = number
        return self._by_number[number]

    def current(self, device: Any = None) -> Any:
        """See `torch.cuda.current_stream`."""
        return self.of(self.stack[-1])


def _of_any_device(usual: Any, of_gpu: Any) -> Any:
    """Return the class of torch's whose instances on "cuda" are of another class."""

    class Kind(type):
        def __call__(cls, device: Any = None, *args: Any, **more: Any) -> Any:
            kind = None if isinstance(device, int) or device is None else torch.device(device).type
            return usual(device, *args, **more) if kind not in (None, "cuda") else of_gpu(device, *args, **more)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, usual | of_gpu)

    return Kind(usual.__name__, (), {})


def _stream_class(streams: Streams) -> type:
    """Return what torch.cuda calls Stream."""

    class Stream:
        def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
            self.priority, self.number = max(min(priority, _PRIORITIES[0]), _PRIORITIES[1]), next(streams.numbers)
            named = None if isinstance(device, int) or device is None else torch.device(device).index
            index = device if isinstance(device, int) and device >= 0 else named
            self.device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
            streams._by_number[self.number] = self

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

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and self.number == other.number

        def __hash__(self) -> int:
            return hash(self.number)

        def __repr__(self) -> str:
            return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    return Stream


def _event_class(streams: Streams) -> type:
    """Return what torch.cuda calls Event."""

    class Event:
        def __init__(self, *_: Any, enable_timing: bool = False, interprocess: bool = False, **__: Any) -> None:
            if interprocess:
                _refuse_sharing()
            self.number: int | None = None
            self.is_timed = enable_timing
            self.device = torch.device("cuda", torch.cuda.current_device())

        @property
        def cuda_event(self) -> int:
            return 0 if self.number is None else self.number + 1

        event_id = cuda_event
        from_ipc_handle = ipc_handle = staticmethod(lambda *_: _refuse_sharing())

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
            if not (self.is_timed and other.is_timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self.number is None or other.number is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            elapsed_ms = streams.link.elapsed_ms(self.number, other.number)
            return 1.0 if elapsed_ms is None else float(elapsed_ms)

    return Event


def _refuse_sharing() -> NoReturn:
    raise RuntimeError("events of simulated GPUs cannot be shared between processes: expected interprocess=False")


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
