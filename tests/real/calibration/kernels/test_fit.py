"""The fit finds what made the times, through noise, and says how far off it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from real.calibration.kernels.fit import TimedKernel, fit, observe, predicted_s
from real.calibration.kernels.probes import WARM_UP, probe_label
from scenarios.config.gpu import Gpu
from scenarios.seam.trace import Span
from tests.lanes import examples
from tests.small import CORE

# flop and bytes: products by size and by shape, and what moves memory only.
_PRODUCTS = [
    (2.0 * rows**2 * depth, 4.0 * (rows**2 + 2 * rows * depth)) for rows in (8, 64, 512) for depth in (1, 64, 512)
]
_MOVES = [(0.0, 10.0**power) for power in range(2, 9)]


def time(gpu: Gpu, kind: str, flops: float, moved_bytes: float, **changes: object) -> TimedKernel:
    blank = TimedKernel(
        kind=kind,
        label=f"{kind} {flops} {moved_bytes}",
        dtype="float32",
        launches=1,
        flops=flops,
        moved_bytes=moved_bytes,
        median_s=1.0,
    )
    whole = dataclasses.replace(blank, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(whole, median_s=predicted_s(whole, gpu))


def machine_times(gpu: Gpu) -> list[TimedKernel]:
    products = [time(gpu, "gemm", *sizes, launches=launches) for sizes in _PRODUCTS for launches in (1, 3)]
    return products + [time(gpu, kind, *sizes) for kind in ("permute", "qr") for sizes in _MOVES]


def gpu_like(memory: float, ridge: float, shares: tuple[float, float, float], launches: tuple[int, int, int]) -> Gpu:
    kinds = ("gemm", "permute", "qr")
    return dataclasses.replace(
        CORE,
        memory_bytes_per_s=memory,
        flops_per_s={"float32": memory * ridge},
        efficiency=dict(zip(kinds, shares, strict=True)),
        launches_ns=dict(zip(kinds, launches, strict=True)),
    )


_SHARE = st.floats(0.05, 1.0)
_LAUNCH = st.integers(1_000, 200_000)
MACHINES = st.builds(
    gpu_like,
    st.floats(1e9, 3e12),
    st.floats(2.0, 100.0),
    st.tuples(_SHARE, _SHARE, _SHARE),
    st.tuples(_LAUNCH, _LAUNCH, _LAUNCH),
)


@examples(25)
@given(MACHINES)
def test_fit_recovers_a_machine_that_obeys_the_model(gpu: Gpu) -> None:
    times = machine_times(gpu)
    fitted = fit(times, CORE).gpu
    for each in times:
        assert predicted_s(each, fitted) == pytest.approx(each.median_s, rel=0.03), each.label
    assert max(fitted.efficiency.values()) == 1.0


def test_fit_is_robust_to_a_disturbed_kernel() -> None:
    gpu = gpu_like(1e10, 10.0, (0.5, 0.9, 0.1), (40_000, 10_000, 20_000))
    times = machine_times(gpu)
    disturbed = [
        dataclasses.replace(each, median_s=8 * each.median_s) if each.kind == "permute" and index == 21 else each
        for index, each in enumerate(times)
    ]
    assert times[21].kind == "permute"
    fitted = fit(disturbed, CORE)
    errors = [abs(predicted_s(each, fitted.gpu) / each.median_s - 1) for each in times if each is not times[21]]
    assert np.median(errors) < 0.01
    assert max(errors) < 0.15
    (group,) = [group for group in fitted.groups if group.name == "permute kernels"]
    assert group.worst_error == pytest.approx(1 / 8 - 1, abs=0.05)
    assert abs(group.median_error) <= group.typical_error < 0.1
    assert (group.least_bytes, group.most_bytes) == (100, 10**8)


def test_spread_is_the_long_kernels_and_the_mean_is_predicted() -> None:
    gpu = gpu_like(1e10, 10.0, (0.5, 1.0, 0.1), (40_000, 10_000, 20_000))
    often = (0.9,) * 30 + (1.0,) * 40 + (1.5,) * 30
    times = [
        dataclasses.replace(each, repeats=often if each.median_s > 1e-4 else (0.1, 1.0, 10.0))
        for each in machine_times(gpu)
    ]
    fitted = fit(times, CORE).gpu
    mean = 0.3 * 0.9 + 0.4 * 1.0 + 0.3 * 1.5
    assert fitted.spread[0] == pytest.approx(0.9 / mean, rel=0.03)
    assert fitted.spread[-1] == pytest.approx(1.5 / mean, rel=0.03)
    for each in times:
        assert predicted_s(each, fitted) == pytest.approx(mean * each.median_s, rel=0.06), each.label


def test_other_dtypes_get_the_peak_that_their_products_show() -> None:
    gpu = gpu_like(1e10, 10.0, (0.5, 1.0, 0.1), (40_000, 10_000, 20_000))
    gpu = dataclasses.replace(gpu, flops_per_s={**gpu.flops_per_s, "float64": 3e10})
    times = [*machine_times(gpu), time(gpu, "gemm", 2.0 * 512**3, 6e6, dtype="float64")]
    assert fit(times, CORE).gpu.flops_per_s["float64"] == pytest.approx(3e10, rel=0.01)


def test_too_few_kernels_of_a_kind_are_refused_with_a_sentence() -> None:
    gpu = gpu_like(1e10, 10.0, (0.5, 1.0, 0.1), (40_000, 10_000, 20_000))
    times = machine_times(gpu)
    with pytest.raises(ValueError, match=r"^0 gemm kernels of float32: expected 3 or more$"):
        fit([each for each in times if each.kind != "gemm"], CORE)
    with pytest.raises(ValueError, match=r"^2 qr kernels of float32: expected 3 or more$"):
        fit(times[:-5], CORE)


def span(label: str, step: int, duration_ns: int, kind: str = "compute") -> Span:
    times = {"issued_ns": 5, "start_ns": 10, "end_ns": 10 + duration_ns, "wait_from_ns": -1, "wait_until_ns": -1}
    place = {"rank": 0, "host": 0, "stream": "main", "sequence": 0, "group": "", "call": -1}
    costs = {"kernel": "qr", "dtype": "float32", "flops": 3.0, "bytes_read": 4.0, "bytes_written": 5.0}
    return Span(step=step, kind=kind, label=label, **place, **times, **costs)  # type: ignore[arg-type]


def test_a_kernel_is_observed_as_the_median_of_its_repeats_without_warm_up() -> None:
    label = probe_label("batched", "orthogonalise", 7)
    times = [(step, 10**9) for step in range(WARM_UP)]
    times += [(WARM_UP + index, duration) for index, duration in enumerate([1000, 1100, 1200, 1300, 9000])]
    spans = [span(label, step, duration) for step, duration in times]
    spans += [span("loss", WARM_UP, 77), span(label, WARM_UP, 77, kind="all_reduce")]
    (seen,) = observe([spans])
    assert (seen.kind, seen.launches, seen.flops, seen.moved_bytes) == ("qr", 7, 3.0, 9.0)
    assert seen.median_s == pytest.approx(1200e-9)
    assert seen.repeats == pytest.approx([1000 / 1200, 1100 / 1200, 1, 1300 / 1200, 9000 / 1200])
