"""The law of matrix products: more work, worse alignment, more multiprocessors, and boards of little power."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.products import Product, Recurrence, alignment, linear, linear_weight_gradient
from sim.operators.laws import seconds
from tests.sim.operators.rows import A100_SXM, DATA, H200, PUBLISHED, gpu_of, mean_error, rows
from twinstep.published.operators.predict import predict

SIZE = {"float32": 4, "tf32": 4, "bfloat16": 2}
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


def test_boards_of_little_power_do_not_keep_the_clock_of_their_data_sheet() -> None:
    """NVIDIA's forum: a T4 reaches 24 of its 65 TFLOP/s in products of 4096 (forums.developer.nvidia.com/t/264462)."""
    t4 = Gpu(
        name="T4",
        kind="cuda",
        memory_bytes=16 << 30,
        memory_bytes_per_s=320e9,
        l2_bytes=4 << 20,
        compute_capability=75,
        multiprocessors=40,
        flops_per_s={"float32": 8.1e12, "float16": 65e12},
    )
    reached = 2 * 4096**3 / seconds(linear(4096, 4096, 4096, "float16", element_bytes=2), t4)
    assert reached == pytest.approx(24e12, rel=0.15)


# TFLOP/s that torch.mm of squares of 4,096, 8,192 and 10,240 sustains, 30 in a row without a pause, with torch 2.7 to
# 2.11: github.com/zzc0721/torch-performance-test-data, issues 120, 185, 108, 95 and 140.
SQUARES = rows(DATA / "kernels" / "board_power.csv")


@pytest.mark.parametrize("row", SQUARES, ids=lambda row: f"{row['profile']} {row['dtype']}")
def test_squares_reach_what_the_board_s_power_allows(row: dict[str, str]) -> None:
    squares = [Product(rows=n, columns=n, inner=n, dtype=row["dtype"]) for n in (4096, 8192, 10240)]
    measured_s = [each.flops / float(row[f"tflops_{each.rows}"]) / 1e12 for each in squares]
    law_s = [seconds(each, gpu_of(row["profile"])) for each in squares]
    assert mean_error(zip(law_s, measured_s, strict=True)) < 0.14


def test_only_boards_that_are_short_of_power_slow_down() -> None:
    square = Product(rows=8192, columns=8192, inner=8192, dtype="bfloat16")
    for profile in ("l4_pcie", "h100_pcie", "dgx_h100", "dgx_a100", "a40_pcie"):
        gpu = gpu_of(profile)
        is_slowed = seconds(square, gpu) > seconds(square, dataclasses.replace(gpu, watts=2000.0))
        assert is_slowed == (profile in ("l4_pcie", "h100_pcie"))


def test_batched_tiles_of_an_a100_have_128_rows() -> None:
    few, many = (Product(batch=512, rows=rows, columns=1024, inner=1024, dtype="float32") for rows in (64, 128))
    assert seconds(few, gpu_of("a100_pcie_40gb")) > 0.9 * seconds(many, gpu_of("a100_pcie_40gb"))
    assert seconds(few, H200) < 0.7 * seconds(many, H200)


@pytest.mark.parametrize(
    ("kernels", "forward", "backward"), [("standard", 0.155, 0.15), ("small", 0.41, 0.23)], ids=["standard", "small"]
)
def test_recurrent_layers_are_as_far_off_as_the_law_says(kernels: str, forward: float, backward: float) -> None:
    found = rows(PUBLISHED / "recurrent.csv")
    for is_backward, most in ((False, forward), (True, backward)):
        own = [
            row
            for row in found
            if row["op"].endswith(f"{kernels} kernels") and ("backward" in row["op"]) == is_backward
        ]
        pairs = [(predict("gpus", row).law_us, float(row["value_us"])) for row in own]
        assert len(pairs) >= 50
        assert mean_error(pairs) < most


def test_a_recurrent_layer_of_one_sample_stays_on_tensor_cores() -> None:
    one, two = (
        Recurrence(cell="lstm", steps=100, batch=batch, hidden=512, state=512, dtype="tf32") for batch in (1, 2)
    )
    assert seconds(one, A100_SXM) == pytest.approx(seconds(two, A100_SXM), rel=0.02)
