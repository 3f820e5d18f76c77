"""Times fused attention on an idle GPU: tiles of queries, each of which loops over the keys that it sees.

Per pair of query and key a multiprocessor multiplies for scores and values and computes an exponential; both times add
up. Tiles are spread over the multiprocessors; the longest tile of a causal mask ends last. Memory is read once. A
backward pass has 2.5 times the products and three more passes over memory. Times are those of kernels issued back to
back.
"""

from __future__ import annotations

import math

from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.operations.attention import Attention
from sim.operators.chip import Chip, Generation, hit_rate, overlap

# 16-bit forward constants are fitted together on 13,000 rows of eight GPUs (aiconfigurator-core 0.12, medians over
# three servers, which differ by 26 % themselves); mean errors on all 31,000 and 7,700 rows a GPU (A100: 5,600). Causal
# prefill: A100 7.5 %, B200 13.2, B300 13.2, GB200 12.8, GB300 12.2, H100 14.4, H200 14.9, L40S 15.3; encoders (no
# A100): B200 10.6, B300 8.8, GB200 10.6, GB300 7.7, H100 12.0, H200 12.3, L40S 12.3. Tuples are by generation: Volta
# (assumed as Ampere), Ampere, Ada, Hopper, Blackwell.

# Rate of products over the data sheet's, and cycles of an exponential on a multiprocessor's 16 units, over one. Above
# 1: a clock above the data sheet's.
_SHARE = (0.6, 0.714, 0.778, 1.05, 1.19)
_EXPONENTIAL = (0.3, 0.226, 3.58, 0.999, 0.948)
# Compute capability 10.3 has twice the exponential units of 10.0.
_SHARE_103, _EXPONENTIAL_103 = 1.37, 0.745
# Products of other head sizes than 64 are slower by these factors; 512 runs on fallback kernels.
_HEAD_128_ADA, _HEAD_192, _HEAD_256, _HEAD_512 = 0.775, 1.34, 1.24, (2.2, 2.2, 2.2, 2.77, 2.22)
# Compute capability 10.3 runs heads that are no multiple of 16 on fallback kernels.
_HEAD_ODD_103 = 5.26
# Blackwell has no fused kernel for heads of 192, whose fallback also computes keys outside a window.
_HEAD_192_BLACKWELL = 6.24
# True if a tile contains the queries of all heads that share keys: prefill of 16 positions, 256 samples, 32 heads and 8
# key heads takes 2.7 times as long on a B200 as on an H200. Single queries run on kernels for decoding, whose tiles do
# so on every GPU.
_PACKED = (False, False, True, True, False)
# Cycles of a tile without its pairs.
_TILE_CYCLES = (648.0, 648.0, 2410.0, 6700.0, 5570.0)
# A causal mask's longest tiles end late: by this share of their time.
_TAIL = (0.735, 0.735, 0.772, 0.615, 0.965)
# The tile's cycles and the tail of `scaled_dot_product_attention`, whose batches are not ragged. These and all that
# follows of backward and float32 are fitted on nine rows of an H200 and four kernels inside its GPT-2 steps: 2 %.
_PLAIN_TILE_CYCLES, _PLAIN_TAIL = 2320.0, 0.453
# Where tiles are fewer than multiprocessors, servers split the keys of a tile, on Ampere and Ada: time over the unsplit
# tile's as tiles become few.
_SPLIT = 0.63
# Waves of equal tiles: the share of the last wave's idle time that is lost.
_LAST_WAVE = 0.729
# Long kernels lower the clock: by this share when they take much longer than these seconds.
_THROTTLE, _THROTTLE_S = (0.164, 0.164, 0.177, 0.078, 0.078), (4.9e-3, 4.9e-3, 4.9e-3, 13.7e-3, 13.7e-3)
# Norm as which arithmetic and memory add up, shares of both memories' rates (above 1: the norm adds what overlaps), and
# how full L2 is with all bytes.
_OVERLAP = (0.857, 0.857, 0.857, 1.19, 1.44)
_MEMORY_SHARE, _L2_SHARE = (0.929, 0.929, 1.2, 1.7, 0.924), (0.512, 0.512, 0.975, 0.334, 0.227)
_L2_FILL = 0.834
# Cycles to start: `scaled_dot_product_attention` (as matrix products), an encoder's ragged batch, and a prefill's cache
# write on top; the cache's bytes over keys and values, and the share of the memory's rate that its kernel reaches.
_START_CYCLES = 5000.0
_SERVING_CYCLES = (8700.0, 8700.0, 11400.0, 15000.0, 11850.0)
_SERVING_CYCLES_103 = 14500.0
_CACHE_CYCLES = (7710.0, 7710.0, 5560.0, 3820.0, 3760.0)
_CACHE_CYCLES_103 = 1510.0
_CACHE_BYTES, _CACHE_SHARE = 1.35, 0.454
_PART_OF_WINDOW = 0.394

