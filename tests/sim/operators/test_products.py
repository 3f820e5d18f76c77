"""The law of matrix products: what more work, worse alignment and more multiprocessors do, and measured rows."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.products import (
    Product,
    alignment,
    linear,
    linear_input_gradient,
    linear_weight_gradient,
)
from sim.operators.laws import seconds
from sim.operators.measuring import EVENTS_S, NEUSIGHT_S
from tests.sim.operators.measured import SYSTEMS, gpu_of, mean_error, rows, system

BUILD = {"linear": linear, "grad_input": linear_input_gradient, "grad_weight": linear_weight_gradient}
SIZE = {"float32": 4, "tf32": 4, "bfloat16": 2}
H200 = gpu_of("hgx_h200")
SIZES = st.integers(1, 5000)
DTYPES = st.sampled_from(["float32", "tf32", "bfloat16", "float16", "float64"])


@given(rows=SIZES, columns=SIZES, inner=SIZES, dtype=DTYPES)
def test_twice_the_batch_never_takes_less_time(rows: int, columns: int, inner: int, dtype: str) -> None:
    one = Product(rows=rows, columns=columns, inner=inner, dtype=dtype)
    assert seconds(dataclasses.replace(one, batch=2), H200) >= seconds(one, H200) > 0


@given(rows=SIZES, columns=SIZES, inner=SIZES, dtype=DTYPES)
def test_more_multiprocessors_at_the_same_clock_never_take_longer(
    rows: int, columns: int, inner: int, dtype: str
) -> None:
    flops = {name: 2 * rate for name, rate in H200.flops_per_s.items()}
    double = dataclasses.replace(H200, multiprocessors=264, flops_per_s=flops, l2_bytes_per_s=18e12)
    product = Product(rows=rows, columns=columns, inner=inner, dtype=dtype)
    assert seconds(product, double) <= seconds(product, H200) * 1.0001


@given(rows=SIZES, columns=SIZES, inner=SIZES, dtype=st.sampled_from(["bfloat16", "tf32"]))
def test_misaligned_operands_are_never_quicker(rows: int, columns: int, inner: int, dtype: str) -> None:
    aligned = Product(rows=rows, columns=columns, inner=inner, dtype=dtype)
    odd = dataclasses.replace(aligned, left_alignment=SIZE[dtype])
    assert seconds(odd, H200) >= seconds(aligned, H200)


@given(rows=SIZES, columns=SIZES, inner=SIZES, dtype=DTYPES)
def test_empty_caches_never_help(rows: int, columns: int, inner: int, dtype: str) -> None:
    product = Product(rows=rows, columns=columns, inner=inner, dtype=dtype)
    assert seconds(product, H200, is_cold=True) >= seconds(product, H200)


def test_an_empty_product_takes_no_time() -> None:
    assert seconds(Product(rows=0, columns=4, inner=4, dtype="float32"), H200) == 0


def test_dot_interaction_of_479_columns_runs_unaligned() -> None:
    odd = linear(8192, 479, 1024, "bfloat16", element_bytes=2)
    padded = linear(8192, 480, 1024, "bfloat16", element_bytes=2)
    assert (odd.left_alignment, padded.left_alignment) == (2, 16)
    assert seconds(odd, H200) > 3 * seconds(padded, H200)


def test_a_result_that_is_not_aligned_runs_older_kernels_on_tensor_cores_alone() -> None:
    for dtype, size, slower in (("bfloat16", 2, 1.3), ("float32", 4, 1.0)):
        odd, padded = (linear(16384, 768, words, dtype, element_bytes=size) for words in (50257, 50264))
        assert seconds(odd, H200) >= slower * 0.99 * seconds(padded, H200)


def test_the_gradient_of_a_last_layer_of_one_column_is_not_split() -> None:
    """rec_base on an H200: 108 us for a weight of [1, 256] and 8,192 rows."""
    gradient = linear_weight_gradient(8192, 256, 1, "float32", element_bytes=4)
    assert seconds(gradient, H200) == pytest.approx(108e-6, rel=0.05)


def test_eight_bits_have_twice_the_rate_from_ada_on() -> None:
    whole = linear(8192, 8192, 8192, "bfloat16", element_bytes=2)
    half = dataclasses.replace(whole, dtype="float8_e4m3fn")
    assert seconds(half, H200) < 0.65 * seconds(whole, H200)


@pytest.mark.parametrize(("contiguous", "element_bytes", "expected"), [(479, 2, 2), (6, 2, 4), (64, 4, 16), (13, 4, 4)])
def test_alignment_is_the_greatest_power_of_two_up_to_16_bytes(
    contiguous: int, element_bytes: int, expected: int
) -> None:
    assert alignment(contiguous, element_bytes) == expected


def test_linears_meet_the_wheels_rows_on_every_gpu_with_one_set_of_constants() -> None:
    for name in SYSTEMS:
        errors = mean_error(
            (seconds(_linear(row), system(name)), float(row["us"]) * 1e-6)
            for row in rows("wheel_linear")
            if row["gpu"] == name
        )
        assert errors < 0.13, (name, errors)


def test_products_meet_the_measured_rows_of_an_h200() -> None:
    measured = [row for row in rows("h200_products") if row["kind"] in BUILD or row["kind"] == "bmm_interaction"]
    for dtype in SIZE:
        pairs = [
            (seconds(_of(row), H200, is_cold=True) + EVENTS_S, float(row["us"]) * 1e-6)
            for row in measured
            if _of(row).dtype == dtype
        ]
        assert mean_error(pairs) < {"float32": 0.04, "tf32": 0.08, "bfloat16": 0.06}[dtype], dtype


def test_float32_products_meet_the_measured_rows_of_three_gpus() -> None:
    v100 = gpu_of("v100_tcp_10g")
    gpus = {
        "Tesla V100-PCIE-32GB": dataclasses.replace(v100, flops_per_s={"float32": 14e12}),
        "NVIDIA A100-PCIE-40GB": gpu_of("a100_pcie_40gb"),
        "NVIDIA H100 80GB HBM3": gpu_of("dgx_h100"),
    }
    for name, gpu in gpus.items():
        pairs = [
            (seconds(_float32(row), gpu) + NEUSIGHT_S, float(row["us"]) * 1e-6)
            for row in rows("fp32_products")
            if row["gpu"] == name
        ]
        assert mean_error(pairs) < 0.12, name


def test_boards_of_little_power_do_not_keep_the_clock_of_their_data_sheet() -> None:
    """NVIDIA's forum: a T4 reaches 24 of its 65 TFLOP/s in products of 4096 (forums.developer.nvidia.com/t/264462)."""
    t4 = _board(75, 40, {"float32": 8.1e12, "float16": 65e12}, 320e9)
    reached = 2 * 4096**3 / seconds(linear(4096, 4096, 4096, "float16", element_bytes=2), t4)
    assert reached == pytest.approx(24e12, rel=0.15)


