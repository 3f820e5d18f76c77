"""Accelerators as frozen values with units in their names, declared like those in `hardware`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from scenarios.config.host_costs import Eager
from scenarios.config.kernel_kinds import EFFICIENCY, FLOP_RATES, LAUNCHES, RAMPS
from scenarios.config.keys import ALWAYS, Key, one_or_list, tenths_of, version_of
from scenarios.config.toml.values import (
    Count,
    Efficient,
    FlopRate,
    KernelTables,
    Latency,
    Name,
    Quantiles,
    Rate,
    Reserve,
    Size,
    Watts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of device (`cluster.gpu.kind`), with the properties that follow from it.

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
    """A GPU, or the CPU process in its place.

    `flops_per_s` is by dtype name; `efficiency`, `launches_ns` and `ramps_ns` are by kind of kernel ("default" in
    `efficiency` covers kinds that are not listed). A ramp makes the efficiency grow with the size of the work. Mappings
    are left out of the hash, which equal GPUs share.
    """

    name: Annotated[Name, "Name of the GPU in reports. Default: its kind."]
    kind: Annotated[Literal["cuda", "cpu"], "'cuda', or 'cpu' for a process on the host's cores. Required."]
    memory_bytes: Annotated[Size, "Memory of one GPU as torch reports it, such as '79.1 GiB' for an H100. Required."]
    context_bytes: Annotated[
        Size | None,
        "Memory that the CUDA context of a process takes. Default: by compute capability, such as 550 MiB for"
        " '9.0'; source: assumed, between pytorch issues 28394 and 107667, TorchRec pull requests 3580 and 3770.",
    ] = None
    fragmentation: Annotated[
        Reserve | None,
        "Memory that torch's caching allocator holds in addition to tensors, as a share of their bytes. Default 0.05;"
        " source: assumed, between 1 % and 50 % in TorchRec pull requests 3480 and 3770.",
    ] = None
    memory_bytes_per_s: Annotated[Rate, "Peak rate of the GPU's memory, such as '3.35 TB/s'. Required."]
    l2_bytes: Annotated[
        Size | None,
        "Size of the L2 cache, such as '50 MB': repeated lookups of an embedding row read the row from L2."
        " Default: no cache for rooflines, 4 MB for laws; source: assumed.",
    ] = None
    l2_partitions: Annotated[
        Count,
        "Partitions of the L2 cache, of size `l2` each, that hold copies of the same rows. A script on simulated"
        " GPUs sees the sum (`torch.cuda.get_device_properties`). Default 1.",
    ] = 1
    l2_bytes_per_s: Annotated[
        Rate | None,
        "Peak rate of the L2 cache. Default: no limit for rooflines, an estimate from the clock for laws;"
        " source: 5,120 bytes a clock of an A100 and H100 (A100 white paper).",
    ] = None
    launch_ns: Annotated[
        Latency,
        "Host time to launch one kernel, such as '4 us'. A 'cuda' GPU executes earlier kernels meanwhile. Default"
        " '0 ns'.",
        ALWAYS,
    ] = 0
    launches_ns: Annotated[
        Mapping[str, Latency],
        "Launch time by kind of kernel. Default: `launch` for all.",
        Key(names=LAUNCHES),
    ] = field(default_factory=dict, hash=False)
    ramp_ns: Annotated[
        Latency,
        "Fixed GPU time of each kernel beyond its work, while the GPU fills and drains. A kernel whose work takes"
        " as long as its ramp reaches half of `efficiency`. Default '0 ns'.",
        ALWAYS,
    ] = 0
    ramps_ns: Annotated[Mapping[str, Latency], "Ramp by kind of kernel. Default: `ramp` for all.", Key(names=RAMPS)] = (
        field(default_factory=dict, hash=False)
    )
    eager: Annotated[
        Eager,
        "Host times of PyTorch and Python between launches, for 'cuda' GPUs without launching.cuda_graphs."
        " Default: those of a current server.",
    ] = field(default_factory=Eager)
    spread: Annotated[
        Quantiles,
        "Quantiles of a kernel's time divided by its mean, equally spaced from minimum to maximum, such as [0.8,"
        " 1, 1.4]. Default: no variation.",
    ] = ()
    compute_capability: Annotated[
        int,
        "NVIDIA's compute capability, such as '9.0'. NCCL's choices depend on it, and scripts on simulated GPUs"
        " see it. Default '9.0'.",
        Key(
            accepts=Literal["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"],
            read=tenths_of,
            write=version_of,
            always=True,
        ),
    ] = 90
    multiprocessors: Annotated[
        Count | None,
        "Number of streaming multiprocessors. Each NCCL channel takes one from kernels; scripts on simulated GPUs"
        " see the number. Default: NCCL takes none, and scripts that ask for the number get an error.",
    ] = None
    watts: Annotated[
        Watts | None,
        "Power limit, such as 350: matrix products that would draw more lower the clock. Default: no limit;"
        " for boards with GDDR memory an estimate from `memory_rate`; source: data sheets of T4, L4, A10, A40, L40S and"
        " RTX 6000.",
    ] = None
    flops_per_s: Annotated[
        Mapping[str, FlopRate], "Peak arithmetic rate by dtype. Required.", Key(names=FLOP_RATES)
    ] = field(hash=False)
    flash_attention: Annotated[
        Literal[1, 2],
        "Version of FlashAttention that scaled_dot_product_attention runs in 16 bit: 2, or 1 as in torch before"
        " 2.2 and flash-attn before 2.0 (July 2023). Default 2;"
        " source: torch 2.2 and later.",
    ] = 2
    priced_by: Annotated[
        Literal["laws", "efficiency"],
        "How kernels that have a law are priced: by the law ('laws'), or by peak rates times `efficiency` like"
        " all other kernels ('efficiency'). Without `multiprocessors`, and with kind 'cpu', there are no laws."
        " Default 'laws'.",
    ] = "laws"
    kernel_tables: Annotated[
        KernelTables,
        "Table of measured operators that corrects the laws: the name of a ready table such as 'h200_sxm', a name"
        " from `pip install \"twinstep[tables]\"` such as 'aiconfigurator/h200_sxm', or the path of a Parquet file"
        " or of a torch.profiler trace (twinstep docs kernels). In a list, later tables take precedence. Default:"
        " laws alone.",
        Key("kernel_table", write=one_or_list),
    ] = ()
    efficiency: Annotated[
        Mapping[str, Efficient],
        "Share of both peak rates that kernels reach. Default 1 for all.",
        Key(names=EFFICIENCY),
    ] = field(default_factory=dict, hash=False)

    @property
    def device(self) -> Device:
        """The properties that follow from the GPU's kind."""
        return DEVICES[self.kind]

    @property
    def has_laws(self) -> bool:
        """Whether kernels are priced by laws, for operators that have one."""
        return self.device.is_launched and self.priced_by == "laws" and self.multiprocessors is not None