# FlashAttention 1 (`flash_attention = 1`): 16-bit forward and backward passes over version 2's time, by head size,
# larger ones as 128. Chosen by 59 MPT steps on 8 A100 (llm-foundry v0.0.4, 512 to 65,536 positions); a search on every
# other one finds them again. FlashAttention-2's paper (arXiv:2307.08691, table 1) has GPTs of 1.3 and 2.7 billion
# parameters on 8 A100 at 170 and 175 TFLOP/s a GPU with version 1, at 220 and 225 with version 2 (8,192 positions).
_FLASH_1 = {64: 1.35, 96: 1.45, 128: 1.55}

# Backward: share of the rate, and cycles per pair without its products. HSTU's kernels (H100, head size 128, no row of
# them fitted) are met within 7 % in the mean; of head size 256 by the factor, which they gave.
_BACKWARD_SHARE, _BACKWARD_CYCLES, _BACKWARD_256 = 1.05, 0.268, 1.55
# Float32 runs as three products of TF32 by mma.sync: flop a cycle and further cycles a pair, forward and backward.
# Ada's tensor cores have half the rate; before Ampere it runs on CUDA cores.
_FLOAT32_FLOP, _FLOAT32_CYCLES = (333.0, 199.0), (1.1, 1.45)
# With caches flushed: seconds beyond the bytes' time.
_COLD_S = 2.3e-6


def seconds(attention: Attention, chip: Chip, *, is_cold: bool = False) -> float:
    """Return the time of `attention` on `chip` in seconds, without the host; `is_cold`: all caches are empty."""
    if not attention.batch * attention.heads * attention.queries * attention.keys:
        return 0.0
    start = _START_CYCLES
    if attention.is_serving:
        start = _SERVING_CYCLES_103 if chip.capability == 103 else _SERVING_CYCLES[chip.generation]
    takes_s = start / chip.clock_hz + (_COLD_S if is_cold else 0.0)
    busy_s, memory_s = (
        _busy_s(attention, chip),
        _moved_s(_bytes(attention), chip, _MEMORY_SHARE[chip.generation], is_cold),
    )
    takes_s += overlap(busy_s, memory_s, _OVERLAP[chip.generation])
    if attention.is_serving and attention.is_causal:
        cache = 2 * _row_bytes(attention) * attention.key_heads * attention.keys * _CACHE_BYTES
        cycles = _CACHE_CYCLES_103 if chip.capability == 103 else _CACHE_CYCLES[chip.generation]
        takes_s += cycles / chip.clock_hz
        takes_s += _moved_s(cache, chip, _CACHE_SHARE, is_cold)
    if attention.is_backward:
        takes_s += _passes_s(attention, chip, is_cold)
    return takes_s


def _row_bytes(attention: Attention) -> int:
    return attention.batch * attention.head_size * ELEMENT_BYTES[attention.dtype]


def _bytes(attention: Attention) -> float:
    """Return the bytes of queries, keys, values and output, and of their gradients."""
    rows = 2 * attention.heads * attention.queries + 2 * attention.key_heads * attention.keys
    return float(_row_bytes(attention) * rows * (2 if attention.is_backward else 1))


def _moved_s(moved: float, chip: Chip, share: float, is_cold: bool) -> float:
    in_l2 = 0.0 if is_cold else hit_rate(_L2_FILL * moved / chip.l2_bytes)
    l2_bytes_per_s = chip.l2_bytes_per_s * _L2_SHARE[chip.generation]
    return moved * ((1 - in_l2) / (chip.memory_bytes_per_s * share) + in_l2 / l2_bytes_per_s)


def _passes_s(attention: Attention, chip: Chip, is_cold: bool) -> float:
    """Return the time of a backward pass's other kernels: row sums, clearing and rounding of dQ."""
    queries = attention.batch * attention.heads * attention.queries * attention.head_size
    size = ELEMENT_BYTES[attention.dtype]
    sums_s = _moved_s(2.0 * size * queries, chip, 0.8, is_cold)
    if size == 4:
        return sums_s + 2000.0 / chip.clock_hz
    clearing_s = _moved_s(4.0 * queries, chip, 0.8, is_cold)
    return sums_s + clearing_s + _moved_s((4.0 + size) * queries, chip, 0.8, is_cold) + 3 * 2000.0 / chip.clock_hz