def _board(capability: int, multiprocessors: int, flops_per_s: dict[str, float], memory_bytes_per_s: float) -> Gpu:
    return Gpu(
        name="board",
        kind="cuda",
        memory_bytes=16 << 30,
        memory_bytes_per_s=memory_bytes_per_s,
        l2_bytes=4 << 20,
        compute_capability=capability,
        multiprocessors=multiprocessors,
        flops_per_s=flops_per_s,
    )


def _linear(row: dict[str, str]) -> Product:
    return linear(int(row["rows"]), int(row["inner"]), int(row["columns"]), "bfloat16", element_bytes=2)


def _of(row: dict[str, str]) -> Product:
    if row["kind"] == "bmm_interaction":
        batch, features, dim = map(int, row["desc"].split())
        return Product(
            batch=batch, rows=features, columns=features, inner=dim, dtype="float32", right_is_transposed=True
        )
    *sizes, dtype = row["desc"].split()
    batch, inner, columns = map(int, sizes)
    return BUILD[row["kind"]](batch, inner, columns, dtype, element_bytes=SIZE[dtype])


def _float32(row: dict[str, str]) -> Product:
    batch, many, columns, inner = (int(row[name]) for name in ("batch", "rows", "columns", "inner"))
    if row["op"] == "linear":
        return linear(many, inner, columns, "float32", element_bytes=4)
    return Product(batch=batch, rows=many, columns=columns, inner=inner, dtype="float32")


