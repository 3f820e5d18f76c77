"""Derives the inputs of the operators' laws from a GPU's profile, once for each GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from scenarios.config.gpu import Gpu
from scenarios.seam.kernel import ELEMENT_BYTES

# Assumed where a profile has no figure: clock in Hz, multiprocessors of a GPU without a float32 rate, L2 bytes.
_CLOCK_HZ, _MULTIPROCESSORS, _L2_BYTES = 1.5e9, 100, 4e6
# L2 bytes per clock and multiprocessor where a profile has no rate: 5,120 bytes per clock on an A100's 108 or H100's
# 132 (A100 white paper).
_L2_BYTES_A_CLOCK = 38
# Float32 lanes of a multiprocessor: 64 up to an A100, 128 on GA10x, Ada, Hopper and Blackwell (CUDA C++ programming
# guide, arithmetic instructions).
_NARROW, _LANES, _NARROW_LANES = frozenset({70, 75, 80}), 128, 64
# Resident threads of a multiprocessor, by compute capability, where they are not 2,048 (CUDA C++ programming guide).
_RESIDENT_THREADS = {75: 1024, 86: 1536, 89: 1536, 120: 1536}

# Watts of boards with GDDR memory where a profile has none: over the data sheets of T4, L4, A10, A40, L40S and RTX 6000
# Ada (70 to 350 W) this many at this memory rate, growing with this power of it, within 25 %.
_GDDR_CAPABILITIES = frozenset({75, 86, 89, 120})
_GDDR_WATTS, _GDDR_BYTES_PER_S, _GDDR_GROWTH = 70.0, 310e9, 1.4
# The clock over the data sheet's, as the board's watts over those that the full clock would take to this power: an L40S
# at 350 W and an L4 at 72 W reach 73 and 45 % of bfloat16's rate, 51 and 36 % of float32's.
_CLOCK_PER_POWER = 0.65
# GDDR6 with ECC keeps its check bits among the data: memory's time grows by this on data-center GPUs of these
# capabilities. FluidX3D's benchmark table (README, github.com/ProjectPhysX/FluidX3D at 01d3cdda; a lattice-Boltzmann
# method bound by memory) has 67 to 79 % of the data sheet on T4, A2, A10, A40, L4, L40, L40S, and 76 to 87 % on V100
# and A100; consumer cards without ECC reach 85 to 90 %.
_ECC_FACTOR, _ECC_IN_MEMORY = 1.16, frozenset({75, 86, 89})

# Seconds from the start of a kernel without work to its end. H200, kernels of a few elements in traces of real steps:
# 0.8 to 1.2 us; with cold caches 1.0 to 1.4 us.
START_S = 1.0e-6
# Bytes of memory time a byte read and a byte written costs, over the data sheet's rate. Fitted on the H200's add, relu,
# cast of 134M elements (within 2 %); on an A100 PCIe and a V100 PCIe, never fitted, add and relu of more than 1 GB are
# within 4 %. Kernels that only write reach more.
READ_COST, WRITE_COST, FILL_COST = 1.085, 1.14, 1.04
# The share of the data sheet's L2 rate that uncoalesced reads reach: an H200's add of a [8192, 27, 128] tensor and a
# transposed one.
_L2_SHARE = 0.78
# Smallest read from L2 or memory: a sector.
SECTOR = 32
# How sharply the hit rate falls when data exceeds the cache.
_L2_EDGE = 12.0


class Generation(IntEnum):
    """A generation of GPUs by the instructions of its kernels.

    Volta and Turing, Ampere's A100 (mma.sync, cp.async), Ada with GA10x and workstation Blackwell (those instructions
    on smaller tensor cores), Hopper (wgmma), Blackwell (tcgen05).
    """

    VOLTA = 0
    AMPERE = 1
    ADA = 2
    HOPPER = 3
    BLACKWELL = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chip:
    """A GPU as its kernels see it; `capability` is its compute capability in tenths.

    `clock_hz` is the clock at which the data sheet's float32 rate holds, `flops_per_s` the data sheet's rates by dtype,
    `streamed_bytes_per_s` the memory's rate less the cost of error correction. `l2_bytes` counts distinct bytes in L2:
    before Hopper each partition keeps copies of its own. `watts` is the board's power limit, None if it never limits
    the clock. `flash_attention` is the version of FlashAttention that training runs.
    """

    capability: int
    generation: Generation
    multiprocessors: int
    resident_threads: int
    clock_hz: float
    flops_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    streamed_bytes_per_s: float
    l2_bytes: float
    l2_bytes_per_s: float
    watts: float | None
    flash_attention: int

    def resident_blocks(self, threads: int, *, at_most: int = 32) -> int:
        """Return how many blocks of `threads` threads run at once on the whole GPU."""
        return self.multiprocessors * max(1, min(at_most, self.resident_threads // threads))

    def issue_s(self, cycles: float) -> float:
        """Return the seconds of `cycles` clocks of single multiprocessors, spread over all of them."""
        return cycles / (self.multiprocessors * self.clock_hz)

    def dram_s(self, read: float, written: float) -> float:
        """Return the seconds to read and write bytes of the GPU's memory, with all multiprocessors streaming."""
        write_cost = WRITE_COST if read else FILL_COST
        return (READ_COST * read + write_cost * written) / self.streamed_bytes_per_s

    def l2_s(self, touched: float) -> float:
        """Return the seconds to move `touched` bytes between L2 and multiprocessors."""
        return touched / (self.l2_bytes_per_s * _L2_SHARE)

    def power_share(self, full_watts: float) -> float:
        """Return the share of the full clock that the board's power allows, if that clock would draw `full_watts`."""
        if self.watts is None or self.watts >= full_watts:
            return 1.0
        return math.pow(self.watts / full_watts, _CLOCK_PER_POWER)


