"""Replacements of torch._C's functions by which torch.cuda and torch.accelerator query a driver and the allocator.

torch's own Python code calls these functions, so most of its public names work unchanged on simulated GPUs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch

from scenarios.do_nothing import do_nothing
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory

_SYNC_MODES = ("default", "warn", "error")
_WITHOUT_EFFECT = (
    *("_cuda_init", "_cuda_ipc_collect", "_cuda_sleep", "_accelerator_emptyHostCache", "_host_emptyCache"),
    *("_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_setMemoryMetadata"),
    *("_cuda_resetAccumulatedHostMemoryStats", "_cuda_resetPeakHostMemoryStats", "_cuda_cudaCachingAllocator_enable"),
    *("_cuda_beginAllocateToPool", "_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool"),
    "_cuda_releasePool",
)


class Current:
    """The number of a process's current GPU, one of `count`."""

    def __init__(self, count: int) -> None:
        self.count, self._index = count, 0

    def get(self) -> int:
        """Return the current GPU's number."""
        return self._index

    def set(self, index: int) -> None:
        """Make GPU `index` the current one; ignore negative numbers.

        Raises:
            RuntimeError: the host has no GPU of this number.
        """
        if index >= self.count:
            raise RuntimeError(f"CUDA error: invalid device ordinal {index}: expected 0 to {self.count - 1}")
        if index >= 0:  # torch ignores negative numbers, too
            self._index = index

    def exchange(self, index: int) -> int:
        """Make GPU `index` the current one; return the previous number, or -1 if `index` is negative."""
        before = self._index
        self.set(index)
        return before if index >= 0 else -1


