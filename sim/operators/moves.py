"""The laws of copies: concatenations, and copies between the host and a GPU."""

from __future__ import annotations

from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from sim.operators.chip import START_S, Chip, size

# Clocks of a multiprocessor per element of a concatenation of strided inputs, and in addition for each dimension of the
# result. Fitted on an H200's steps of DLRMs (2 dimensions, 13M to 218M elements) and GPT-2 (4): within 7 %.
CAT_CLOCKS, CAT_DIM_CLOCKS = 0.42, 0.15
# Constant time of a concatenation: each input has twice as many blocks of 512 threads as there are multiprocessors.
# Below that, most inputs of a launch (torch/aten, Shape.cu), strided and contiguous ones.
CAT_START_S = 3.5e-6
CAT_INPUTS, CAT_CONTIGUOUS_INPUTS = 64, 128
# Bytes a second that a copy by PCIe x16 reaches, by generation: 5 measured on an H200 (16 MiB, both directions); 4 and
# 3 in proportion to its payload. Volta and Turing have 3, Ampere and Ada 4, Hopper and Blackwell 5 (data sheets).
PCIE_BYTES_PER_S = {3: 12.5e9, 4: 26e9, 5: 54.2e9}
# Seconds from one end to the other of a copy of a few bytes between events (H200, 4,096 bytes, both directions).
HOST_COPY_START_S = 4.7e-6
# Pageable memory is copied to a pinned buffer first, by one core of the host: assumed.
PAGEABLE_BYTES_PER_S, PAGEABLE_START_S = 9e9, 5e-6


def cat_seconds(call: Cat, chip: Chip) -> float:
    """Return the time of a concatenation's kernel."""
    touched = float(call.elements * size(call.dtype))
    memory = chip.dram_s(touched, touched)
    if call.contiguous:
        return START_S * -(-call.inputs // CAT_CONTIGUOUS_INPUTS) + memory
    clocks = call.elements * (CAT_CLOCKS + CAT_DIM_CLOCKS * call.dims)
    return CAT_START_S * -(-call.inputs // CAT_INPUTS) + max(memory, chip.issue_s(clocks))


def host_copy_seconds(call: HostCopy, chip: Chip) -> float:
    """Return the time of a copy between the host's and the GPU's memory."""
    rate = PCIE_BYTES_PER_S[_generation(chip)]
    if call.pinned:
        return HOST_COPY_START_S + call.size_bytes / rate
    return HOST_COPY_START_S + PAGEABLE_START_S + call.size_bytes / min(rate, PAGEABLE_BYTES_PER_S)


def one_rank_seconds(call: OneRankCollective, chip: Chip) -> float:
    """Return the time of a collective of one rank: NCCL copies on the device, or does nothing."""
    return 0.0 if call.in_place else START_S + chip.dram_s(call.size_bytes, call.size_bytes)


def _generation(chip: Chip) -> int:
    if chip.capability < 80:
        return 3
    return 4 if chip.capability < 90 else 5