def _busy_s(attention: Attention, chip: Chip) -> float:
    """Return the time of all tiles on the multiprocessors."""
    head, sms = _pad(attention.head_size), chip.multiprocessors
    rows, step = (128, 128) if head <= 128 and attention.queries > 64 else (64, 128 if head <= 128 else 64)
    is_packed = _PACKED[chip.generation] or attention.queries == 1
    group = attention.heads // attention.key_heads if is_packed else 1
    tiles = attention.batch * attention.heads // group * math.ceil(attention.queries * group / rows)
    longest, mean = _keys(attention, rows / group, step, chip)
    pair_s = _pair_cycles(attention, chip, head) / chip.clock_hz
    tile_s = (_TILE_CYCLES[chip.generation] if attention.is_serving else _PLAIN_TILE_CYCLES) / chip.clock_hz
    tail = _TAIL[chip.generation] if attention.is_serving else _PLAIN_TAIL
    longest_s = rows * longest * pair_s + tile_s
    even_s = tiles * (rows * mean * pair_s + tile_s) / sms
    if attention.is_causal:
        busy_s = max(longest_s, even_s + tail * longest_s)
    else:
        waves = tiles / sms  # not even_s / longest_s, whose rounding may begin another wave
        busy_s = max(longest_s, longest_s * (waves + _LAST_WAVE * (math.ceil(waves) - waves)))
    if attention.is_serving and tiles < sms and chip.generation <= Generation.ADA:
        busy_s *= _SPLIT + (1 - _SPLIT) * tiles / sms
    return busy_s * (1 + _THROTTLE[chip.generation] * busy_s / (busy_s + _THROTTLE_S[chip.generation]))


def _pad(head_size: int) -> int:
    return next((size for size in (64, 96, 128, 192, 256) if head_size <= size), max(512, head_size))


def _keys(attention: Attention, queries: float, step: int, chip: Chip) -> tuple[float, float]:
    """Return the number of keys of the longest and of the mean tile of `queries` queries."""
    every = float(math.ceil(attention.keys / step) * step)
    if not attention.is_causal:
        return every, every
    shortest = max(queries, float(step))
    if attention.window and attention.window < attention.keys and not _is_fallback(attention, chip):
        seen = min(float(attention.keys), attention.window + (128.0 if step == 128 else 64.0)) + step * _PART_OF_WINDOW
        return seen, seen * (1 - 0.5 * min(1.0, attention.window / attention.keys))
    return every, (every + shortest) / 2 if every > shortest else every


def _is_fallback(attention: Attention, chip: Chip) -> bool:
    return chip.generation == Generation.BLACKWELL and 128 < attention.head_size <= 192


def _pair_cycles(attention: Attention, chip: Chip, head: int) -> float:
    """Return a multiprocessor's cycles for one pair of query and key."""
    flop = (10.0 if attention.is_backward else 4.0) * head
    if attention.dtype not in ("bfloat16", "float16"):
        rate = _FLOAT32_FLOP[attention.is_backward]
        if chip.generation == Generation.VOLTA:
            rate = min(rate, 100.0)
        elif chip.generation == Generation.ADA:
            rate *= 0.5
        return flop / rate + _FLOAT32_CYCLES[attention.is_backward]
    peak = chip.flops_per_s.get(attention.dtype) or chip.flops_per_s["float32"]
    a_cycle = peak / (chip.multiprocessors * chip.clock_hz)
    share, exponential = _SHARE[chip.generation], _EXPONENTIAL[chip.generation]
    if chip.capability == 103:
        share, exponential = _SHARE_103, _EXPONENTIAL_103
    older = 1.0
    if chip.flash_attention == 1 and not attention.is_serving:
        older = _FLASH_1.get(head, _FLASH_1[128])
    if attention.is_backward:
        slower = _BACKWARD_256 if head > 128 else 1.0
        return (flop / (a_cycle * min(share, _BACKWARD_SHARE)) + _BACKWARD_CYCLES) * slower * older
    return (flop / (a_cycle * share) + exponential / 16) * _slower(attention, head, chip) * older


def _slower(attention: Attention, head: int, chip: Chip) -> float:
    if _is_fallback(attention, chip):
        return _HEAD_192_BLACKWELL
    if chip.capability == 103 and attention.head_size % 16:
        return _HEAD_ODD_103
    if head > 256:
        return _HEAD_512[chip.generation]
    if head == 128 and chip.generation == Generation.ADA:
        return _HEAD_128_ADA
    return {192: _HEAD_192, 256: _HEAD_256}.get(head, 1.0)
