from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort
from sim.operators.chip import chip_of
from sim.operators.laws import seconds
from sim.operators.sorting import radix_s
from tests.sim.operators.rows import GAP_US, H200, MEASURING_US, mean_error, on_every_gpu

# One H200, fbgemm_gpu 1.6.0, 2026-11-26: operators between events, us; tables x samples, ids a bag.
SCANS = [(Scan(elements=26 * 8192), 11.1), (Scan(elements=8 * 4096), 9.79)]
PERMUTES = [
    (PermuteSparse(bags=26 * 8192, ids=26 * 8192), 57.0),
    (PermuteSparse(bags=26 * 8192, ids=26 * 8192 * 10), 64.8),
    (PermuteSparse(bags=8 * 4096, ids=8 * 4096 * 10), 28.1),
]
BUCKETIZES = [
    (BucketizeSparse(bags=26 * 8192, ids=26 * 8192), 79.6),
    (BucketizeSparse(bags=26 * 8192, ids=26 * 8192 * 10), 206.8),
    (BucketizeSparse(bags=8 * 4096, ids=8 * 4096 * 10), 45.2),
]
POOLED = [
    (PermutePooled(size_bytes=26 * 8192 * 128 * 4), 94.8),
    (PermutePooled(size_bytes=8 * 4096 * 128 * 4), 50.3),
]
# The same machine: kernels of sorts in backward passes, memsets included: ids, bits, us.
SORTS = [
    (16384, 64, 71.0),
    (212992, 25, 50.5),
    (327680, 23, 42.5),
    (1638400, 23, 88.5),
    (351, 64, 5.8),
]


def test_operators_of_an_h200_are_within_12_percent() -> None:
    assert mean_error(seconds, SCANS, H200, MEASURING_US + GAP_US) < 0.08
    assert mean_error(seconds, PERMUTES, H200, MEASURING_US + 7 * GAP_US) < 0.12
    assert mean_error(seconds, BUCKETIZES, H200, MEASURING_US + 7 * GAP_US) < 0.12
    assert mean_error(seconds, POOLED, H200, MEASURING_US + GAP_US) < 0.08


def test_sorts_in_backward_passes_of_an_h200_are_within_8_percent() -> None:
    errors = [radix_s(keys, bits, chip_of(H200)) * 1e6 / measured - 1 for keys, bits, measured in SORTS]
    assert fmean(map(abs, errors)) < 0.08


@on_every_gpu
def test_more_keys_bits_and_bags_never_take_less(on: Gpu) -> None:
    keys = [1 << power for power in range(0, 26, 3)]
    for times in (
        [seconds(Sort(elements=each), on) for each in keys],
        [seconds(Scan(elements=each), on) for each in keys],
        [seconds(PermuteSparse(bags=each, ids=each), on) for each in keys],
        [seconds(BucketizeSparse(bags=each, ids=each, buckets=8), on) for each in keys],
        [radix_s(1 << 20, bits, chip_of(on)) for bits in range(1, 65)],
    ):
        assert times == sorted(times)
    call = BucketizeSparse(bags=1 << 15, ids=1 << 18)
    assert seconds(replace(call, buckets=64), on) > seconds(call, on)
