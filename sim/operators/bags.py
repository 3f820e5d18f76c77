"""The laws of fbgemm's table-batched embeddings (1.x) in the GPU's memory, forward and backward with the update.

Forward: one warp per bag reads its offsets, its ids, then the rows. Backward: ids are made unique over tables, sorted
by as many bits as rows need, runs of equal ids are found, and a warp per run (a block for a long run) sums the
gradients and updates the row.
"""

from __future__ import annotations

import math

from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from sim.operators.chip import READ_COST, START_S, WRITE_COST, Chip, size
from sim.operators.sorting import radix_s

# Warps of a multiprocessor in these kernels (blocks of 512 threads).
WARPS = 64
# bounds_check_indices: seconds of a warp without ids, and for each 32 ids. H200, three shapes: within 10 %.
CHECK_S, CHECK_STEP_S = 0.93e-6, 1.31e-6
# The lookup: constant seconds, memory's time over streaming's for whole rows at random places, and a warp's seconds
# without memory: to find its bag, and for each id. Fitted on 29 H200 rows of 16 to 512 elements: mean error 6 %, held
# half 6 %.
LOOKUP_S, ROW_FACTOR, BAG_S, ID_S = 6.2e-6, 1.15, 0.79e-6, 0.183e-6
# Share of the looked-up rows that L2 serves, where ids repeat so often that memory is not the bound (H200, ids of a
# Zipf law); the multiprocessors' own caches serve the rest.
CACHED_SHARE = 0.3
# linearize_index: a warp makes 32 bags' ids unique, one bag after the other, 32 ids at once.
LINEAR_S, LINEAR_STEP_S, LINEAR_CLOCKS = 6e-6, 0.45e-6, 1.05
# Kernels that find runs of equal ids: constant seconds, clocks per id and run; then fills and memsets of their results.
RUNS_S, RUNS_CLOCKS, FILLS_S = 8.8e-6, 3.3, 8.5e-6
# A row's update: memory's time over streaming's for rows read and written at random; a warp's latency, over the number
# of rows that it handles at once (at least 8 lanes each), with 32 warps per multiprocessor; the addition for each
# number of the optimizer that is stored per row; bytes of such a number, including the unused part of its access.
# UPDATE_START_S: until all warps are at work. Fitted on H200 rows of 16 to 512 elements and three optimizers, and on
# the kernel in four steps of DLRMs: within 6 %.
UPDATE_FACTOR, UPDATE_S, STATE_S, UPDATE_WARPS, ROW_STATE_BYTES = 1.6, 1.57e-6, 0.83e-6, 32, 64
UPDATE_START_S = 8e-6
# Stochastic rounding of 16-bit weights: clocks per element.
ROUNDING_CLOCKS = 0.25
# A long run: seconds of a block for the run, and for each 32 of its ids; most ids of one block.
LONG_S, LONG_STEP_S, LONG_MOST = 3.8e-6, 1.0e-6, 1024
# Numbers that optimizers keep: (of the size of the row, one a row).
STATES = {
    **{"sgd": (0, 0), "none": (0, 0), "rowwise_adagrad": (0, 1), "adagrad": (1, 0), "adam": (2, 0)},
    **{"partial_rowwise_adam": (1, 1), "lamb": (2, 0), "partial_rowwise_lamb": (1, 1), "lars_sgd": (1, 0)},
    **{"ensemble_rowwise_adagrad": (1, 1), "rowwise_adagrad_with_counter": (0, 3)},
}


def forward_seconds(call: BagsForward, chip: Chip) -> float:
    """Return the time of the lookup's kernels."""
    bags = call.bags
    row, result = bags.dim * size(bags.weight_dtype), bags.dim * size(bags.output_dtype)
    results = bags.tables * bags.bags if bags.pooled else bags.ids
    read = bags.unique * max(row, 32) + bags.ids * (12 if bags.weighted else 8)
    memory = ROW_FACTOR * (READ_COST * read + WRITE_COST * results * result) / chip.streamed_bytes_per_s
    cached = chip.l2_s(CACHED_SHARE * bags.ids * row + results * result)
    latency = _waves(bags, chip) * (BAG_S + ID_S * bags.ids / (bags.tables * bags.bags))
    total = LOOKUP_S + math.hypot(max(memory, cached), latency)
    return total + (_check_s(bags, chip) if call.checks_bounds else 0.0)


def _waves(bags: Bags, chip: Chip) -> float:
    return bags.tables * bags.bags / (WARPS * chip.multiprocessors)


def _check_s(bags: Bags, chip: Chip) -> float:
    """Return the time of the kernels that check ids and count those out of bounds."""
    steps = math.ceil(bags.ids / (32 * bags.tables * bags.bags))
    return 3 * START_S + max(1.0, _waves(bags, chip)) * (CHECK_S + CHECK_STEP_S * steps)


def backward_seconds(call: BagsBackward, chip: Chip) -> float:
    """Return the time of all kernels of the backward pass and update."""
    bags = call.bags
    bits = max(1, math.ceil(math.log2(bags.tables * bags.rows)))
    sort = radix_s(bags.ids, bits, chip, pair_bytes=12 if bags.pooled else 16)
    steps = 32 * math.ceil(bags.ids / (32 * bags.tables * bags.bags))
    linear = LINEAR_S + max(steps * LINEAR_STEP_S, chip.issue_s(LINEAR_CLOCKS * steps * bags.tables * bags.bags))
    runs = RUNS_S + FILLS_S + chip.issue_s(RUNS_CLOCKS * bags.ids)
    return linear + sort + runs + _update_s(call, chip) + _long_s(bags, chip)


def _update_s(call: BagsBackward, chip: Chip) -> float:
    """Return the time of the kernel in which a warp sums the gradients of a row and updates it."""
    bags = call.bags
    each, rows = size(bags.weight_dtype), bags.unique - bags.long_runs
    whole, single = STATES.get(call.optimizer, (1, 0))
    state = whole * bags.dim * 4 + single * ROW_STATE_BYTES
    gradients = (bags.tables * bags.bags if bags.pooled else bags.ids) * bags.dim * size(bags.output_dtype)
    moved = rows * (bags.dim * each + state)
    memory = UPDATE_FACTOR * (READ_COST * (moved + gradients / 2) + WRITE_COST * moved) / chip.streamed_bytes_per_s
    memory += chip.issue_s(ROUNDING_CLOCKS * rows * bags.dim) if each < 4 else 0.0
    at_once = 32 / min(32, max(8, bags.dim / 4)) * UPDATE_WARPS * chip.multiprocessors
    latency = rows / at_once * (UPDATE_S + STATE_S * (whole + min(1, single)))
    return float(START_S + min(UPDATE_START_S, latency) + (memory**4 + latency**4) ** 0.25)


def _long_s(bags: Bags, chip: Chip) -> float:
    """Return the time of the kernel in which a block sums the gradients of each long run."""
    if not bags.long_runs:
        return START_S
    longest = min(bags.longest, LONG_MOST)
    alone = LONG_S + LONG_STEP_S * longest / 32
    return START_S + max(alone, bags.long_runs * LONG_S / chip.multiprocessors)
