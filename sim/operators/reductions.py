"""The laws of reductions, by torch's division into blocks, of pooling and of QR decompositions.

torch/aten, Reduce.cuh (2.x): a block has at most 512 threads, 128 if each thread has four neighbouring results. The
reduced elements go to the lanes of a warp if they are neighbours, else to its rows; long reductions are split among
blocks, and the last block adds up the results that all have left in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from sim.operators.chip import START_S, Chip, size

# torch/aten: threads of a block, elements of a thread below which and above which it splits a sum.
THREADS, VECTOR, FEW, MANY = 512, 4, 16, 256
# Latency of a thread's next elements: 4 neighbours along rows (H200, 65,536 elements in one block, cold), 4
# rows of columns (H200, 256 x 256 in a step, in L2).
ROW_STEP_S, COLUMN_STEP_S = 0.445e-6, 0.30e-6
# Time of the last block for each result of another block, one after the other, and to find out that it is the last.
# Fitted on bias gradients in an H200's steps, 32 to 64 in a row: within 5 %.
PARTIAL_STEP_S, PARTIAL_S = 0.36e-6, 0.4e-6
# Added in a sum over all elements, where every block has a flag: H200, 16M elements.
WHOLE_S = 4.6e-6
# Memory's time over that of streaming kernels, along rows and along columns: a thread has few loads in flight (H200,
# sums of 4M to 50M elements).
ROW_READ_FACTOR, COLUMN_READ_FACTOR = 1.2, 1.3
# Clocks of a multiprocessor per 16-bit element, for conversion (H200, bias gradients of GPT-2).
HALF_CLOCKS = 0.028
# QR: cuSOLVER's chain of small kernels for a panel of up to 32 columns, and for each element. H200, 2,048 x 1 to
# 4,096 x 4: within 2 %; chains of latency are assumed to be the same on all GPUs.
PANEL, PANEL_S, ELEMENT_S, QR_SHARE = 32, 54e-6, 0.95e-9, 0.3
# Pooling: clocks of a multiprocessor per element of a window. Assumed: some 12 instructions.
WINDOW_CLOCKS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionBlocks:
    """A division of a reduction among blocks: `results` groups of results times `splits` blocks of `threads` threads.

    A thread issues `steps` dependent loads; the last block of a group reads `partials` results one after the other.
    """

    threads: int
    results: int
    splits: int
    steps: int
    partials: int


def seconds(call: Reduction, chip: Chip) -> float:
    """Return the time of a reduction's kernel, and of the memset of its flags."""
    elements, each = call.outer * call.reduced * call.inner, size(call.dtype)
    blocks = _blocks(call, chip)
    waves = math.ceil(blocks.results * blocks.splits / chip.resident_blocks(blocks.threads))
    step_s, factor = (ROW_STEP_S, ROW_READ_FACTOR) if call.inner == 1 else (COLUMN_STEP_S, COLUMN_READ_FACTOR)
    latency = waves * blocks.steps * step_s
    written = call.outer * call.inner * each
    memory = factor * chip.dram_s(elements * each, 0) + chip.dram_s(0, written)
    if each < 4:
        memory += chip.issue_s(HALF_CLOCKS * elements)
    total = START_S + math.hypot(memory, latency)
    if blocks.splits > 1:
        total += START_S + PARTIAL_S + blocks.partials * PARTIAL_STEP_S
        total += WHOLE_S if call.inner == 1 else 0.0
    return total


def _blocks(call: Reduction, chip: Chip) -> ReductionBlocks:
    """Divide a reduction into blocks as torch does; see the head of this module."""
    along_rows = call.inner == 1
    fast, slow = (call.reduced, call.outer) if along_rows else (call.inner, call.reduced)
    vector = VECTOR if fast >= 128 and fast % VECTOR == 0 else 1
    most = THREADS if along_rows else THREADS // vector
    width, height = _block(max(1, fast // vector), slow, most)
    values = -(-call.reduced // width) if along_rows else call.reduced
    outputs = call.outer if along_rows else call.outer * -(-call.inner // (width * vector))
    is_split = values >= min(height * FEW, MANY)
    if is_split:
        values = -(-values // height)
    else:
        outputs = -(-outputs // height)
    target = chip.multiprocessors * max(1, chip.resident_threads // (width * height))
    splits = 1
    if is_split and values >= MANY and outputs <= target:
        splits = max(min(-(-target // outputs), -(-values // FEW)), -(-values // MANY))
    values = -(-values // splits)
    threads = width * height
    together = threads if along_rows else height
    partials = -(-splits // together) if splits > 1 else 0
    return ReductionBlocks(
        threads=threads, results=outputs, splits=splits, steps=-(-values // VECTOR), partials=partials
    )


def _block(fast: int, slow: int, most: int) -> tuple[int, int]:
    """Return a block's width along `fast` and height along `slow`: powers of 2, and at most a warp wide if that
    suffices.
    """
    wide, high = (min(most, 1 << (extent.bit_length() - 1)) for extent in (fast, slow))
    height = min(high, most // min(wide, 32))
    return min(wide, most // height), height


def pool_seconds(call: Pool, chip: Chip) -> float:
    """Return the time of a pooling's kernel; the backward pass writes zeros first."""
    each = size(call.dtype)
    index = 8 if call.with_indices else 0
    clocks = chip.issue_s(WINDOW_CLOCKS * call.outputs * call.window)
    if call.backward:
        zeros = START_S + chip.dram_s(0, call.inputs * each)
        return zeros + START_S + max(clocks, chip.dram_s(call.outputs * (each + index), call.inputs * each))
    return START_S + max(clocks, chip.dram_s(call.inputs * each, call.outputs * (each + index)))


def qr_seconds(call: Qr, chip: Chip) -> float:
    """Return the time of a QR decomposition: panels one after the other, each a chain of reductions."""
    elements = call.rows * call.columns
    flops = 4.0 * call.rows * call.columns**2
    arithmetic = flops / (chip.flops_per_s.get("float32", 30e12) * QR_SHARE)
    chain = math.ceil(call.columns / PANEL) * PANEL_S + min(call.columns, PANEL) * call.rows * ELEMENT_S
    memory = chip.l2_s(elements * 4.0 * min(call.columns, PANEL))
    return call.batch * max(chain, arithmetic, memory)
