"""Times matrix products on an idle GPU: tiles in waves over its multiprocessors, or the memory's time.

A kernel cuts the result into tiles and gives each to a multiprocessor. Per element of `inner` a tile takes the longer
of its multiplications and its loads. Multiprocessors work on tiles in waves; with fewer tiles than multiprocessors the
inner dimension may be split, and the parts are then added up. The kernel is the best of a few tiles and splits, as
cuBLAS's heuristics choose. Times are those of kernels issued back to back, as in a step: activations are in L2 if they
fit.

Errors next to the constants are means of |predicted / measured - 1|.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import (
    FULL_ALIGNMENT,
    Product,
    Recurrence,
    linear,
    linear_input_gradient,
)
from sim.operators import pointwise as pointwise_law
from sim.operators.chip import Chip, Generation, hit_rate, overlap

# Types with twice the rate of bfloat16 by the data sheet, from this compute capability on.
EIGHT_BITS = frozenset({"float8_e4m3fn", "float8_e5m2", "int8"})
EIGHT_BITS_FROM = 89
# Compute capability of Turing, whose boards are made for less power than Volta's.
_TURING = 75

# The constants of tensor cores are fitted together on 500 linears of each of eight GPUs (bfloat16, aiconfigurator-core
# 0.12, figures of the profiles), mean errors on 4,000 others: A100 10.2 %, H100 6.1, H200 6.3, B200 7.9,
# GB200 8.2, GB300 8.2, B300 9.4, L40S 11.6; of GPUs left out of the fit 1 % worse at most.

# Rate of tiles over the data sheet's, before throttling and where the board's power allows it. Volta: by a V100's 97 of
# 125 TFLOP/s (see below).
_TENSOR_SHARE = (1.0, 1.0, 1.0, 1.0, 0.904)
# Watts for 1e12 16-bit flop/s at the full clock; tensor cores' other types draw as much at their own rates. Fitted to
# what products of 4,096 to 10,240 sustain on boards whose power is short (zzc0721/torch-performance-test-data on
# GitHub): an L4 (issue 120, 72 W; within 15 %) with the 0.74 that is fitted for an L40S, an A100 PCIe (108, 250 W; 7 %
# in the mean), an H100 PCIe (95, 350 W; within 7 %). SXM boards and Blackwell's have enough. A T4 (70 W) has 24 of 65
# TFLOP/s (forums.developer.nvidia.com/t/264462), a V100 97 of 125 (issue 140, 300 W).
_TENSOR_WATTS, _TURING_TENSOR_WATTS = (2.2, 1.01, 1.53, 0.68, 0.4), 3.4
# A tile's loads over the L2 bandwidth that a multiprocessor gets when all share it: clusters of tiles share loads on
# Hopper and Blackwell.
_TENSOR_LOAD = (1.81, 1.81, 0.71, 0.442, 0.632)
# A tile's store time over that of its bytes at a multiprocessor's share of L2: Hopper and Blackwell overlap it with the
# next tile.
_TENSOR_STORE = (3.03, 3.03, 3.03, 1.45, 1.45)
# Cycles from a kernel's start to its first multiplication and from its last to its end.
_START_CYCLES = (4230.0, 4230.0, 4230.0, 5136.0, 4112.0)
_TILE_CYCLES = 12.0
# Cycles of adding up the parts of a split, a kernel of its own, and its bytes over the L2's rate.
_SPLIT_CYCLES, _SPLIT_BYTES = 6512.0, 0.08
# Least `inner` of a part of a split, on tensor cores and on CUDA cores.
_LEAST_PART, _LANE_LEAST_PART = 128, 256
# Long kernels lower the clock: by this share when they take much longer than `_THROTTLE_S`.
_THROTTLE, _THROTTLE_S = 0.274, 150e-6
# Shares of the memory's and of the L2's rate that are reached.
_MEMORY_SHARE, _L2_SHARE = 0.83, 0.48
# Data that must fit into L2 for hits: all activations and results with a margin, weights six times (others of
# the same step push them out). Fitted on the L40S, whose L2 is six times as quick as its memory.
_ACTIVATIONS_IN_L2, _WEIGHTS_IN_L2 = 1.46, 6.06
# Arithmetic and memory overlap: their times add up as a norm of this order, on tensor cores and on CUDA cores.
_OVERLAP, _LANE_OVERLAP = 2.1, 2.7
# Tiles of all generations, and the further ones of Hopper's and Blackwell's kernels.
_TENSOR_TILES = (
    *((64, 64), (128, 64), (64, 128), (128, 128), (256, 128), (128, 256)),
    *((256, 64), (64, 256), (32, 64), (64, 32)),
)
_NEW_TILES = (*_TENSOR_TILES, (192, 128), (128, 192), (192, 192))

# Kernels for operands that are not aligned to 16 bytes load single elements through registers (`align1`): cycles of a
# multiprocessor for each, fitted on the products of inner or outer size 479 and 13 of an H200.
_UNALIGNED_CYCLES = 0.35
# Rate of Hopper's TF32, whose wgmma reads both operands along `inner`, where neither is contiguous so, and where only
# the left one is; fitted on 14 gradients of an H200. The former is too slow to lower the clock.
_TF32_NEITHER, _TF32_LEFT = 0.56, 0.93
# TF32 lowers the clock less.
_TF32_THROTTLE = 0.2

# Rate of kernels for results that are not aligned to 16 bytes, over the others on Hopper and Blackwell: mma.sync there
# reaches 62 % of wgmma (Luo et al., arXiv:2402.13499). Assumed: no row of them is at hand.
_UNALIGNED_RESULT = 0.62

# CUDA cores, fitted together on 2,500 products of a V100, an A100 and an H100 (NeuSight's labels) and 30 of an H200.
# Ada: by an A40 (zzc0721/torch-performance-test-data, issue 185), whose power is enough.
_LANE_SHARE = (0.985, 0.856, 0.72, 0.872, 0.872)
# Watts for 1e12 flop/s at the full clock: Ada by the L4 and an L40S (350 W), Hopper by the H100 PCIe of these
# measurements, Turing by a T4's 4.4 TFLOP/s there (pull request 29, 70 W). Others have enough.
_LANE_WATTS, _TURING_LANE_WATTS = (17.0, 12.0, 5.6, 7.6, 7.6), 19.8
# Cycles per row and column of a tile and element of `inner`, in loads of 32 floats: 128 lanes share what 64 had.
_LANE_LOAD = (0.708, 0.976, 2.94, 2.94, 2.94)
_LANE_STORE = 0.117
_LANE_TILE_CYCLES = 39.0
# A lone tile's cycles per element of `inner`, and how many tiles of a multiprocessor hide each other's latency.
_LANE_LATENCY_CYCLES, _LANE_RESIDENT = 33.0, 4
# The smallest tile's multiplications and loads take longer: bmm_interaction of an H200.
_LANE_SMALLEST = 1.25
# A result of one row or column is not split by cuBLAS: cycles per element of `inner`, by a DLRM's last layer.
_LANE_VECTOR_CYCLES = 26.0
# `inner` is rounded up to this: NeuSight's labels of 64 and 96 take as long as 128 on an A100, 96 as 128 on an H100.
_LANE_STEP = (32, 128, 128, 64, 64)
_LANE_TILES = (
    *((32, 32), (64, 32), (32, 64), (64, 64), (128, 32), (32, 128), (128, 64), (64, 128)),
    *((128, 128), (256, 64), (64, 256), (256, 128), (128, 256)),
)
# Least rows of a tile of batched products. An A100's are `ampere_sgemm_128x128_nn` in all of NeuSight's 1,141 labels:
# with 64 rows they reach half of the rate, with 64 columns nearly all of it.
_LANE_BATCHED_ROWS = (0, 128, 0, 0, 0)
# With caches flushed, CUDA-core kernels' first loads come from memory: beyond the bytes' time, on an H200.
_COLD_LANE_S = 3.9e-6
# As above, for older tensor-core kernels: TF32 and unaligned operands.
_COLD_TENSOR_S = 2.3e-6

# Recurrent layers, fitted on nn.RNN and nn.LSTM by cuDNN 8.2 on a GPU that is not named, taken for an A100
# (xwang233/code-snippet on GitHub, cudnn-rnn-bench-62143). cuDNN 7.6 takes half as long again on a V100 (DeepBench,
# 208 rows that were not fitted: 29 to 36 % too quick in the median).
# Seconds of a step beyond those of its product and its cell, forward and backward: within 15 % in the mean of 80 rows
# each.
_STEP_S = (2.0e-6, 4.9e-6)
# Largest hidden sizes that torch gives to cuDNN's kernel for small ones, forward and backward, "" for cells with gates
# (aten/native/cudnn/RNN.cpp, `use_rnn_persist_small_h`).
_SMALL = {"rnn": (384, 256), "": (192, 128)}
# Microseconds of a step of that kernel: at least, for each 10,000 weights, and for as many of 8 further samples; within
# 40 and 22 % in the mean of 80 and 52 rows.
_SMALL_US = ((0.22, 0.26, 0.045), (0.88, 0.145, 0.145))
_SMALL_SAMPLES = 8


def seconds(product: Product, chip: Chip, *, is_cold: bool = False) -> float:
    """Return the time of `product` on `chip` in seconds, without the host; `is_cold`: all caches are empty."""
    if not (product.batch and product.rows and product.columns):
        return 0.0
    busy_s, memory_s = busy_seconds(product, chip), _memory_s(product, chip, is_cold=is_cold)
    both_s = overlap(busy_s, memory_s, _OVERLAP if is_on_tensor_cores(product, chip) else _LANE_OVERLAP)
    return start_seconds(product, chip, is_cold=is_cold) + both_s


def recurrence_seconds(layer: Recurrence, chip: Chip) -> float:
    """Return the time of the steps of `layer` on `chip` in seconds, one after the other."""
    weights = layer.gates * layer.hidden * layer.state
    if not layer.is_packed and layer.hidden == layer.state <= _SMALL.get(layer.cell, _SMALL[""])[layer.is_backward]:
        least_us, weights_us, samples_us = _SMALL_US[layer.is_backward]
        further = math.ceil(layer.batch / _SMALL_SAMPLES) - 1
        return layer.steps * 1e-6 * (least_us + 1e-4 * weights * (weights_us + samples_us * further))
    size = ELEMENT_BYTES.get(layer.dtype, 4)
    make = linear_input_gradient if layer.is_backward else linear
    # Products of one sample are padded, and stay on tensor cores.
    step = make(max(2, layer.batch), layer.state, layer.gates * layer.hidden, layer.dtype, element_bytes=size)
    elements, dtype = layer.batch * layer.gates * layer.hidden, "float32" if layer.dtype == "tf32" else layer.dtype
    cell_s = pointwise_law.seconds(contiguous("tanh", elements, dtype), chip)
    return layer.steps * (seconds(step, chip) + cell_s + _STEP_S[layer.is_backward])


def start_seconds(product: Product, chip: Chip, *, is_cold: bool) -> float:
    """Return the time in which the kernel of `product` starts and ends."""
    start_s = _START_CYCLES[chip.generation] / chip.clock_hz
    if not is_cold:
        return start_s
    if not is_on_tensor_cores(product, chip):
        return start_s + _COLD_LANE_S
    is_new = product.dtype != "tf32" and chip.generation >= Generation.HOPPER and _operands(product) == FULL_ALIGNMENT
    return start_s + (0.0 if is_new else _COLD_TENSOR_S)


def busy_seconds(product: Product, chip: Chip) -> float:
    """Return the time of the multiprocessors on the best tiles of `product`, without memory."""
    if is_on_tensor_cores(product, chip):
        return _tensor_s(product, _tensor_rate(product, chip), chip)
    return _lane_s(product, _lane_rate(product.dtype, chip), chip)


def _operands(product: Product) -> int:
    return min(product.left_alignment, product.right_alignment)


def is_on_tensor_cores(product: Product, chip: Chip) -> bool:
    """Return whether tensor cores compute `product`."""
    return _tensor_rate(product, chip) > 0


def _tensor_rate(product: Product, chip: Chip) -> float:
    """Return the data sheet's flop/s of tensor cores for `product`; 0 if it runs on CUDA cores."""
    if product.dtype in ("float32", "float64") or (product.dtype == "tf32" and 1 in (product.rows, product.columns)):
        return 0.0
    if product.dtype in EIGHT_BITS and chip.capability >= EIGHT_BITS_FROM:
        return 2 * chip.flops_per_s.get("bfloat16", 0.0)
    return chip.flops_per_s.get(product.dtype, 0.0)


