"""torch.cuda and torch.accelerator as a script on a machine with GPUs sees them, where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from scenarios.workloads.script.gpu.graphs import graphs
from scenarios.workloads.script.gpu.memory import Memory
from scenarios.workloads.script.gpu.properties import Properties, SeenGpu
from scenarios.workloads.script.gpu.torch_streams import Streams

# GPUs have bfloat16 and TF32 since compute capability 8.0 (CUDA C++ Programming Guide, "Compute Capabilities").
_AMPERE = 8


class Devices:
    """The process's GPUs, one of which is the current one."""

    def __init__(self, gpu: SeenGpu, streams: Streams, memory: Memory) -> None:
        self._gpu, self._streams, self._memory = gpu, streams, memory
        self._current = 0

    def current(self) -> int:
        """See `torch.cuda.current_device`."""
        return self._current

    def set_device(self, device: Any) -> None:
        """See `torch.cuda.set_device`."""
        index = device if isinstance(device, int) or device is None else torch.device(device).index
        if index is not None and index >= 0:  # others leave it as it is, as in torch
            self._current = index

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """See `torch.cuda.device`."""
        before = self._current
        self.set_device(device)
        try:
            yield
        finally:
            self._current = before

    def say(self, said: Callable[[str], None]) -> None:
        """Have torch say that they are there; `said` is told of what the script asks for and does not get."""
        for name, value in {**self.answers(), **graphs(self._streams.link, said)}.items():
            setattr(torch.cuda, name, value)
        for name, value in self._of_accelerator().items():
            setattr(torch.accelerator, name, value)
        torch._C._get_accelerator = lambda *_: torch.device("cuda")
        for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
            setattr(torch.cuda.nvtx, name, _do_nothing)
        torch.cuda.nccl.version = lambda: (2, 27, 5)
        torch.backends.cudnn.is_acceptable = lambda tensor: False  # asked of the weights of each RNN that is moved

    def answers(self) -> dict[str, Any]:
        """Return what torch.cuda has of devices, streams and memory, by name."""
        return {**self._of_cuda(), **self._of_streams(), **self._of_memory()}

    def _of_cuda(self) -> dict[str, Any]:
        gpu, nothing = self._gpu, _do_nothing
        properties, (major, minor) = Properties(gpu), gpu.capability
        return {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "_lazy_init": nothing,
            "init": nothing,
            "device_count": lambda: gpu.count,
            "current_device": self.current,
            "set_device": self.set_device,
            "device": self.device,
            "get_device_name": lambda device=None: gpu.name,
            "get_device_properties": lambda device=None: properties,
            "get_device_capability": lambda device=None: gpu.capability,
            "is_bf16_supported": lambda including_emulation=True: including_emulation or major >= _AMPERE,
            "is_tf32_supported": lambda: major >= _AMPERE,
            "get_arch_list": lambda: [f"sm_{major}{minor}"],
            "get_gencode_flags": lambda: f"-gencode compute=compute_{major}{minor},code=sm_{major}{minor}",
            "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8, device="cpu"),
            "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8, device="cpu")] * gpu.count,
            **dict.fromkeys(["set_rng_state", "set_rng_state_all"], nothing),
            **dict.fromkeys(["manual_seed", "manual_seed_all", "seed", "seed_all"], nothing),
        }

    def _of_streams(self) -> dict[str, Any]:
        streams = self._streams
        return {
            "synchronize": self._synchronize,
            "Stream": streams.Stream,
            "Event": streams.Event,
            "current_stream": streams.current,
            "default_stream": lambda device=None: streams.of(0),
            "stream": streams.StreamContext,
            "StreamContext": streams.StreamContext,
            "set_stream": _do_nothing,
        }

    def _of_memory(self) -> dict[str, Any]:
        counted, total_bytes = self._memory.counted, self._memory.total_bytes
        return {
            **dict.fromkeys(["empty_cache", "ipc_collect"], _do_nothing),
            "reset_peak_memory_stats": lambda device=None: counted().reset_peak(),
            "reset_max_memory_allocated": lambda device=None: counted().reset_peak(),
            **dict.fromkeys(["memory_allocated", "memory_reserved"], lambda device=None: counted().now_bytes),
            **dict.fromkeys(["max_memory_allocated", "max_memory_reserved"], lambda device=None: counted().peak_bytes),
            "mem_get_info": lambda device=None: (total_bytes - counted().now_bytes, total_bytes),
            "memory_stats": lambda device=None: counted().statistics(),
        }

    def _of_accelerator(self) -> dict[str, Any]:
        return {
            "is_available": lambda: True,
            "device_count": lambda: self._gpu.count,
            "current_accelerator": lambda check_available=False: torch.device("cuda"),
            "current_device_index": self.current,
            "set_device_index": self.set_device,
            "set_device_idx": self.set_device,
            "synchronize": self._synchronize,
            "current_stream": self._streams.current,
            "set_stream": _do_nothing,
        }

    def _synchronize(self, device: Any = None) -> None:
        self._streams.link.synchronize()


def _do_nothing(*_: Any, **__: Any) -> None: ...