class Driver:
    """A driver of `current.count` GPUs, each with its memory; `synchronize` blocks the host until the GPU is idle."""

    def __init__(
        self, current: Current, memory_of: Callable[[int], DeviceMemory], synchronize: Callable[[], None]
    ) -> None:
        self._current, self._memory_of, self._synchronize = current, memory_of, synchronize
        self._sync_mode, self._fractions = 0, dict[int, float]()
        self._raw = dict[int, tuple[str, int]]()

    def install(self, arch: str) -> None:
        """Make torch._C use this driver; `arch` names the GPU's architecture, such as sm_90."""
        core: Any = torch._C
        # False in a build for CPUs; torch.backends.cuda and scripts read it.
        core._has_cuda = True
        torch.backends.cuda.is_built = lambda: True
        answers = {**dict.fromkeys(_WITHOUT_EFFECT, do_nothing), **self._devices(arch), **self._of_memory()}
        for name, answer in answers.items():
            setattr(core, name, answer)
            if hasattr(torch.cuda.memory, name):  # this module has its own reference
                setattr(torch.cuda.memory, name, answer)
        cuda: Any = torch.cuda
        cuda._exchange_device = cuda._maybe_exchange_device = self._current.exchange

    def _devices(self, arch: str) -> dict[str, Callable[..., Any]]:
        current = self._current
        exchanging = (
            f"_{of}{kind}Device" for of in ("cuda_", "accelerator_") for kind in ("exchange", "maybeExchange")
        )
        return {
            **dict.fromkeys(exchanging, current.exchange),
            **dict.fromkeys(("_cuda_getDevice", "_accelerator_getDeviceIndex"), current.get),
            **dict.fromkeys(("_cuda_setDevice", "_accelerator_setDeviceIndex"), current.set),
            "_cuda_getDeviceCount": lambda: current.count,
            "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
            "_cuda_getArchFlags": lambda: arch,
            "_cuda_synchronize": self._synchronize,
            "_accelerator_synchronizeDevice": lambda device=None: self._synchronize(),
            "_cuda_set_sync_debug_mode": self._set_sync_mode,
            "_cuda_get_sync_debug_mode": lambda: self._sync_mode,
            "_cuda_getCurrentBlasHandle": lambda: 1,
            "_cuda_getCurrentSolverHandle": lambda: 1,
            "_accelerator_getAccelerator": lambda: torch.device("cuda"),
            "_get_accelerator": lambda *_: torch.device("cuda"),
            "_accelerator_getStream": lambda device=None: torch.cuda.current_stream(device),
            "_accelerator_setStream": lambda stream: torch.cuda.set_stream(stream),  # noqa: PLW0108 - which is replaced later
            "_accelerator_getDeviceCapability": lambda device=None: {"supported_dtypes": _dtypes()},
        }

    def _of_memory(self) -> dict[str, Callable[..., Any]]:
        statistics, reset_peak = self._of_device("statistics"), self._of_device("reset_peak")
        reset_accumulated, empty_cache = self._of_device("reset_accumulated"), self._of_device("empty_cache")
        return {
            **dict.fromkeys(("_cuda_memoryStats", "_accelerator_getDeviceStats"), statistics),
            **dict.fromkeys(("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"), reset_peak),
            "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
            "_accelerator_resetAccumulatedStats": reset_accumulated,
            **dict.fromkeys(("_cuda_emptyCache", "_accelerator_emptyCache"), empty_cache),
            "_accelerator_getMemoryInfo": self._of_device("free_and_total"),
            "_cuda_memorySnapshot": lambda *_: self._snapshot(),
            "_cuda_isHistoryEnabled": lambda: False,
            "_cuda_getMemoryMetadata": lambda: "",
            "_cuda_hostMemoryStats": lambda: dict.fromkeys(("num_host_alloc", "num_host_free"), 0),
            "_accelerator_isAllocatorInitialized": lambda: True,
            "_accelerator_setAllocatorSettings": self._take_settings,
            "_cuda_setMemoryFraction": self._set_fraction,
            "_cuda_getMemoryFraction": lambda device: self._fractions.get(device, 1.0),
            "_cuda_getAllocatorBackend": lambda: "native",
            "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
            "_cuda_cudaCachingAllocator_raw_alloc": self._allocate,
            "_cuda_cudaCachingAllocator_raw_delete": self._free,
        }

    def _of_device(self, method: str) -> Callable[..., Any]:
        """Return a function that calls a method of a GPU's memory, by default of the current GPU's."""

        def call(device: int | None = None) -> Any:
            return getattr(self._memory_of(self._current.get() if device is None else device), method)()

        return call

    def _take_settings(self, settings: str) -> None:
        self._memory_of(self._current.get()).allocator.take(settings)

    def _set_sync_mode(self, mode: int) -> None:
        if not 0 <= mode < len(_SYNC_MODES):
            raise RuntimeError(f"invalid value of debug_mode, expected one of {', '.join(_SYNC_MODES)}")
        self._sync_mode = mode

    def _set_fraction(self, fraction: float, device: int) -> None:
        self._fractions[device] = fraction
        self._memory_of(device).limit(fraction)

    def _allocate(self, size_bytes: int, stream: int) -> int:
        """Allocate raw memory for a library, not a tensor, and return its address."""
        # Addresses that no two allocations share, aligned as torch's blocks of 512 bytes are; nothing reads there.
        address = len(self._raw) + 1 << 9
        self._raw[address] = key = ("raw", address)
        self._memory_of(self._current.get()).hold(key, size_bytes, stream=stream)
        return address

    def _free(self, address: int) -> None:
        self._memory_of(self._current.get()).drop(self._raw[address])

    def _snapshot(self) -> dict[str, Any]:
        """Return the dict of torch.cuda.memory._snapshot: segments with their blocks, without history."""
        device = self._current.get()
        return {
            "segments": self._memory_of(device).segments(device),
            "device_traces": [[] for _ in range(self._current.count)],
            "allocator_settings": {},
            "external_annotations": [],
        }


def snapshot_file(snapshot: Callable[[], Any]) -> Callable[..., None]:
    """Return a replacement of torch.cuda.memory._dump_snapshot, which writes only to the prediction's own files."""

    def dump(filename: str = "dump_snapshot.pickle", **_: Any) -> None:
        torch.save(pickle.dumps(snapshot()), filename)

    return dump


def _dtypes() -> set[torch.dtype]:
    return {each for each in vars(torch).values() if isinstance(each, torch.dtype)}
