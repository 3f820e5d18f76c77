"""The laws of reading and writing rows by index, and of the backward passes: a sort, then a pass over equal indices."""

from __future__ import annotations

import math

from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from sim.operators.chip import SECTOR, START_S, Chip, size
from sim.operators.sorting import radix_s

# An element-by-element index: constant seconds, and clocks of a multiprocessor an element. H200, z[:, i, j] of 8,192
# and 65,536 matrices of 27 x 27: within 3 %; the same in a step.
INDEX_S, INDEX_CLOCKS, INDEX_CLOCKS_MORE = 4.0e-6, 1.1, 0.18
# Backward of an index, elements of a run not neighbours: a warp for each index and slice waits for its sorted index,
# its place, its gradient and its sum. Seconds of such a warp while 64 are at work on a multiprocessor, and in addition
# if the sums lie outside of L2. H200, four DLRMs of 21 and 27 features, 4,096 to 65,536 samples: within 4 %.
WARP_S, WARP_MEMORY_S, WARPS = 1.72e-6, 0.30e-6, 64
# Small kernels that combine several indices into one, without the sort (H200: 1.98 + 1.15 + 1.5 + 1.12 + 1.5 + 1.73 +
# 0.7 us), and clocks per element of the copy of values that are not contiguous.
LINEAR_S, COPY_CLOCKS = 9.7e-6, 0.85
# embedding_dense_backward: seconds of a block in each of two kernels that walk through the sorted ids. H200, 16,384 ids
# of 768 elements: 112 and 117 us. The kernels that find the runs add RUNS_S to the sort of all 64 bits.
WALK_S, RUNS_S, WALK_THREADS = 1.8e-6, 14e-6, 1024
# Clocks per element of torch/aten's kernel that sums few ids for padded tables, without a sort (Embedding.cu).
ATOMIC_CLOCKS = 1.5


def gather_seconds(call: Gather, chip: Chip) -> float:
    """Return the time to read rows by index and to write them contiguously."""
    row = call.dim * size(call.dtype)
    read, written = (call.unique or call.rows) * max(row, SECTOR), call.rows * row
    return START_S + max(chip.dram_s(read + 8 * call.rows, written), chip.l2_s(2 * written))


def index_seconds(call: Index, chip: Chip) -> float:
    """Return the time to move each element by its own index."""
    each = size(call.dtype)
    touched = min(call.elements * SECTOR, (call.source_elements or call.elements) * each)
    clocks = call.elements * (INDEX_CLOCKS + INDEX_CLOCKS_MORE * call.indices)
    return INDEX_S + max(chip.issue_s(clocks), chip.dram_s(touched, call.elements * each))


def index_put_seconds(call: IndexPut, chip: Chip) -> float:
    """Return the time of all kernels of an accumulating `index_put_`."""
    each, elements = size(call.dtype), call.slices * call.count * call.inner
    total = LINEAR_S + radix_s(call.count, 64, chip, pair_bytes=16)
    if not call.is_contiguous:
        total += START_S + max(chip.issue_s(COPY_CLOCKS * elements), chip.dram_s(elements * each, elements * each))
    memory = chip.dram_s(2 * elements * each, elements * each)
    # One warp per index, or per 128 elements where neighbours follow the index.
    warps = call.slices * 4 * -(-call.count // 4) * -(-call.inner // 128)
    outside = 1 - min(1.0, chip.l2_bytes / 4 / (call.target_elements * each))
    latency = warps / (WARPS * chip.multiprocessors) * (WARP_S + WARP_MEMORY_S * outside)
    return total + START_S + max(memory, latency)


def embedding_backward_seconds(call: EmbeddingBackward, chip: Chip) -> float:
    """Return the time of all kernels of `embedding_dense_backward`, including the table's zeros."""
    row = call.dim * size(call.dtype)
    zeros = START_S + chip.dram_s(0, call.table_rows * row)
    threads = min(WALK_THREADS, -(-call.dim // 32) * 32)
    blocks = call.ids * -(-call.dim // threads)
    latency = math.ceil(blocks / chip.resident_blocks(threads)) * WALK_S
    walk = START_S + max(latency, chip.dram_s(call.ids * row, call.ids * row))
    return zeros + radix_s(call.ids, 64, chip, pair_bytes=16) + RUNS_S + 2 * walk


def scatter_add_seconds(call: ScatterAdd, chip: Chip) -> float:
    """Return the time of a kernel that adds with atomic operations, which L2 executes."""
    each = size(call.dtype)
    changed = min(call.target_elements, call.elements) * each
    memory = chip.dram_s(call.elements * (each + 8) + changed, changed)
    return START_S + max(memory, chip.issue_s(ATOMIC_CLOCKS * call.elements), chip.l2_s(call.elements * each * 2))
