"""The laws of sorts, scans and fbgemm's operators on jagged tensors: chains of short kernels.

CUB's radix sort ("onesweep", since CUDA 11.5): one kernel counts all digits of 8 bits, one sums the counts, then a pass
for each digit moves keys and values. Few keys are sorted by one block.
"""

from __future__ import annotations

import math

from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort
from sim.operators.chip import START_S, Chip

# CUB: bits of a digit, bytes of keys that one block sorts alone, its bits a round.
DIGIT_BITS, ONE_BLOCK_BYTES, ONE_BLOCK_BITS = 8, 19456, 6
# Seconds of a round of that block, and of a pass that moves few keys. Longer passes also wait for the counts of tiles
# before them, up to LOOKBACK_S. Fitted on an H200's sorts of 16,384 to 1.6M int64 keys in backward passes: within
# 5 % (-14 % of the fewest).
ROUND_S, PASS_S, LOOKBACK_S, LOOKBACK_KEY_S = 0.44e-6, 4.9e-6, 3e-6, 15e-12
# Clocks of a multiprocessor per key in a pass, and in the counting kernel (H200, on those sorts).
PASS_CLOCKS, COUNT_CLOCKS = 2.35, 1.3
# Constant seconds of the kernel that counts and of the one that sums the counts; a memset before each pass.
COUNT_S, SUM_S, MEMSET_S = 2.1e-6, 1.1e-6, 0.9e-6
# A scan: its start kernels, and clocks per element (H200, asynchronous_complete_cumsum of 32,768 and 212,992).
SCAN_S, SCAN_CLOCKS = 5.3e-6, 1.8
# Clocks a bag and an id of fbgemm's kernels, which walk through bags by a warp (permute) or a thread (bucketize).
# Fitted on an H200's three shapes each: within 12 %. They hold two scans each.
PERMUTE_BAG_CLOCKS, BUCKETIZE_BAG_CLOCKS, BUCKETIZE_ID_CLOCKS = 35, 48, 16
# permute_pooled_embs copies offsets to the GPU first: H200, two sizes.
POOLED_S = 38e-6


def sort_seconds(call: Sort, chip: Chip) -> float:
    """Return the time of a sort of rows together, or of each row in a block of its own if rows are short."""
    if call.elements * call.key_bytes <= ONE_BLOCK_BYTES:
        waves = -(-call.rows // (2 * chip.multiprocessors))
        return START_S + waves * math.ceil(call.bits / ONE_BLOCK_BITS) * ROUND_S
    keys, more_bits = call.elements * call.rows, math.ceil(math.log2(call.rows)) if call.rows > 1 else 0
    return radix_s(keys, call.bits + more_bits, chip, pair_bytes=call.key_bytes + 8) + (
        MEMSET_S if call.rows == 1 else 0
    )


def radix_s(keys: int, bits: int, chip: Chip, *, pair_bytes: int = 12) -> float:
    """Return the time of CUB's sort of pairs by the lowest `bits` bits of their keys."""
    if keys * 8 <= ONE_BLOCK_BYTES:
        return START_S + math.ceil(bits / ONE_BLOCK_BITS) * ROUND_S
    passes = max(1, math.ceil(bits / DIGIT_BITS))
    moved = max(chip.issue_s(PASS_CLOCKS * keys), chip.dram_s(keys * pair_bytes, keys * pair_bytes))
    one = MEMSET_S + START_S + PASS_S + min(LOOKBACK_S, keys * LOOKBACK_KEY_S) + moved
    return COUNT_S + chip.issue_s(COUNT_CLOCKS * keys) + SUM_S + passes * one


def scan_seconds(call: Scan, chip: Chip) -> float:
    """Return the time of a scan's kernels."""
    touched = call.elements * call.element_bytes
    return SCAN_S + max(chip.issue_s(SCAN_CLOCKS * call.elements), chip.dram_s(touched, touched))


def permute_seconds(call: PermuteSparse, chip: Chip) -> float:
    """Return the time of the kernels that permute lengths, sum both, and move ids bag by bag."""
    ids_bytes = call.ids * call.id_bytes
    scans = 2 * scan_seconds(Scan(elements=call.bags), chip)
    lengths = START_S + chip.dram_s(8 * call.bags, 8 * call.bags)
    moved = chip.issue_s(PERMUTE_BAG_CLOCKS * call.bags) + chip.dram_s(ids_bytes, ids_bytes)
    return scans + lengths + START_S + moved


def bucketize_seconds(call: BucketizeSparse, chip: Chip) -> float:
    """Return the time of the kernels that count ids by bucket, sum the counts, and move the ids."""
    scans = scan_seconds(Scan(elements=call.bags), chip) + scan_seconds(Scan(elements=call.bags * call.buckets), chip)
    clocks = BUCKETIZE_BAG_CLOCKS * call.bags + BUCKETIZE_ID_CLOCKS * call.ids
    memory = chip.dram_s(2 * call.ids * call.id_bytes, call.ids * call.id_bytes)
    return scans + 2 * START_S + max(chip.issue_s(clocks), memory)


def pooled_seconds(call: PermutePooled, chip: Chip) -> float:
    """Return the time of the copies of offsets and of the kernel that permutes."""
    return POOLED_S + chip.dram_s(call.size_bytes, call.size_bytes)
