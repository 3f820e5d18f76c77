"""Accelerators as frozen values with units in their names, declared like those in `hardware`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from scenarios.config.host_costs import Eager
from scenarios.config.kernel_kinds import EFFICIENCY, FLOP_RATES, LAUNCHES, RAMPS
from scenarios.config.keys import Key, one_or_list, tenths_of, version_of
from scenarios.config.toml.values import (
    Count,
    Efficient,
    FlopRate,
    KernelTables,
    Latency,
    Name,
    Positive,
    Quantiles,
    Rate,
    Reserve,
    Size,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What follows from a GPU's kind.

    Attributes:
        runs_on_cores: its kernels run on cores of the host, which do nothing else meanwhile.
        has_own_memory: it computes in its own memory, separate from the host's.
        sorts_ids: its kernels sort the ids of gradients before they change rows, like fbgemm's.
    """

    runs_on_cores: bool
    has_own_memory: bool
    sorts_ids: bool

    @property
    def is_launched(self) -> bool:
        """Whether kernels are launched by the host and run asynchronously."""
        return not self.runs_on_cores


DEVICES = {
    "cuda": Device(runs_on_cores=False, has_own_memory=True, sorts_ids=True),
    "cpu": Device(runs_on_cores=True, has_own_memory=False, sorts_ids=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, or the CPU process in its place.

    `flops_per_s` is by dtype name; `efficiency`, `launches_ns` and `ramps_ns` are by kind of kernel ("default" in
    `efficiency` covers kinds that are not listed). A ramp makes the efficiency grow with the size of the work. Mappings
    are left out of the hash, which equal GPUs share.
    """

    name: Annotated[Name, "What reports call it. Default: its kind."]
    kind: Annotated[Literal["cuda", "cpu"], "'cuda', or 'cpu' for a process on the host's cores. Required."]
    memory_bytes: Annotated[
        Size, Key("memory", "Memory of one GPU as torch has it, such as '79.1 GiB' of an H100. Required.")
    ]
    context_bytes: Annotated[Size | None, Key("context", "What a process's CUDA context takes of it.")] = None
    fragmentation: Annotated[Reserve | None, "What torch's allocator holds beside tensors, as a share of them."] = None
    memory_bytes_per_s: Annotated[Rate, Key("memory_rate", "Peak rate of that memory, such as '3.35 TB/s'. Required.")]
    l2_bytes: Annotated[
        Size | None,
        Key(
            "l2",
            "Its L2 cache, such as '50 MB': a look-up of embeddings reads rows from there that it has read before."
            " Default: none.",
        ),
    ] = None
    l2_partitions: Annotated[
        Count,
        "Partitions of its L2, `l2` each, that hold the same rows: a script on simulated GPUs is told of all L2"
        " (`torch.cuda.get_device_properties`). Default 1.",
    ] = 1
    l2_bytes_per_s: Annotated[
        Rate | None, Key("l2_rate", "What is read from and written to L2 at most. Default: as much as is asked.")
    ] = None
    launch_ns: Annotated[
        Latency,
        Key(
            "launch",
            "The host's time to launch one kernel, such as '4 us'; a 'cuda' GPU is at work on earlier"
            " ones meanwhile. Default '0 ns'.",
            always=True,
        ),
    ] = 0
    launches_ns: Annotated[
        Mapping[str, Latency],
        Key("launches", "What launching costs by kind of kernel. Default: `launch` for all.", names=LAUNCHES),
    ] = field(default_factory=dict, hash=False)
    ramp_ns: Annotated[
        Latency,
        Key(
            "ramp",
            "What one kernel takes beyond its work, until all of the GPU is busy and until its last"
            " block is through. Work that takes as long reaches half of `efficiency`. Default '0 ns'.",
            always=True,
        ),
    ] = 0
    ramps_ns: Annotated[
        Mapping[str, Latency], Key("ramps", "The same by kind of kernel. Default: `ramp` for all.", names=RAMPS)
    ] = field(default_factory=dict, hash=False)
    eager: Annotated[
        Eager,
        "What PyTorch and Python take on the host between launches, beside a 'cuda' GPU and without"
        " launching.cuda_graphs. Default: a current server.",
    ] = field(default_factory=Eager)
    spread: Annotated[
        Quantiles,
        "Quantiles of a kernel's time over its mean, equally far apart, such as [0.8, 1, 1.4]."
        " Default: all are the mean.",
    ] = ()
    compute_capability: Annotated[
        int,
        Key(
            "compute_capability",
            "NVIDIA's number for the GPU, such as '9.0': NCCL's choices depend on it, and scripts on simulated GPUs are"
            " told it. Default '9.0'.",
            accepts=Literal["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"],
            read=tenths_of,
            write=version_of,
            always=True,
        ),
    ] = 90
    multiprocessors: Annotated[
        Count | None,
        "Its multiprocessors: each of NCCL's channels takes one from kernels, and scripts on simulated GPUs get"
        " their number. Default: NCCL takes nothing from kernels, and scripts that ask get an error.",
    ] = None
    watts: Annotated[
        Positive | None,
        "Its power limit in watts, such as 350: matrix products that would draw more lower its clock. Default:"
        " enough for the full clock; of a board with GDDR memory an estimate from `memory_rate`.",
    ] = None
    flops_per_s: Annotated[
        Mapping[str, FlopRate], Key("flops", "Peak arithmetic by dtype. Required.", names=FLOP_RATES)
    ] = field(hash=False)
    flash_attention: Annotated[
        Literal[1, 2],
        "The FlashAttention that scaled_dot_product_attention runs in 16 bit: 2, or 1 as torch before 2.2 and"
        " flash-attn before 2.0 (July 2023) have it. Default 2.",
    ] = 2
    priced_by: Annotated[
        Literal["laws", "efficiency"],
        "How kernels are priced whose operators have a law: by it ('laws'), or as all others by peaks and"
        " `efficiency`. A 'cpu', and a GPU without `multiprocessors`, have no laws. Default 'laws'.",
    ] = "laws"
    kernel_tables: Annotated[
        KernelTables,
        Key(
            "kernel_table",
            "A table of measured operators, which corrects the laws by the nearest of them: the name of a ready one"
            " such as 'h200_sxm', of a whole one that `pip install \"twinstep[tables]\"` brings such as"
            " 'aiconfigurator/h200_sxm', the path of a Parquet file, or that of a trace of torch.profiler"
            " (docs/kernels.md). A list of them: later ones lie over those before. Default: laws alone.",
            write=one_or_list,
        ),
    ] = ()
    efficiency: Annotated[
        Mapping[str, Efficient],
        Key("efficiency", "The share of both peaks that kernels reach. Default 1 for all.", names=EFFICIENCY),
    ] = field(default_factory=dict, hash=False)

    @property
    def device(self) -> Device:
        """The properties that follow from the GPU's kind."""
        return DEVICES[self.kind]

    @property
    def has_laws(self) -> bool:
        """Whether kernels are priced by laws, for operators that have one."""
        return self.device.is_launched and self.priced_by == "laws" and self.multiprocessors is not None
