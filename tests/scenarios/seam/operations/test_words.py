"""Each description of an operator in words: torch's name, and shapes that a reader can check."""

from __future__ import annotations

import pytest

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward, uniform
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.normalisations import Softmax
from scenarios.seam.operations.operation import Operation, about, words
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous
from scenarios.seam.operations.products import Product, linear
from scenarios.seam.operations.reductions import Reduction

BAGS = uniform(tables=26, rows=100_000, dim=128, bags=8192, length=6)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (linear(8192, 479, 1024, "float32", element_bytes=4), ("linear", "8192x479 x 1024, float32")),
        (
            Product(rows=479, columns=1024, inner=8192, dtype="tf32", left_is_transposed=True),
            ("mm", "479x8192^T x 1024, tf32"),
        ),
        (
            Product(batch=64, rows=27, columns=27, inner=128, dtype="bfloat16", right_is_transposed=True),
            ("bmm", "64 of 27x128 x 27^T, bfloat16"),
        ),
        (
            Attention(batch=16, heads=12, key_heads=4, queries=1024, keys=1024, head_size=64, dtype="bfloat16"),
            ("scaled_dot_product_attention", "16x12x1024x64 on 4x1024, bfloat16"),
        ),
        (
            Convolution(
                batch=256,
                in_channels=3,
                out_channels=64,
                size=(224, 224),
                out_size=(112, 112),
                kernel=(7, 7),
                stride=(2, 2),
                dtype="float16",
                is_channels_last=True,
                makes="weight_gradient",
            ),
            ("convolution_backward, weight gradient", "256x3x224x224 to 64x7x7, stride 2x2, float16, channels last"),
        ),
        (contiguous("relu", 1024, "float32"), ("relu", "1024, float32")),
        (
            Pointwise(
                name="add",
                elements=1024,
                inputs=(Operand(dtype="float32", elements=1024), Operand(dtype="float32", elements=32)),
                outputs=(Operand(dtype="bfloat16", elements=1024),),
                dims=2,
            ),
            ("add", "1024 with 32, float32 to bfloat16, 2 dimensions"),
        ),
        (
            Reduction(name="sum", dtype="float32", outer=1, reduced=8192, inner=256),
            ("sum", "1x8192x256 over 8192, float32"),
        ),
        (
            Softmax(rows=64, dim=512, dtype="float32", is_log=True, backward=True),
            ("_log_softmax_backward_data", "64x512, float32"),
        ),
        (
            Foreach(name="_fused_adam_", dtype="float32", numels=(10, 20), lists=4, read=4, written=3),
            ("_fused_adam_", "30 in 2 tensors, float32"),
        ),
        (
            BagsForward(bags=BAGS),
            ("table-batched embeddings", "26 tables of 100000x128, 1.3M ids in 8192 bags each, float32"),
        ),
        (
            BagsBackward(bags=BAGS, optimizer="sgd"),
            (
                "table-batched embeddings backward, sgd",
                "26 tables of 100000x128, 1.3M ids in 8192 bags each, float32",
            ),
        ),
    ],
)
def test_an_operator_has_torch_s_name_and_its_shapes(operation: Operation, expected: tuple[str, str]) -> None:
    assert words(operation) == expected


def test_ids_that_differ_a_little_are_no_other_shapes() -> None:
    assert [about(ids) for ids in (999, 13_312, 1_291_459, 1_291_342)] == ["999", "13k", "1.3M", "1.3M"]
