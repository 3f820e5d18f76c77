"""The law of multi-tensor operators: launches of up to 320 blocks, a chunk of up to 65,536 elements each."""

from __future__ import annotations

from scenarios.seam.operations.optimizers import Foreach
from sim.operators.chip import START_S, Chip, size

# torch/aten's MultiTensorApply: elements of a chunk, chunks of a launch, tensors of a launch by number of lists,
# elements that a block of 512 threads handles at once.
CHUNK, CHUNKS_A_LAUNCH, TENSORS_A_LAUNCH = 65536, 320, (110, 110, 64, 48, 36, 30)
CHUNK_STEP = 512 * 4
# Seconds of one such step of a block that is alone on its multiprocessor, and in addition for each list read or
# written. H200: a step of SGD 22 us a chunk, of fused AdamW 40 us; ratios to memory's rate do not enter, as a block
# alone waits for latency, which is about the same on all GPUs.
STEP_S, STEP_STREAM_S = 0.1e-6, 0.19e-6
# Excess of a launch of many chunks over its bytes' time: its beginning and end, with few loads in flight. Fitted on
# Adam's foreach operators over 134M parameters (H200, within 9 %) with memory's usual share.
LAUNCH_S = 8e-6
# Memory's time grows by this for each list beyond two: more pages are open at once (fused AdamW of a GPT-2).
LIST_COST = 0.06


def seconds(call: Foreach, chip: Chip) -> float:
    """Return the time of all launches of one call."""
    total, tensors, chunks, elements, longest = 0.0, 0, 0, 0, 0
    most, full = TENSORS_A_LAUNCH[min(call.lists, 5)], CHUNKS_A_LAUNCH * CHUNK
    for numel in call.numels:
        tensors += 1
        left = numel
        if not chunks and left >= full:  # whole launches of one tensor
            total += left // full * _launch_s(call, full, CHUNK, chip)
            left %= full
        while left > 0:
            part = min(left, (CHUNKS_A_LAUNCH - chunks) * CHUNK)
            chunks, elements, longest = chunks - (-part // CHUNK), elements + part, max(longest, min(part, CHUNK))
            left -= part
            if chunks == CHUNKS_A_LAUNCH or (tensors == most and not left):
                total += _launch_s(call, elements, longest, chip)
                tensors, chunks, elements, longest = (1 if left else 0), 0, 0, 0
    return total + (_launch_s(call, elements, longest, chip) if chunks else 0.0)


def _launch_s(call: Foreach, elements: int, longest: int, chip: Chip) -> float:
    each = size(call.dtype)
    memory = chip.dram_s(call.read * elements * each, call.written * elements * each)
    memory *= 1 + LIST_COST * max(0, call.lists - 2)
    alone = -(-longest // CHUNK_STEP) * (STEP_S + STEP_STREAM_S * (call.read + call.written))
    return START_S + max(alone, memory + min(LAUNCH_S, alone))
