"""The public names of torch.cuda and torch.accelerator that return constants or are refused; others work as on a GPU.

A test compares these tables with torch's own lists, and with that of docs/reference/simulated_script.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, NoReturn

# The modules whose public names are listed.
MODULES = (
    "torch.cuda",
    "torch.cuda.memory",
    "torch.cuda.random",
    "torch.cuda.nvtx",
    "torch.cuda.graphs",
    "torch.cuda.amp",
    "torch.cuda.profiler",
    "torch.cuda.comm",
    "torch.cuda.nccl",
    "torch.cuda.tunable",
    "torch.cuda.gds",
    "torch.accelerator",
    "torch.accelerator.memory",
)

# Names that return a constant on every GPU and change no prediction; `...` keeps torch's own code.
CONSTANTS: dict[str, dict[str, Any]] = {
    "torch.cuda": {
        **dict.fromkeys(("check_error", "cudart", "ipc_collect", "current_blas_handle", "current_solver_handle"), ...),
        **dict.fromkeys(("caching_allocator_enable", "caching_allocator_disabled", "get_allocator_backend"), ...),
        **dict.fromkeys(("host_memory_stats", "host_memory_stats_as_nested_dict", "list_gpu_processes"), ...),
        **dict.fromkeys(("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats"), ...),
        **dict.fromkeys(("MemPool", "use_mem_pool", "graph_pool_handle"), ...),
    },
    "torch.cuda.nvtx": {
        **dict.fromkeys(("range_push", "range_pop"), 0),
        **dict.fromkeys(("range_start", "range_end", "mark"), None),
        "range": ...,
    },
    "torch.cuda.profiler": {"start": None, "stop": None, "profile": ...},
    "torch.cuda.tunable": {
        **dict.fromkeys(("enable", "tuning_enable", "record_untuned_enable", "set_filename"), None),
        **dict.fromkeys(("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"), False),
        **dict.fromkeys(("set_max_tuning_duration", "set_max_tuning_iterations"), None),
        **dict.fromkeys(("set_rotating_buffer_size", "set_numerical_check_tolerances"), None),
        "get_max_tuning_duration": 30,  # torch's defaults
        "get_max_tuning_iterations": 100,
        "get_rotating_buffer_size": 0,
        "get_filename": "tunableop_results.csv",
        **dict.fromkeys(("get_results", "get_validators"), ()),
        "read_file": False,
    },
    "torch.accelerator": {"empty_host_cache": ...},
}

_NVML = "what a GPU's sensors say is not simulated"
_ALLOCATOR = "other allocators are not simulated: expected torch's own"
_EXTERNAL = "streams of other libraries are not simulated: expected torch.cuda.Stream"
_SEVERAL = (
    "several GPUs of one process are not simulated: expected a process for each GPU and torch.distributed, such as"
    " DistributedDataParallel in place of DataParallel"
)
_GDS = "GPUDirect Storage is not simulated: expected torch.save and torch.load"
_TUNING = "products are not tuned on simulated GPUs"
REFUSED: dict[str, dict[str, str]] = {
    "torch.cuda": {
        **dict.fromkeys(("utilization", "memory_usage", "device_memory_used"), _NVML),
        **dict.fromkeys(("temperature", "power_draw", "clock_rate"), _NVML),
        **dict.fromkeys(("CUDAPluggableAllocator", "change_current_allocator"), _ALLOCATOR),
        **dict.fromkeys(("ExternalStream", "get_stream_from_external"), _EXTERNAL),
        "GreenContext": "parts of a GPU are not simulated: expected torch.cuda.Stream",
    },
    "torch.cuda.comm": dict.fromkeys(
        ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather"), _SEVERAL
    ),
    "torch.cuda.nccl": dict.fromkeys(("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"), _SEVERAL),
    "torch.cuda.tunable": dict.fromkeys(("tune_gemm_in_file", "mgpu_tune_gemm_in_file"), _TUNING),
    "torch.cuda.gds": dict.fromkeys(("gds_register_buffer", "gds_deregister_buffer", "GdsFile"), _GDS),
    "torch.accelerator": {"Graph": "expected torch.cuda.CUDAGraph, which is simulated"},
}
# Modules whose public names their parent package also exports.
PARENTS = {
    **{f"torch.cuda.{name}": "torch.cuda" for name in ("memory", "random", "graphs")},
    "torch.accelerator.memory": "torch.accelerator",
}


def follow_names() -> None:
    """Make torch's names return the table's constants, or raise RuntimeError with one sentence if they are refused."""
    for module in MODULES:
        parent = PARENTS.get(module, module)
        target = import_module(module)
        for name, value in CONSTANTS.get(parent, {}).items():
            if value is not ... and hasattr(target, name):
                setattr(target, name, _giving(value))
        for name, sentence in REFUSED.get(parent, {}).items():
            if hasattr(target, name):
                usual = getattr(target, name)
                setattr(target, name, _refuse(f"{module}.{name}: {sentence}", usual))
    streams: Any = sys.modules["torch.cuda.streams"]
    streams.ExternalStream = sys.modules["torch.cuda"].ExternalStream


def _giving(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def refusing(sentence: str) -> Callable[..., NoReturn]:
    """Return a function that raises RuntimeError with `sentence`."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(sentence)

    return refuse


def _refuse(sentence: str, usual: Any) -> Any:
    """Return a replacement of a function or class that raises RuntimeError; a function's keeps its signature."""
    refuse = refusing(sentence)
    return type(usual.__name__, (), {"__new__": refuse}) if isinstance(usual, type) else wraps(usual)(refuse)
