"""Checks that ranks' tensors fit into their GPUs' memory, with the CUDA context and the allocator's fragmentation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.config.scenario import Scenario
from scenarios.config.units import format_bytes
from scenarios.seam.errors import NoRoomError
from scenarios.seam.memory import CONTEXT, FRAGMENTATION, peaks, remedy, size_of
from scenarios.seam.trace import ALWAYS, MemoryRow

# The driver's memory and a process's loaded kernels, by compute capability. Before CUDA 11.7 all of torch's kernels
# were loaded: 1,008 MB with a Titan V (pytorch issue 28394). Since then they are loaded when used, some 300 MB at
# first (pytorch issue 107667); a TorchRec job has about 1 GB outside torch's reserved memory on A100s and H100s,
# NCCL's buffers for rings included (TorchRec pull requests 3580 and 3770). The values are between these two; newer
# generations were not measured, and get more.
_CONTEXT_BYTES = {70: 400 << 20, 75: 400 << 20, 80: 500 << 20, 86: 500 << 20, 89: 500 << 20, 90: 550 << 20}
_LATER_CONTEXT_BYTES = 650 << 20

# Share of the tensors' peak bytes that the caching allocator holds in addition before it has to release cached blocks:
# 1 % with one stream, up to 50 % where nothing forced a release (TorchRec pull requests 3480 and 3770). This is an
# allowance for a job that is nearly full.
_FRAGMENTATION = 0.05


def device_rows(gpu: Gpu, memory: tuple[MemoryRow, ...]) -> Iterator[MemoryRow]:
    """Yield each rank's CUDA context and fragmentation; nothing for CPUs or for programs without memory rows."""
    if not gpu.device.has_own_memory:
        return
    context = _LATER_CONTEXT_BYTES if gpu.compute_capability > 90 else _CONTEXT_BYTES[gpu.compute_capability]
    context = context if gpu.context_bytes is None else gpu.context_bytes
    share = _FRAGMENTATION if gpu.fragmentation is None else gpu.fragmentation
    for held in peaks(memory).values():
        row = replace(held[0], part="CUDA context", kind=CONTEXT, size_bytes=context, phases=ALWAYS)
        yield row
        yield replace(row, part="fragmentation", kind=FRAGMENTATION, size_bytes=round(share * size_of(held)))


def check_fits(scenario: Scenario, memory: Iterable[MemoryRow]) -> None:
    """Check that the peak phase of every rank's step fits into its GPU's memory, whose rows a program or a run has.

    Raises:
        NoRoomError: it does not fit; names the largest part and its remedy.
    """
    fullest = max(peaks(memory).values(), key=size_of, default=[])  # the first if equal
    needed, capacity_bytes = size_of(fullest), scenario.cluster.host.gpu.memory_bytes
    if needed <= capacity_bytes:
        return
    largest = max(fullest, key=lambda row: row.size_bytes)
    raise NoRoomError(
        f"{scenario.path}: cluster.gpu.memory = '{format_bytes(capacity_bytes)}': expected at least"
        f" {format_bytes(needed)}, which rank {largest.rank} needs; its largest part is"
        f" {largest.part} with {format_bytes(largest.size_bytes)}: expected"
        f" {remedy((row.part, row.kind, row.size_bytes) for row in fullest)}",
        math.ceil(needed - capacity_bytes),
    )
