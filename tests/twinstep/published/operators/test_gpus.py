"""What rows that name their GPU say: products, attention and float32 operators."""

from __future__ import annotations

import pytest

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.normalisations import RowNorm, Softmax
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import Product, linear
from sim.operators.measuring import NEUSIGHT_S
from twinstep.published.operators.described import NotDescribedError
from twinstep.published.operators.gpus import describe, describe_float32


def row(op: str, shape: str, dtype: str = "bf16") -> dict[str, str]:
    return {"op": op, "dtype": dtype, "shape": shape}


def float32(op: str, *sizes: int) -> dict[str, str]:
    names = "BMNK" if len(sizes) == 4 else "BH"
    return {"op": op} | dict.fromkeys("BMNKH", "") | dict(zip(names, map(str, sizes), strict=True))


def attention(heads: int, **others: object) -> Attention:
    return Attention(
        **{"batch": 2, "heads": heads, "queries": 512, "keys": 512, "head_size": 128, "dtype": "bfloat16"},  # type: ignore[arg-type]
        **{"key_heads": heads, **others},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("op", "shape", "family", "operation"),
    [
        (
            "linear without bias: (m,k) x (n,k)^T",
            "m256 n128 k64",
            "linear bfloat16",
            linear(256, 64, 128, "bfloat16", element_bytes=2),
        ),
        (
            "causal self-attention of a prefill (TensorRT-LLM), paged KV written",
            "B2 S512 heads32 kv8 dim128 window64",
            "prefill",
            attention(32, key_heads=8, window=64, is_causal=True, is_serving=True),
        ),
        ("self-attention of an encoder", "B2 S512 heads32 dim128", "encoder", attention(32, is_serving=True)),
        (
            "HSTU attention backward, causal, CUTLASS",
            "B2 S512 heads4 dim128",
            "HSTU attention backward",
            attention(4, is_causal=True, is_backward=True),
        ),
        ("gelu", "n4096", "elementwise", contiguous("gelu", 4096, "bfloat16")),
    ],
)
def test_a_row_is_one_call_with_warm_caches(op: str, shape: str, family: str, operation: object) -> None:
    found = describe(row(op, shape))
    assert (found.family, found.operations) == (family, (operation,))
    assert (found.beside_s, found.is_cold) == (0.0, False)


@pytest.mark.parametrize(
    ("cells", "family", "operation"),
    [
        (float32("linear", 1, 64, 32, 16), "linear float32", linear(64, 16, 32, "float32", element_bytes=4)),
        (
            float32("bmm", 8, 64, 32, 16),
            "bmm float32",
            Product(batch=8, rows=64, columns=32, inner=16, dtype="float32"),
        ),
        (float32("addu", 64, 32), "elementwise", contiguous("add", 2048, "float32")),
        (float32("add", 64, 32), "elementwise", contiguous("add", 2048, "float32", inputs=2)),
        (float32("relu", 64, 32), "elementwise", contiguous("relu", 2048, "float32")),
        (float32("softmax", 64, 32), "softmax", Softmax(rows=64, dim=32, dtype="float32", is_staged=False)),
        (float32("ln", 64, 32), "layer_norm", RowNorm(rows=64, dim=32, dtype="float32")),
    ],
)
def test_a_float32_row_is_one_call_and_its_launch(cells: dict[str, str], family: str, operation: object) -> None:
    found = describe_float32(cells)
    assert (found.family, found.operations, found.beside_s) == (family, (operation,), NEUSIGHT_S)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row("linear", "m256 n128"), "shape 'm256 n128': no k; expected m n k, each before its number"),
        (
            row("linear", "m256 n128 k64", "int3"),
            "dtype 'int3': expected one of fp64, fp32, tf32, bf16, fp16, half, fp8, float64, float32, bfloat16,"
            " float16",
        ),
        (row("fft", "n64"), "op 'fft': no law of such rows"),
    ],
)
def test_rows_without_a_law_give_a_reason(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(NotDescribedError) as caught:
        describe(cells)
    assert str(caught.value) == reason


def test_a_float32_operator_without_its_sizes_is_a_reason() -> None:
    with pytest.raises(NotDescribedError, match="M = '': expected a whole number from 1 on"):
        describe_float32(float32("bmm", 8, 64))
    with pytest.raises(NotDescribedError, match="op 'fft': no law of such rows"):
        describe_float32(float32("fft", 8, 64))
