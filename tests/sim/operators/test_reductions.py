from __future__ import annotations

from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from sim.operators.chip import chip_of
from sim.operators.laws import seconds
from sim.operators.reductions import pool_seconds
from tests.sim.operators.rows import H200, MEASURING_US, mean_error, on_every_gpu


def whole(elements: int) -> Reduction:
    return Reduction(name="sum", dtype="float32", outer=1, reduced=elements, inner=1)


def over_rows(rows: int, columns: int, dtype: str = "float32") -> Reduction:
    return Reduction(name="sum", dtype=dtype, outer=1, reduced=rows, inner=columns)


# One H200, torch 2.11, 2026-11-26: single operators between events, us.
OPERATORS = [(whole(4096), 5.216), (whole(65536), 18.24), (whole(16777216), 30.304)]
# The same machine: kernels in steps (bias gradients of DLRMs, GPT-2 and linear layers), the memset of flags included.
KERNELS = [
    (whole(8192), 2.62),
    (over_rows(8192, 1024), 23.5),
    (over_rows(8192, 512), 19.4),
    (over_rows(8192, 256), 17.4),
    (over_rows(8192, 128), 16.3),
    (over_rows(16384, 768, "bfloat16"), 33.2),
    (over_rows(16384, 3072, "bfloat16"), 47.5),
    (over_rows(16384, 2304, "bfloat16"), 38.7),
    (over_rows(256, 256), 5.76),
    (over_rows(8192, 4096), 50.6),
    (over_rows(16, 1024 * 768), 18.5),
]
QRS = [
    (Qr(rows=2048, columns=1), 58.88),
    (Qr(rows=2048, columns=4), 64.096),
    (Qr(rows=4096, columns=4), 72.448),
]


def test_operators_of_an_h200_are_within_8_percent() -> None:
    assert mean_error(seconds, OPERATORS, H200, MEASURING_US) < 0.08


def test_kernels_in_steps_of_an_h200_are_within_10_percent() -> None:
    assert mean_error(seconds, KERNELS, H200) < 0.10


def test_tall_panels_are_within_2_percent() -> None:
    assert mean_error(seconds, QRS, H200, MEASURING_US) < 0.02


@on_every_gpu
def test_no_reduction_is_quicker_than_memory(on: Gpu) -> None:
    for call in (whole(1 << 28), over_rows(1 << 14, 1 << 14), over_rows(1 << 8, 1 << 20)):
        assert seconds(call, on) > call.reduced * call.inner * 4 / on.memory_bytes_per_s


@on_every_gpu
def test_large_reductions_take_longer_for_more(on: Gpu) -> None:
    """Small ones need not: more elements are divided among more blocks."""
    for make in (whole, lambda n: over_rows(n // 128, 128), lambda n: over_rows(1024, n // 1024)):
        times = [seconds(make(8**power), on) for power in range(8, 11)]
        assert times == sorted(times)
    panels = [seconds(Qr(rows=4096, columns=1 << power), on) for power in range(8)]
    assert panels == sorted(panels)


def test_many_long_rows_are_bound_by_memory() -> None:
    call = Reduction(name="sum", dtype="float32", outer=1 << 16, reduced=1 << 12, inner=1)
    twice = replace(H200, memory_bytes_per_s=2 * H200.memory_bytes_per_s)
    assert seconds(call, twice) < 0.7 * seconds(call, H200)


@on_every_gpu
def test_larger_windows_and_backward_take_longer(on: Gpu) -> None:
    call = Pool(dtype="float16", inputs=1 << 26, outputs=1 << 24, window=9, with_indices=True)
    assert pool_seconds(call, chip_of(on)) < pool_seconds(replace(call, backward=True), chip_of(on))
    assert pool_seconds(call, chip_of(on)) <= pool_seconds(replace(call, window=49), chip_of(on))
    assert pool_seconds(replace(call, with_indices=False), chip_of(on)) <= pool_seconds(call, chip_of(on))
