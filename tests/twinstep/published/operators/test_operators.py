"""What rows of `kind` and `desc` say: calls of operators, and what lies beside them in a row."""

from __future__ import annotations

import pytest

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import NllLoss, RowNorm, Softmax
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous
from scenarios.seam.operations.products import Product, linear, linear_input_gradient, linear_weight_gradient
from scenarios.seam.operations.reductions import Qr, Reduction
from scenarios.seam.operations.rows import Index, IndexPut
from sim.operators.measuring import EVENTS_S, GAP_S, NOTHING_S
from twinstep.published.operators.described import Described, NotDescribedError
from twinstep.published.operators.operators import describe


def describe_row(kind: str, desc: str) -> Described:
    return describe({"kind": kind, "desc": desc})


@pytest.mark.parametrize(
    ("kind", "desc", "operation"),
    [
        ("linear", "8192 479 1024 tf32", linear(8192, 479, 1024, "tf32", element_bytes=4)),
        ("grad_input", "8192 13 512 bfloat16", linear_input_gradient(8192, 13, 512, "bfloat16", element_bytes=2)),
        ("grad_weight", "8192 13 512 float32", linear_weight_gradient(8192, 13, 512, "float32", element_bytes=4)),
        (
            "bmm_interaction",
            "65536 27 128",
            Product(batch=65536, rows=27, columns=27, inner=128, dtype="float32", right_is_transposed=True),
        ),
        ("add", "4096", contiguous("add", 4096, "float32", inputs=2)),
        ("add_", "4096", contiguous("add_", 4096, "float32", inputs=2)),
        ("gelu_bf16", "16 256", contiguous("gelu", 4096, "bfloat16")),
        ("relu", "4096 float16", contiguous("relu", 4096, "float16")),
        ("copy", "4096", contiguous("copy_", 4096, "float32")),
        (
            "cast",
            "64",
            Pointwise(
                name="_to_copy",
                elements=64,
                inputs=(Operand(dtype="float32", elements=64),),
                outputs=(Operand(dtype="bfloat16", elements=64),),
            ),
        ),
        ("sum", "4096", Reduction(name="sum", dtype="float32", outer=1, reduced=4096, inner=1)),
        ("layer_norm", "16 1024 768 bfloat16", RowNorm(rows=16384, dim=768, dtype="bfloat16")),
        ("softmax", "8192 1 1024 float32", Softmax(rows=8192, dim=1024, dtype="float32")),
        ("softmax_backward", "8192 1024", Softmax(rows=8192, dim=1024, dtype="float32", backward=True)),
        ("triu_index", "8192 27 128", Index(elements=8192 * 351, dtype="float32", indices=2, source_elements=5971968)),
        (
            "triu_index_backward",
            "64 27 128",
            IndexPut(slices=64, count=351, inner=1, dtype="float32", target_elements=46656, is_contiguous=False),
        ),
        ("qr", "2048 4", Qr(rows=2048, columns=4)),
        ("h2d", "4096", HostCopy(size_bytes=4096, to_gpu=True)),
        ("d2h", "4096", HostCopy(size_bytes=4096, to_gpu=False)),
        ("nccl_all_to_all_1rank", "4096", OneRankCollective(size_bytes=4096, in_place=False)),
    ],
)
def test_a_row_is_one_call_between_two_events(kind: str, desc: str, operation: object) -> None:
    found = describe_row(kind, desc)
    assert found.operations == (operation,)
    assert (found.beside_s, found.is_cold) == (EVENTS_S, True)


def test_attention_says_its_sizes_mask_and_direction() -> None:
    (found,) = describe_row("sdpa_backward", "16 12 1024 64 float32 causal").operations
    assert found == Attention(
        **{"batch": 16, "heads": 12, "key_heads": 12, "queries": 1024, "keys": 1024, "head_size": 64},  # type: ignore[arg-type]
        dtype="float32",
        is_causal=True,
        is_backward=True,
    )
    (whole,) = describe_row("sdpa", "16 12 1024 64 bfloat16").operations
    assert isinstance(whole, Attention)
    assert not whole.is_causal
    assert not whole.is_backward


def test_convolutions_are_of_16_bit_with_channels_last() -> None:
    (found,) = describe_row("conv2d", "128 256 56 64 3 2").operations
    assert isinstance(found, Convolution)
    assert (found.in_channels, found.out_channels, found.size, found.out_size) == (256, 64, (56, 56), (28, 28))
    assert (found.dtype, found.is_channels_last, found.makes) == ("bfloat16", True, "output")


def test_a_gap_lies_between_the_kernels_of_one_operator() -> None:
    found = describe_row("cross_entropy", "8192 32000 bfloat16")
    assert found.operations == (
        Softmax(rows=8192, dim=32000, dtype="bfloat16", is_log=True),
        NllLoss(rows=8192, classes=32000, dtype="bfloat16"),
    )
    assert found.beside_s == EVENTS_S + GAP_S


def test_a_collective_in_place_of_one_rank_has_no_kernel() -> None:
    assert describe_row("nccl_all_reduce_1rank", "4096").beside_s == NOTHING_S


@pytest.mark.parametrize(
    ("kind", "desc", "reason"),
    [
        ("fft", "4096", "kind 'fft': no law of such rows"),
        ("linear", "8192 512 float32", "desc '8192 512': expected batch in out"),
        ("linear", "8192 0 512 float32", "in = '0': expected a whole number from 1 on"),
        ("linear", "8192 x 512 float32", "in = 'x': expected a whole number from 1 on"),
        ("sum", "64 64", "desc '64 64': expected elements"),
        ("add", "float32", "desc has no number: expected the number of elements"),
        ("softmax", "64", "desc '64': expected rows and their elements"),
    ],
)
def test_rows_without_a_law_give_a_reason(kind: str, desc: str, reason: str) -> None:
    with pytest.raises(NotDescribedError) as caught:
        describe_row(kind, desc)
    assert str(caught.value) == reason
