"""Derives from a profile's figures what the laws of kernels need: clock, lanes, L2 and the generation's habits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from scenarios.config.gpu import Gpu

# Assumed where a profile has no figure: clock in Hz, L2 bytes, and L2's rate over the memory's.
_CLOCK_HZ, _L2_BYTES, _L2_RATE = 1.5e9, 4e6, 3.0
# Float32 lanes of a multiprocessor: 64 up to an A100, 128 on GA10x, Ada, Hopper and Blackwell (CUDA C++ programming
# guide, arithmetic instructions).
_LANES_64 = (70, 75, 80)

# Boards with GDDR memory are made for a power at which they cannot keep their clock. A profile does not say it; over
# the data sheets of T4, L4, A10, A40, L40S and RTX 6000 Ada (70 to 350 W) it is this many watts at this memory rate,
# growing with this power of it, within 25 %.
_GDDR_CAPABILITIES = (75, 86, 89, 120)
_GDDR_WATTS, _GDDR_BYTES_PER_S, _GDDR_GROWTH = 70.0, 310e9, 1.4
# The clock over the data sheet's, as the watts over those that the full clock would take to this power.
_CLOCK_PER_POWER = 0.85
# How sharply a cache that is too full stops to hold anything.
_L2_EDGE = 12.0


class Generation(IntEnum):
    """A generation of GPUs by what its kernels issue.

    Volta and Turing, Ampere's A100 (mma.sync, cp.async), Ada with GA10x and workstation Blackwell (the same on smaller
    tensor cores), Hopper (wgmma), Blackwell (tcgen05).
    """

    VOLTA = 0
    AMPERE = 1
    ADA = 2
    HOPPER = 3
    BLACKWELL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A GPU by what its kernels see: `clock_hz` is the one at which the data sheet's float32 rate holds.

    `l2_bytes` is all of its L2, over all partitions; `watts` the board's power where that lowers the clock.
    """

    capability: int
    generation: Generation
    multiprocessors: int
    clock_hz: float
    memory_bytes_per_s: float
    l2_bytes: float
    l2_bytes_per_s: float
    watts: float | None

    def power_share(self, flops_per_s: float, watts_per_tera: float) -> float:
        """Return the share of `flops_per_s` that the board's power allows, if each 1e12 of them take so many watts."""
        if self.watts is None:
            return 1.0
        return min(1.0, math.pow(self.watts / (flops_per_s * 1e-12 * watts_per_tera), _CLOCK_PER_POWER))


def chip_of(gpu: Gpu) -> Chip:
    """Return what kernels see of `gpu`."""
    lanes = 64 if gpu.compute_capability in _LANES_64 else 128
    float32 = gpu.flops_per_s.get("float32")
    multiprocessors = gpu.multiprocessors
    if multiprocessors is None:
        multiprocessors = max(1, round(float32 / (2 * lanes * _CLOCK_HZ))) if float32 else 100
    return Chip(
        capability=gpu.compute_capability,
        generation=generation_of(gpu.compute_capability),
        multiprocessors=multiprocessors,
        clock_hz=float32 / (2 * lanes * multiprocessors) if float32 else _CLOCK_HZ,
        memory_bytes_per_s=gpu.memory_bytes_per_s,
        l2_bytes=float(gpu.l2_bytes * gpu.l2_partitions) if gpu.l2_bytes else _L2_BYTES,
        l2_bytes_per_s=gpu.l2_bytes_per_s or _L2_RATE * gpu.memory_bytes_per_s,
        watts=_watts(gpu),
    )


def generation_of(capability: int) -> Generation:
    """Return the generation of a compute capability in tenths."""
    if capability < 80:
        return Generation.VOLTA
    if capability < 90:
        return Generation.AMPERE if capability == 80 else Generation.ADA
    return Generation.HOPPER if capability < 100 else Generation.BLACKWELL if capability < 120 else Generation.ADA


def found(fill: float) -> float:
    """Return the share of bytes that is found in an L2 which all bytes fill `fill` times."""
    return 1 / (1 + fill**_L2_EDGE) if fill < 8 else 0.0


def overlapped(first_s: float, second_s: float, order: float) -> float:
    """Return the time of two parts of a kernel that overlap: 1 adds them up, a great `order` takes the longer."""
    return math.pow(math.pow(first_s, order) + math.pow(second_s, order), 1 / order)


def _watts(gpu: Gpu) -> float | None:
    if gpu.compute_capability not in _GDDR_CAPABILITIES:
        return None
    return _GDDR_WATTS * math.pow(gpu.memory_bytes_per_s / _GDDR_BYTES_PER_S, _GDDR_GROWTH)
