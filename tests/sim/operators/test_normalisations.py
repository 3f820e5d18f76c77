from __future__ import annotations

from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from sim.operators.laws import seconds
from tests.sim.operators.rows import (
    A100_PCIE,
    FP32_MEASURING_US,
    H200,
    MEASURING_US,
    V100_PCIE,
    mean_error,
    on_every_gpu,
)


def softmax(rows: int, dim: int, dtype: str = "float32") -> Softmax:
    return Softmax(rows=rows, dim=dim, dtype=dtype)


def norm(rows: int, dim: int, dtype: str = "float32") -> RowNorm:
    return RowNorm(rows=rows, dim=dim, dtype=dtype)


def cross_entropy(call: NllLoss, gpu: Gpu) -> float:
    rows = Softmax(rows=call.rows, dim=call.classes, dtype=call.dtype, is_log=True)
    return seconds(rows, gpu) + seconds(call, gpu)


# One H200, torch 2.11, 2026-11-26: single operators between events, us.
SOFTMAXES = [
    (softmax(16384, 768), 31.072),
    (softmax(16384, 768, "bfloat16"), 30.304),
    (softmax(8192, 1024), 23.232),
    (softmax(8192, 1024, "bfloat16"), 21.632),
]
NORMS = [
    (norm(16384, 768), 52.064),
    (norm(16384, 768, "bfloat16"), 38.88),
    (norm(8192, 2048, "bfloat16"), 35.776),
]
CROSS_ENTROPIES = [
    (NllLoss(rows=16384, classes=50304, dtype="bfloat16"), 1140.192),
    (NllLoss(rows=8192, classes=32000, dtype="float32"), 859.872),
    (NllLoss(rows=8192, classes=32000, dtype="bfloat16"), 512.48),
]
# The same machine: kernels in steps of GPT-2, us.
SOFTMAX_KERNELS = [
    (Softmax(rows=16384, dim=50304, dtype="bfloat16", is_log=True), 1112.9),
    (Softmax(rows=4096, dim=50304, dtype="float32", is_log=True), 797.1),
    (Softmax(rows=16384, dim=50304, dtype="bfloat16", is_log=True, backward=True), 1508.0),
    (Softmax(rows=4096, dim=50304, dtype="float32", is_log=True, backward=True), 873.1),
]
NORM_KERNELS = [
    (norm(16384, 768), 48.8),
    (RowNorm(rows=16384, dim=768, dtype="float32", backward=True, weights=0), 41.1),
    (RowNorm(rows=16384, dim=768, dtype="float32", backward=True), 120.5),
]
LOSS_KERNELS = [(NllLoss(rows=16384, classes=50304, dtype="float32"), 20.2)]


def old(rows: int, dim: int) -> Softmax:
    """As in torch 2.0."""
    return Softmax(rows=rows, dim=dim, dtype="float32", is_staged=False)


# fp32 operators of an A100 PCIe 40 GB and a V100 PCIe (NeuSight's labels), us.
A100_SOFTMAXES = [
    (old(8192, 768), 57.6),
    (old(32768, 1024), 217.6),
    (old(65536, 1600), 903.4),
    (old(32768, 2048), 441.9),
    (old(32768, 2560), 649.0),
    (old(65536, 4096), 1692.0),
    (old(32768, 5120), 1086.9),
    (old(65536, 6400), 2605.5),
    (old(65536, 8192), 3427.3),
    (old(65536, 10240), 5331.2),
    (old(131072, 12288), 14846.9),
    (old(131072, 16384), 24349.3),
]
V100_SOFTMAXES = [
    (old(8192, 768), 89.0),
    (old(32768, 1280), 555.5),
    (old(49152, 2048), 1267.3),
    (old(131072, 3072), 5716.0),
    (old(65536, 4096), 3127.4),
    (old(32768, 6400), 3601.5),
    (old(131072, 8192), 21410.6),
    (old(32768, 16384), 11024.0),
]
A100_NORMS = [
    (norm(8192, 1280), 98.8),
    (norm(16384, 1024), 132.6),
    (norm(32768, 768), 194.1),
    (norm(32768, 1600), 388.6),
    (norm(16384, 3072), 386.5),
    (norm(65536, 2048), 832.7),
    (norm(65536, 4096), 2239.9),
    (norm(32768, 8192), 2366.7),
    (norm(131072, 16384), 18778.0),
]
V100_NORMS = [
    (norm(8192, 768), 113.3),
    (norm(32768, 768), 338.5),
    (norm(20480, 1024), 309.1),
    (norm(65536, 1280), 1194.8),
    (norm(32768, 3072), 1513.0),
    (norm(131072, 2048), 3948.3),
    (norm(131072, 12288), 23726.9),
]


def test_operators_of_an_h200_are_within_9_percent() -> None:
    assert mean_error(seconds, SOFTMAXES, H200, MEASURING_US) < 0.06
    assert mean_error(seconds, NORMS, H200, MEASURING_US) < 0.08
    assert mean_error(cross_entropy, CROSS_ENTROPIES, H200, MEASURING_US) < 0.09


def test_kernels_in_steps_of_an_h200_are_within_10_percent() -> None:
    assert mean_error(seconds, SOFTMAX_KERNELS, H200) < 0.10
    assert mean_error(seconds, NORM_KERNELS, H200) < 0.08
    assert mean_error(seconds, LOSS_KERNELS, H200) < 0.05


def test_gpus_whose_levels_nobody_fitted_are_within_15_percent() -> None:
    assert mean_error(seconds, A100_SOFTMAXES, A100_PCIE, FP32_MEASURING_US) < 0.15
    assert mean_error(seconds, V100_SOFTMAXES, V100_PCIE, FP32_MEASURING_US) < 0.15
    assert mean_error(seconds, A100_NORMS, A100_PCIE, FP32_MEASURING_US) < 0.12
    assert mean_error(seconds, V100_NORMS, V100_PCIE, FP32_MEASURING_US) < 0.15


@on_every_gpu
def test_more_rows_never_take_less(on: Gpu) -> None:
    counts = [1 << power for power in range(0, 20, 3)]
    for dim in (13, 768, 1024, 1600, 4096, 50304):
        for backward in (False, True):
            both = replace(softmax(1, dim), backward=backward), replace(norm(1, dim), backward=backward)
            assert _is_sorted([seconds(replace(both[0], rows=rows), on) for rows in counts])
            assert _is_sorted([seconds(replace(both[1], rows=rows), on) for rows in counts[:5]])
    losses = [NllLoss(rows=rows, classes=100, dtype="float32", backward=True) for rows in counts]
    assert _is_sorted([seconds(loss, on) for loss in losses])


@on_every_gpu
def test_backward_and_training_take_longer(on: Gpu) -> None:
    call = BatchNorm(elements=1 << 26, channels=256, dtype="bfloat16")
    inference = seconds(replace(call, training=False), on)
    assert inference < seconds(call, on) < seconds(replace(call, backward=True), on)
    for rows, dim in ((4096, 1024), (4096, 8192)):
        assert seconds(norm(rows, dim), on) < seconds(replace(norm(rows, dim), backward=True), on)


def _is_sorted(times: list[float]) -> bool:
    return times == sorted(times)
