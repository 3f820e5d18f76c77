"""The laws of softmax, layer and batch norm and of the loss behind them, by their passes over memory.

A block of threads handles a row: it reads the row once or twice more after the first time, from L2 while the rows of
all active blocks fit there.
"""

from __future__ import annotations

import math

from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from sim.operators.chip import READ_COST, START_S, WRITE_COST, Chip, size

# torch/aten, PersistentSoftmax.cuh: rows of up to 1,024 elements belong to a warp, which holds a power of 2 of them.
WARP_ROW, WARP_ROW_BYTES = 1024, 4096
# Clocks of a multiprocessor per element of such rows, and constant seconds of the kernel (H200, 768 and 1,024 elements
# in 32 and 16 bit: within 7 %; not fitted on A100 PCIe and V100 PCIe, where memory bounds it).
WARP_CLOCKS, WARP_START_S = 0.365, 4.5e-6
# Seconds of one more step of a block of threads through its row: 16 bytes a thread, or one element behind the last
# whole step. H200, rows of 32,000 and 50,304 elements in 16 and 32 bit: within 8 %.
STEP_S = 0.29e-6
# Rows that stay in shared memory: their largest size, and a block's seconds without its steps, for the maximum and the
# sum. Assumed: about as long as a layer norm's moments, which are measured.
SHARED_BYTES, SHARED_S = 48 * 1024, 1.7e-6
# Reads again come from L2 while all rows at work take up to 0.7 of it; none do at 0.8 more. Fitted on an A100 PCIe's
# softmax and layer norm of 2,048 to 16,384 elements; an H200's softmax of 50,304 agrees.
KEPT_SHARE, LOST_SHARE = 0.7, 0.8
# Layer norm: a block's seconds without its steps, for the moments (forward) and for two sums (backward); overlap of
# these and memory, as a p-norm. Fitted on an H200's rows of 768 and 2,048 and an A100 PCIe's of 1,024 to 16,384.
ROW_THREADS, ROW_VECTOR, MOMENTS_S, SUMS_S, OVERLAP = 128, 4, 3.1e-6, 0.5e-6, 1.5
# Gradients of weights: a block of 1,024 threads sums 32 columns, 256 rows at a time. H200, 16,384 x 768 in 16 and 32
# bit, both 79 us on 24 blocks. Above 65,536 rows (torch/aten) they are divided too.
WEIGHT_COLUMNS, WEIGHT_ROWS, WEIGHT_STEP_S, MANY_ROWS = 32, 256, 1.22e-6, 65536
# The loss is one block of 1,024 threads: seconds for each 1,024 rows (H200, 16,384 rows, both directions).
LOSS_THREADS, LOSS_STEP_S = 1024, 1.2e-6
# Added to the bytes' time of each of batch norm's passes: blocks combine their sums. Assumed, as for sums over rows.
MEETING_S = 4e-6


def softmax_seconds(call: Softmax, chip: Chip) -> float:
    """Return the time of a softmax's kernel."""
    row = call.dim * size(call.dtype)
    inputs = 2 if call.backward else 1
    if call.dim <= WARP_ROW and row <= WARP_ROW_BYTES:
        padded = 1 << max(0, call.dim - 1).bit_length()
        memory = chip.dram_s(inputs * call.rows * row, call.rows * row)
        return START_S + WARP_START_S + max(memory, chip.issue_s(WARP_CLOCKS * call.rows * padded))
    vector = 16 // size(call.dtype)
    threads = _softmax_threads(call, vector)
    blocks = chip.resident_blocks(threads)
    waves = max(1.0, call.rows / blocks)
    is_shared = call.is_staged and not call.backward and row < SHARED_BYTES and call.dim % vector == 0
    rereads = 1 if call.backward else 0 if is_shared else 2
    reread_inputs = 1 if call.is_log or not call.backward else 2  # log_softmax's backward first sums one of the two
    passes = inputs + rereads * reread_inputs * _lost_share(min(blocks, call.rows) * row * reread_inputs, chip)
    step = threads * vector
    steps = (1 if is_shared else 1 + rereads) * (call.dim // step + -(-(call.dim % step) // threads))
    memory = call.rows * row * (READ_COST * passes + WRITE_COST) / chip.streamed_bytes_per_s
    if is_shared:
        return START_S + math.hypot(memory, waves * (steps * STEP_S + SHARED_S))
    return START_S + memory + waves * steps * STEP_S


def _softmax_threads(call: Softmax, vector: int) -> int:
    """Return the threads of a block: a power of 2 up to 1,024, half as many in the backward pass and in torch 2.0."""
    most = min(call.dim // vector, 1024)
    threads: int = 1 << max(5, (most - 1).bit_length())
    return threads if call.is_staged and not call.backward else max(32, threads // 2)


def row_norm_seconds(call: RowNorm, chip: Chip) -> float:
    """Return the time of a layer norm's or RMS norm's kernels: one forward; backward for inputs and for weights."""
    row, blocks = call.dim * size(call.dtype), chip.resident_blocks(ROW_THREADS, at_most=16)
    waves = max(1.0, call.rows / blocks)
    inputs = 2 if call.backward else 1
    passes = inputs + inputs * _lost_share(min(blocks, call.rows) * row * inputs, chip)
    memory = call.rows * row * (READ_COST * passes + WRITE_COST) / chip.streamed_bytes_per_s
    steps = -(-call.dim // (ROW_THREADS * ROW_VECTOR)) * 2
    latency = waves * (steps * STEP_S + (SUMS_S if call.backward else MOMENTS_S))
    total = START_S + (memory**OVERLAP + latency**OVERLAP) ** (1 / OVERLAP)
    return float(total) + (_weights_s(call, chip) if call.backward and call.weights else 0.0)


def _weights_s(call: RowNorm, chip: Chip) -> float:
    """Return the time of the kernel that sums the gradients of weights over the rows."""
    groups = -(-call.dim // WEIGHT_COLUMNS)
    at_once = chip.resident_blocks(1024)
    splits = 1
    if call.rows > MANY_ROWS and groups < chip.multiprocessors / 2:
        splits = max(1, at_once // groups)
    steps = -(-call.rows // (WEIGHT_ROWS * splits)) * math.ceil(groups * splits / at_once)
    memory = chip.dram_s(2 * call.rows * call.dim * size(call.dtype), 0)
    return START_S + max(steps * WEIGHT_STEP_S, memory) + (MEETING_S if splits > 1 else 0.0)


def batch_norm_seconds(call: BatchNorm, chip: Chip) -> float:
    """Return the time in s of a batch norm or its backward: an elementwise pass, and before it one for sums if it is
    training or backward.
    """
    each = call.elements * size(call.dtype)
    inputs = 2 if call.backward else 1
    elements = START_S + chip.dram_s(inputs * each, each)
    if not (call.training or call.backward):
        return elements
    return elements + START_S + chip.dram_s(inputs * each, 0) + MEETING_S


def nll_loss_seconds(call: NllLoss, chip: Chip) -> float:
    """Return the time of the loss's kernel; the backward pass writes zeros first."""
    kernel = START_S + -(-call.rows // LOSS_THREADS) * LOSS_STEP_S
    if not call.backward:
        return kernel
    return kernel + START_S + chip.dram_s(0, call.rows * call.classes * size(call.dtype))


def _lost_share(at_work: float, chip: Chip) -> float:
    """Return the share of rereads that miss L2 while rows of `at_work` bytes are in use."""
    return min(1.0, max(0.0, (at_work / chip.l2_bytes - KEPT_SHARE) / LOST_SHARE))