def _size(product: Product) -> int:
    """Return the bytes of an operand's element."""
    return 1 if product.dtype in EIGHT_BITS else ELEMENT_BYTES.get(product.dtype, 4)


def _lane_rate(dtype: str, chip: Chip) -> float:
    """Return the flop/s of CUDA cores; a GPU without the dtype's rate computes in float32."""
    return chip.flops_per_s.get(dtype) or chip.flops_per_s["float32"]


def _tensor_s(product: Product, flops_per_s: float, chip: Chip) -> float:
    """Return the time of the best tiles on tensor cores."""
    generation = chip.generation
    size, sms = _size(product), chip.multiprocessors
    watts_a_tera = _TURING_TENSOR_WATTS if chip.capability == _TURING else _TENSOR_WATTS[generation]
    full_watts = 1e-12 * chip.flops_per_s.get("float16", flops_per_s) * watts_a_tera
    rate = flops_per_s * _TENSOR_SHARE[generation] * chip.power_share(full_watts)
    throttle = _THROTTLE
    if product.dtype == "tf32":
        throttle = _TF32_THROTTLE
        if generation == Generation.HOPPER and product.left_is_transposed:
            rate, throttle = rate * _TF32_NEITHER, 0.0
        elif generation == Generation.HOPPER and not product.right_is_transposed:
            rate *= _TF32_LEFT
    alone_s = product.flops / rate
    multiply_s = 2 * sms / rate * (1 + throttle * alone_s / (alone_s + _THROTTLE_S))
    l2_s = size * sms / chip.l2_bytes_per_s  # an element's, of a multiprocessor's share
    load_s = l2_s * _TENSOR_LOAD[generation]
    if product.result_alignment < FULL_ALIGNMENT and generation >= Generation.HOPPER:
        multiply_s /= _UNALIGNED_RESULT
    together = _operands(product)
    if together < FULL_ALIGNMENT:
        load_s = max(load_s, _UNALIGNED_CYCLES / chip.clock_hz / max(1, together // size))
    fixed_s, store_s = _TILE_CYCLES / chip.clock_hz, l2_s * _TENSOR_STORE[generation]
    shapes = _NEW_TILES if generation >= Generation.HOPPER else _TENSOR_TILES
    tiles = ((a, b, max(a * b * multiply_s, (a + b) * load_s), fixed_s + a * b * store_s) for a, b in shapes)
    return _best(tiles, product, product.inner, chip)


def _lane_s(product: Product, flops_per_s: float, chip: Chip) -> float:
    """Return the time of the best tiles on CUDA cores."""
    generation = chip.generation
    clock, size = chip.clock_hz, _size(product)
    watts_a_tera = _TURING_LANE_WATTS if chip.capability == _TURING else _LANE_WATTS[generation]
    rate = flops_per_s * _LANE_SHARE[generation] * chip.power_share(1e-12 * flops_per_s * watts_a_tera)
    multiply_s = 2 * chip.multiprocessors / rate
    load_s = _LANE_LOAD[generation] * size / 128 / clock
    store_s = _LANE_STORE * size / 128 / clock
    fixed_s, latency_s = _LANE_TILE_CYCLES / clock, _LANE_LATENCY_CYCLES / clock
    step = _LANE_STEP[generation] if product.inner > _LANE_STEP[Generation.VOLTA] else _LANE_STEP[Generation.VOLTA]
    inner = math.ceil(product.inner / step) * step
    if product.left_is_transposed and 1 in (product.rows, product.columns):
        waves = math.ceil(product.batch * max(product.rows, product.columns) / 128 / chip.multiprocessors)
        return waves * product.inner * _LANE_VECTOR_CYCLES / clock
    least_rows = _LANE_BATCHED_ROWS[generation] if product.batch > 1 else 0
    tiles = []
    for a, b in _LANE_TILES:
        if a >= least_rows:
            slower = _LANE_SMALLEST if (a, b) == _LANE_TILES[0] else 1.0
            tiles.append((a, b, (a * b * multiply_s + (a + b) * load_s) * slower, fixed_s + a * b * store_s))
    return _best(tiles, product, inner, chip, latency_s=latency_s)


def _best(
    tiles: Iterable[tuple[int, int, float, float]], product: Product, inner: int, chip: Chip, latency_s: float = 0.0
) -> float:
    """Return the time of the best of `tiles`: rows, columns, seconds per element of `inner`, seconds per tile."""
    sms, rows, columns, batch = chip.multiprocessors, product.rows, product.columns, product.batch
    best, most = math.inf, inner // (_LANE_LEAST_PART if latency_s else _LEAST_PART)
    split_s = _SPLIT_CYCLES / chip.clock_hz
    part_s = _SPLIT_BYTES * batch * rows * columns / chip.l2_bytes_per_s
    for a, b, step_s, tile_s in tiles:
        count = batch * ((rows + a - 1) // a) * ((columns + b - 1) // b)
        waves = (count + sms - 1) // sms
        takes = waves * (inner * step_s + tile_s)
        if latency_s:
            resident = (waves + _LANE_RESIDENT - 1) // _LANE_RESIDENT
            takes = max(takes, inner * latency_s * resident + waves * tile_s)
        best = min(best, takes)
        # Halving the parts from the most on: a split saves work per part but adds a kernel that sums the parts.
        parts = min(sms // count, most)
        while parts > 1:
            takes = inner / parts * max(step_s, latency_s) + tile_s + split_s + part_s * (parts + 1)
            if takes >= best:
                break
            best, parts = takes, parts // 2
    return best


def _memory_s(product: Product, chip: Chip, *, is_cold: bool) -> float:
    """Return the time of the operands' and the result's bytes, some of which are in L2."""
    size = _size(product)
    weights = size * product.batch * product.columns * product.inner
    activations = size * product.batch * product.rows * (product.inner + product.columns)
    in_l2 = 0.0
    if not is_cold:
        in_l2 += weights * hit_rate((_WEIGHTS_IN_L2 * weights + activations) / chip.l2_bytes)
        in_l2 += activations * hit_rate(_ACTIVATIONS_IN_L2 * activations / chip.l2_bytes)
    moved = weights + activations - in_l2
    return moved / (chip.memory_bytes_per_s * _MEMORY_SHARE) + in_l2 / (chip.l2_bytes_per_s * _L2_SHARE)
