"""Whether what ranks hold fits into their GPUs' memory, beside what a process of torch takes for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.config.scenario import Scenario
from scenarios.config.units import format_bytes
from scenarios.seam.errors import ScenarioError
from scenarios.seam.memory import peaks, remedy, size_of
from scenarios.seam.program import Program
from scenarios.seam.trace import ALWAYS, MemoryRow

CONTEXT, FRAGMENTATION = "CUDA context", "fragmentation"

# The driver's own, and the kernels that a process has loaded, by compute capability. Before CUDA 11.7 all of torch's
# were loaded: 1,008 MB with a Titan V (pytorch issue 28394). Since then they come as they are used, some 300 MB at
# first (pytorch issue 107667); a job of TorchRec has about 1 GB beside what torch reserved on A100s and H100s, NCCL's
# buffers for rings among them (TorchRec pull requests 3580 and 3770). Between these two: half a GiB; newer generations
# were not measured, and are given more.
_CONTEXT_BYTES = {70: 400 << 20, 75: 400 << 20, 80: 500 << 20, 86: 500 << 20, 89: 500 << 20, 90: 550 << 20}
_LATER_CONTEXT_BYTES = 650 << 20

# Of what tensors take at the peak: what the caching allocator holds beside them before it has to give cached blocks
# back. It was 1 % with one stream, and up to 50 % where nothing made it give back (TorchRec pull requests 3480 and
# 3770): an allowance for a job that is nearly full.
_FRAGMENTATION = 0.05


def device_rows(gpu: Gpu, memory: tuple[MemoryRow, ...]) -> Iterator[MemoryRow]:
    """Each rank's CUDA context and fragmentation beside its own parts; none on CPUs, or of programs without parts."""
    if not gpu.device.has_own_memory:
        return
    context = _LATER_CONTEXT_BYTES if gpu.compute_capability > 90 else _CONTEXT_BYTES[gpu.compute_capability]
    context = context if gpu.context_bytes is None else gpu.context_bytes
    share = _FRAGMENTATION if gpu.fragmentation is None else gpu.fragmentation
    for held in peaks(memory).values():
        row = replace(held[0], part=CONTEXT, size_bytes=context, phases=ALWAYS)
        yield row
        yield replace(row, part=FRAGMENTATION, size_bytes=round(share * size_of(held)))


def check_fits(scenario: Scenario, program: Program) -> None:
    """Raise if the fullest phase of a rank's step takes more than its GPU has.

    Raises:
        ScenarioError: with what is largest, and what would make it smaller.
    """
    fullest = max(peaks(program.memory).values(), key=size_of, default=[])  # the first of equal ones
    needed, capacity_bytes = size_of(fullest), scenario.cluster.host.gpu.memory_bytes
    if needed <= capacity_bytes:
        return
    largest = max(fullest, key=lambda row: row.size_bytes)
    raise ScenarioError(
        f"{scenario.path}: cluster.gpu.memory = '{format_bytes(capacity_bytes)}': expected at least"
        f" {format_bytes(needed)}, which rank {largest.rank} needs; its largest part is"
        f" {largest.part} with {format_bytes(largest.size_bytes)}: expected"
        f" {remedy([(row.part, row.size_bytes) for row in fullest])}"
    )