@lru_cache(maxsize=64)
def chip_of(gpu: Gpu) -> Chip:
    """Return the laws' inputs for `gpu`."""
    capability, float32 = gpu.compute_capability, gpu.flops_per_s.get("float32")
    generation = generation_of(capability)
    lanes = _NARROW_LANES if capability in _NARROW else _LANES
    multiprocessors = gpu.multiprocessors
    if multiprocessors is None:
        multiprocessors = max(1, round(float32 / (2 * lanes * _CLOCK_HZ))) if float32 else _MULTIPROCESSORS
    clock_hz = float32 / (2 * lanes * multiprocessors) if float32 else _CLOCK_HZ
    partitions = gpu.l2_partitions if generation >= Generation.HOPPER else 1
    return Chip(
        capability=capability,
        generation=generation,
        multiprocessors=multiprocessors,
        resident_threads=_RESIDENT_THREADS.get(capability, 2048),
        clock_hz=clock_hz,
        flops_per_s=gpu.flops_per_s,
        memory_bytes_per_s=gpu.memory_bytes_per_s,
        streamed_bytes_per_s=gpu.memory_bytes_per_s / (_ECC_FACTOR if capability in _ECC_IN_MEMORY else 1.0),
        l2_bytes=float(gpu.l2_bytes * partitions) if gpu.l2_bytes else _L2_BYTES,
        l2_bytes_per_s=gpu.l2_bytes_per_s or _L2_BYTES_A_CLOCK * multiprocessors * clock_hz,
        watts=gpu.watts or _watts(gpu),
        flash_attention=gpu.flash_attention,
    )


def generation_of(capability: int) -> Generation:
    """Return the generation of a compute capability in tenths."""
    if capability < 80:
        return Generation.VOLTA
    if capability < 90:
        return Generation.AMPERE if capability == 80 else Generation.ADA
    return Generation.HOPPER if capability < 100 else Generation.BLACKWELL if capability < 120 else Generation.ADA


def size(dtype: str) -> int:
    """Return the bytes of an element, 1 for a dtype without entry (float8)."""
    return ELEMENT_BYTES.get(dtype, 1)


def hit_rate(fill: float) -> float:
    """Return the L2 hit rate of data that would fill it `fill` times."""
    return 1 / (1 + fill**_L2_EDGE) if fill < 8 else 0.0


def overlap(first_s: float, second_s: float, order: float) -> float:
    """Return the time of two overlapping parts of a kernel: `order` 1 is their sum, a large order their maximum."""
    return math.pow(math.pow(first_s, order) + math.pow(second_s, order), 1 / order)


def _watts(gpu: Gpu) -> float | None:
    if gpu.compute_capability not in _GDDR_CAPABILITIES:
        return None
    return _GDDR_WATTS * math.pow(gpu.memory_bytes_per_s / _GDDR_BYTES_PER_S, _GDDR_GROWTH)
