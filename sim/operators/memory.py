"""What all laws of memory-bound operators share: memory traffic, cache traffic, instructions, waves of blocks."""

from __future__ import annotations

from scenarios.config.gpu import Gpu
from scenarios.seam.kernel import ELEMENT_BYTES

# Seconds from the start of a kernel without work to its end. H200, kernels of a few elements in traces of real steps:
# 0.8 to 1.2 us; with cold caches 1.0 to 1.4 us.
START_S = 1.0e-6
# Bytes of memory time a byte read and a byte written costs, over the data sheet's rate. Fitted on the H200's add, relu,
# cast of 134M elements (within 2 %); on an A100 PCIe and a V100 PCIe, never fitted, add and relu of more than 1 GB are
# within 4 %. Kernels that only write reach more.
READ_COST, WRITE_COST, FILL_COST = 1.085, 1.14, 1.04
# GDDR6 with ECC keeps its check bits among the data: memory's time grows by this on data-center GPUs of these
# capabilities. FluidX3D's benchmark table (README, github.com/ProjectPhysX/FluidX3D at 01d3cdda; a lattice-Boltzmann
# method bound by memory) has 67 to 79 % of the data sheet on T4, A2, A10, A40, L4, L40, L40S, and 76 to 87 % on V100
# and A100; consumer cards without ECC reach 85 to 90 %.
GDDR_FACTOR, GDDR = 1.16, frozenset({75, 86, 89})
# The share of the data sheet's L2 rate that uncoalesced reads reach: an H200's add of a [8192, 27, 128] tensor and a
# transposed one.
L2_SHARE = 0.78
# Bytes a clock and a multiprocessor of L2 where a profile has no rate: 5,120 bytes a clock on an A100's 108 or H100's
# 132 (A100 white paper).
L2_BYTES_A_CLOCK = 38
# The least that is read from L2 or memory: a sector.
SECTOR = 32
# Threads that a multiprocessor holds, by compute capability, where it is not 2,048 (CUDA C++ programming guide).
RESIDENT_THREADS = {75: 1024, 86: 1536, 89: 1536, 120: 1536}
# Lanes of float32 arithmetic in a multiprocessor: 64 on these, 128 on all later ones and on 8.6 (programming guide).
_NARROW = frozenset({70, 75, 80})


def size(dtype: str) -> int:
    """Return bytes of an element; of a dtype with no entry (float8) 1."""
    return ELEMENT_BYTES.get(dtype, 1)


def multiprocessors(gpu: Gpu) -> int:
    """Return the number of multiprocessors; 100 where a profile does not say."""
    return gpu.multiprocessors or 100


def clock_hz(gpu: Gpu) -> float:
    """Return the clock at which the data sheet's float32 rate is reached: 2 flops a lane and clock."""
    lanes = 64 if gpu.compute_capability in _NARROW else 128
    return gpu.flops_per_s.get("float32", 30e12) / (2 * lanes * multiprocessors(gpu))


def issue_s(cycles: float, gpu: Gpu) -> float:
    """Return seconds in which all multiprocessors together have `cycles` clocks, one multiprocessor's each."""
    return cycles / (multiprocessors(gpu) * clock_hz(gpu))


def dram_s(read: float, written: float, gpu: Gpu) -> float:
    """Return seconds to read and write so many bytes of the GPU's memory, all multiprocessors streaming."""
    write_cost = WRITE_COST if read else FILL_COST
    return (READ_COST * read + write_cost * written) / reached_bytes_per_s(gpu)


def reached_bytes_per_s(gpu: Gpu) -> float:
    """Return the memory's rate over which `READ_COST` and `WRITE_COST` are: the data sheet's, less what ECC takes."""
    return gpu.memory_bytes_per_s / (GDDR_FACTOR if gpu.compute_capability in GDDR else 1.0)


def l2_s(touched: float, gpu: Gpu) -> float:
    """Return seconds to move so many bytes between L2 and multiprocessors."""
    rate = gpu.l2_bytes_per_s or L2_BYTES_A_CLOCK * multiprocessors(gpu) * clock_hz(gpu)
    return touched / (rate * L2_SHARE)


def l2_bytes(gpu: Gpu) -> float:
    """Return the bytes of one partition of L2: what a multiprocessor finds without crossing to the other."""
    return float(gpu.l2_bytes or 4e6)


def resident_threads(gpu: Gpu) -> int:
    """Return how many threads one multiprocessor holds."""
    return RESIDENT_THREADS.get(gpu.compute_capability, 2048)


def resident_blocks(threads: int, gpu: Gpu, *, at_most: int = 32) -> int:
    """Return how many blocks of `threads` threads run at once on the whole GPU."""
    return multiprocessors(gpu) * max(1, min(at_most, resident_threads(gpu) // threads))
