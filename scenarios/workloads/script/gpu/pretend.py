"""torch.cuda as a script on a machine with GPUs sees it, where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch

from scenarios.workloads.script.gpu.shadows import Shadows
from scenarios.workloads.script.requests import Launched

_BASE: Any = torch._C.TensorBase
_DEVICE = _BASE.device.__get__


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """What a script can see of a host's GPUs, and what its kernels find there; `has_values`: as all tensors do."""

    count: int
    name: str
    memory_bytes: int
    l2_bytes: float
    has_values: bool
    capability: tuple[int, int] = (9, 0)


class Streams:
    """The GPU's streams and events by numbers, and which stream is current; tells `link` what they are given."""

    def __init__(self, link: Any) -> None:
        self.link, self.stack = link, [0]
        self.numbers, self.events = count(1), count()

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
        self.link.launched.append(Launched(stream, record=record, wait=wait))


def _classes(streams: Streams) -> tuple[type, type, type]:
    """What torch.cuda calls Stream, Event and StreamContext."""

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
            event = event or Event()
            event.record(self)
            return event

        def is_capturing(self) -> bool:
            return False

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            torch.cuda.synchronize()

        def __enter__(self) -> Any:
            streams.enter(self.number)
            return self

        def __exit__(self, *_: object) -> None:
            streams.leave()

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
            torch.cuda.synchronize()

        def elapsed_time(self, other: Any) -> float:
            return 1.0

    class StreamContext:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                streams.enter(self.stream.number)

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                streams.leave()

    return Stream, Event, StreamContext


class _Here:
    """A context in which another device is the current one."""

    def __init__(self, *_: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def pretend(
    gpu: SeenGpu, shadows: Shadows, streams: Streams, synchronize: Callable[[], None]
) -> Callable[[Any], torch.device]:
    """Have torch say that this process has `gpu.count` GPUs; `synchronize` is called where it would wait for one.

    What it gives adds the current one's number to a device "cuda" without.
    """
    current = [0]
    stream, event, stream_context = _classes(streams)
    by_number: dict[int, Any] = {}
    properties = SimpleNamespace(
        name=gpu.name,
        total_memory=gpu.memory_bytes,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        multi_processor_count=132,
    )

    def set_device(device: Any) -> None:
        current[0] = _index(device, current[0])

    def of(number: int) -> Any:
        """The stream of that number."""
        made: Any = stream()
        made.number = made.cuda_stream = made.stream_id = number
        return by_number.setdefault(number, made)

    nothing = lambda *_, **__: None  # noqa: E731
    said: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": nothing,
        "init": nothing,
        "device_count": lambda: gpu.count,
        "current_device": lambda: current[0],
        "set_device": set_device,
        "device": _Here,
        "synchronize": lambda device=None: synchronize(),
        "Stream": stream,
        "Event": event,
        "current_stream": lambda device=None: of(streams.stack[-1]),
        "default_stream": lambda device=None: of(0),
        "stream": stream_context,
        "StreamContext": stream_context,
        "set_stream": nothing,
        "get_device_name": lambda device=None: gpu.name,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: gpu.capability,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)] * gpu.count,
        **dict.fromkeys(["set_rng_state", "set_rng_state_all"], nothing),
        "mem_get_info": lambda device=None: (gpu.memory_bytes, gpu.memory_bytes),
        **dict.fromkeys(["manual_seed", "manual_seed_all", "seed", "seed_all", "empty_cache", "ipc_collect"], nothing),
        **dict.fromkeys(["reset_peak_memory_stats", "reset_max_memory_allocated"], nothing),
        **dict.fromkeys(["memory_allocated", "max_memory_allocated"], lambda device=None: 0),
        **dict.fromkeys(["memory_reserved", "max_memory_reserved"], lambda device=None: 0),
    }
    for name, value in said.items():
        setattr(torch.cuda, name, value)
    accelerator = torch.accelerator
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: gpu.count,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: current[0],
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "synchronize": lambda device=None: synchronize(),
        "current_stream": lambda device=None: of(streams.stack[-1]),
        "set_stream": nothing,
    }.items():
        setattr(accelerator, name, value)

    def device(self: torch.Tensor) -> torch.device:
        if not shadows.is_honest and shadows.is_of_gpu(self):
            return torch.device("cuda", current[0])
        with torch._C.DisableTorchFunction():  # which would ask for this very property
            found: torch.device = _DEVICE(self)
        return found

    tensor: Any = torch.Tensor
    tensor.device = property(device)
    tensor.is_cuda = property(lambda self: self.device.type == "cuda")
    tensor.is_meta = property(lambda self: self.device.type == "meta")
    to = tensor.to

    def indexed(device: Any) -> Any:
        """C++ asks the driver which device is meant where that is not said."""
        if isinstance(device, int):
            return torch.device("cuda", device)
        found = device if isinstance(device, torch.device) else torch.device(device)
        return torch.device("cuda", current[0]) if found.type == "cuda" and found.index is None else found

    def moved(self: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        if args and isinstance(args[0], int | str | torch.device):
            args = (indexed(args[0]), *args[1:])
        if more.get("device") is not None:
            more["device"] = indexed(more["device"])
        if not more.get("copy") and self.is_cuda:  # what is there stays, as C++ would not see
            if args and args[0] == self.device:
                args = args[1:]
            if more.get("device") == self.device:
                del more["device"]
            if not [each for each in (*args, more.get("dtype")) if isinstance(each, torch.dtype | torch.Tensor)] and (
                not any(isinstance(each, str | torch.device) for each in args) and "device" not in more
            ):
                return self
        found: torch.Tensor = to(self, *args, **more)
        return found

    tensor.to = moved
    tensor.cuda = lambda self, device=None, non_blocking=False, **_: moved(
        self, "cuda" if device is None else device, non_blocking=non_blocking
    )
    tensor.get_device = lambda self: current[0] if self.is_cuda else -1
    tensor.record_stream = nothing
    tensor.pin_memory = lambda self, device=None: self
    tensor.is_pinned = lambda self, device=None: False
    return indexed


def _index(device: Any, default: int) -> int:
    if isinstance(device, int):
        return device
    found = torch.device(device).index
    return default if found is None else found
