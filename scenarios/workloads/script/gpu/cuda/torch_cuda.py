"""torch.cuda and torch.accelerator as a script sees them on a machine with GPUs, simulated where there are none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import torch

from scenarios.do_nothing import do_nothing
from scenarios.workloads.script.gpu.cuda.comm import of_one_gpu
from scenarios.workloads.script.gpu.cuda.driver import Current, Driver, snapshot_file
from scenarios.workloads.script.gpu.cuda.graphs import graphs
from scenarios.workloads.script.gpu.cuda.legacy_tensors import follow_types
from scenarios.workloads.script.gpu.cuda.names import follow_names
from scenarios.workloads.script.gpu.cuda.properties import Properties, SeenGpu
from scenarios.workloads.script.gpu.cuda.torch_streams import GpuStreams
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory

# GPUs have bfloat16 and TF32 since compute capability 8.0 (CUDA C++ Programming Guide, "Compute Capabilities").
_AMPERE = 8
# Versions in torch 2.11.0 from PyPI (docs/explanation/calibration.md, the H200).
_CUDA, _NCCL = "13.0", (2, 28, 9)


def pretend(gpu: SeenGpu, current: Current, streams: GpuStreams, memory_of: Callable[[int], DeviceMemory]) -> None:
    """Make torch report a host's GPUs; `memory_of` returns the memory of a GPU by number."""
    major, minor = gpu.capability
    Driver(current, memory_of, streams.link.synchronize).install(f"sm_{major}{minor}")
    for name, value in {**answers_of_gpu(gpu, memory_of), **_of_streams(streams)}.items():
        setattr(torch.cuda, name, value)
    for name, value in graphs(streams.link).items():
        setattr(torch.cuda, name, value)
        setattr(torch.cuda.graphs, name, value)
    for name in ("Stream", "Event"):
        setattr(torch.cuda.streams, name, getattr(streams, name))
        setattr(torch, name, getattr(streams, f"any_{name.lower()}"))
    cuda, accelerator, core = (cast("Any", each) for each in (torch.cuda, torch.accelerator, torch._C))
    cuda.memory._dump_snapshot = snapshot_file(cuda.memory._snapshot)
    cuda.memory.MemPool = cuda.MemPool = _MemPool
    cuda.nccl.version, cuda.nccl.is_available = lambda: _NCCL, lambda tensors: True
    # Else the first use of torch.cuda would call the driver's initialization in C++.
    cuda._initialized = True
    accelerator.is_available, accelerator.device_count = lambda: True, lambda: gpu.count
    core._set_linalg_preferred_backend = core._set_blas_preferred_backend = do_nothing
    libraries: Any = torch.backends
    libraries.cuda.cufft_plan_cache = _PlanCache()
    libraries.cudnn.is_acceptable = lambda tensor: False  # else moving an RNN would flatten its weights by cuDNN
    cast("Any", torch.version).cuda = _CUDA
    # The name of users: torch.distributed's own code, where this is true, needs NCCL's classes.
    torch.distributed.is_nccl_available = lambda: True
    profiler: Any = torch.autograd.profiler
    profiler.emit_nvtx = _Nothing
    # Else a profile of CUDA would record CUDA's events at each operator, and fail slowly, as there is no CUDA.
    profiler._supported_activities = lambda: {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    follow_names()
    of_one_gpu()
    follow_types()


def answers_of_gpu(gpu: SeenGpu, memory_of: Callable[[int], DeviceMemory]) -> dict[str, Any]:
    """Return replacements of torch.cuda's names about GPUs that do not go through the driver."""
    properties, cudart, (major, minor) = Properties(gpu), _Cudart(memory_of), gpu.capability
    return {
        "is_available": lambda: True,
        "device_count": lambda: gpu.count,
        "get_device_name": lambda device=None: gpu.name,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: gpu.capability,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or major >= _AMPERE,
        "is_tf32_supported": lambda: major >= _AMPERE,
        "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "get_gencode_flags": lambda: f"-gencode compute=compute_{major}{minor},code=sm_{major}{minor}",
        "cudart": lambda: cudart,
        "check_error": do_nothing,
        "has_magma": True,
    }


def _of_streams(streams: GpuStreams) -> dict[str, Any]:
    return {
        "Stream": streams.Stream,
        "Event": streams.Event,
        "current_stream": streams.current,
        "default_stream": lambda device=None: streams.default,
        "stream": streams.StreamContext,
        "StreamContext": streams.StreamContext,
        "set_stream": streams.set,
    }


class _Nothing(nullcontext[None]):
    """A context manager without effect, whatever its arguments."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class _PlanCache:
    """An empty cache of cuFFT's plans."""

    size, max_size = 0, 4096  # torch's default

    def __getitem__(self, device: Any) -> _PlanCache:
        return self

    def clear(self) -> None:
        """Do nothing: a simulated GPU has no plans of FFTs."""


class _Cudart:
    """A stand-in for CUDA's runtime library, by which scripts query free memory, and start and stop the profiler."""

    class cudaError:  # noqa: N801 - torch's name
        success = 0

    def __init__(self, memory_of: Callable[[int], DeviceMemory]) -> None:
        self.cudaMemGetInfo = lambda device: memory_of(device).free_and_total()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: 0


class _MemPool:
    """A stand-in for a memory pool; tensors are allocated in the usual pools."""

    allocator = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id = (0, id(self))

    def use_count(self) -> int:
        """Return the number of users, always 1."""
        return 1

    def snapshot(self, include_traces: bool = True) -> Any:
        """Return the snapshot of all memory, as `torch.cuda.memory_snapshot` does."""
        return torch.cuda.memory_snapshot()