# TFLOP/s that torch.mm of squares of 4,096, 8,192 and 10,240 sustains, 30 in a row without a pause, with torch 2.7 to
# 2.11: github.com/zzc0721/torch-performance-test-data, issues 120, 185, 108, 95 and 140.
SQUARES = {
    ("l4_pcie", "float32"): (12.53, 10.66, 11.11),
    ("l4_pcie", "tf32"): (24.00, 25.69, 26.17),
    ("l4_pcie", "float16"): (53.02, 53.80, 52.47),
    ("l4_pcie", "bfloat16"): (54.91, 59.40, 56.90),
    ("a40_pcie", "float32"): (23.01, 23.73, 22.82),
    ("a40_pcie", "tf32"): (54.88, 59.52, 59.39),
    ("a40_pcie", "float16"): (113.51, 108.47, 119.18),
    ("a40_pcie", "bfloat16"): (115.16, 110.64, 122.29),
    ("a100_pcie_40gb", "float32"): (15.52, 17.56, 16.67),
    ("a100_pcie_40gb", "tf32"): (108.32, 97.32, 102.05),
    ("a100_pcie_40gb", "float16"): (241.49, 197.51, 205.66),
    ("a100_pcie_40gb", "bfloat16"): (234.14, 215.26, 211.72),
    ("h100_pcie", "float32"): (36.51, 36.95, 35.80),
    ("h100_pcie", "tf32"): (234.80, 240.43, 225.65),
    ("h100_pcie", "float16"): (457.32, 437.07, 449.65),
    ("h100_pcie", "bfloat16"): (495.93, 492.84, 471.79),
    ("dgx1_v100", "float32"): (13.85, 14.38, 14.51),
    ("dgx1_v100", "float16"): (95.73, 97.36, 89.37),
}


@pytest.mark.parametrize(("profile", "dtype"), SQUARES)
def test_squares_reach_what_the_board_s_power_allows(profile: str, dtype: str) -> None:
    gpu = gpu_of(profile)
    squares = [Product(rows=n, columns=n, inner=n, dtype=dtype) for n in (4096, 8192, 10240)]
    pairs = [
        (seconds(each, gpu), each.flops / tera / 1e12)
        for each, tera in zip(squares, SQUARES[profile, dtype], strict=True)
    ]
    assert mean_error(pairs) < 0.14


def test_only_boards_that_are_short_of_power_slow_down() -> None:
    square = Product(rows=8192, columns=8192, inner=8192, dtype="bfloat16")
    for profile, is_short in {
        "l4_pcie": True,
        "h100_pcie": True,
        "dgx_h100": False,
        "dgx_a100": False,
        "a40_pcie": False,
    }.items():
        gpu = gpu_of(profile)
        assert (seconds(square, gpu) > seconds(square, dataclasses.replace(gpu, watts=2000.0))) == is_short


def test_batched_tiles_of_an_a100_have_128_rows() -> None:
    few, many = (Product(batch=512, rows=rows, columns=1024, inner=1024, dtype="float32") for rows in (64, 128))
    assert seconds(few, gpu_of("a100_pcie_40gb")) > 0.9 * seconds(many, gpu_of("a100_pcie_40gb"))
    assert seconds(few, H200) < 0.7 * seconds(many, H200)
