"""Operators that a compiler fuses: what is saved, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.modules.fusion import fuse_operators
from scenarios.modules.recorder import Operator
from scenarios.modules.trace import Trace, trace
from scenarios.seam.operations.normalisations import BatchNorm
from scenarios.seam.operations.reductions import Reduction
from tests.scenarios.modules.zoo import ZOO

ROWS, WIDTH = 64, 32
SIZE = 4 * ROWS * WIDTH


def trace_function(function: object, *arguments: Tensor) -> Trace:
    return trace(lambda: function, "f", (arguments, {}), on_gpu=True)


def move(operators: Sequence[Operator], *, epilogues: bool = False) -> list[tuple[str, float, float]]:
    made = fuse_operators(operators, epilogues=epilogues)
    return [(one.kind, one.bytes_read, one.bytes_written) for one in made]


def rows(*, wants: bool = False) -> Tensor:
    return torch.empty(ROWS, WIDTH, requires_grad=wants)


def test_intermediate_results_of_fused_operators_are_not_written() -> None:
    found = trace_function(lambda x, y: (x * y + 1).tanh(), rows(), rows())
    assert move(found.forward) == [("elementwise", 2 * SIZE, SIZE)]


def test_a_product_is_a_kernel_of_its_own() -> None:
    """A library writes it; what follows reads it."""
    weight = torch.empty(WIDTH, WIDTH)
    found = trace_function(lambda x, w: (x @ w).relu(), rows(), weight)
    assert move(found.forward) == [("gemm", SIZE + 4 * WIDTH**2, SIZE), ("elementwise", SIZE, SIZE)]


def test_a_products_epilogue_has_the_elementwise_operators_on_its_result() -> None:
    found = trace_function(lambda x, w: ((x @ w).relu() + 1, w + 1), rows(), torch.empty(WIDTH, WIDTH))
    kernels = fuse_operators(found.forward, epilogues=True)
    assert [(one.kind, one.bytes_written) for one in kernels] == [("gemm", SIZE), ("elementwise", 4 * WIDTH**2)]


def test_fused_kernels_write_what_is_kept_for_the_backward_pass() -> None:
    """Of tanh its result, of the product both factors: x, and sin(x), which is made on the way."""
    found = trace_function(lambda x: (x.tanh() * x.sin()).sum(), rows(wants=True))
    ((kind, read, written),) = move(found.forward)
    assert (kind, read) == ("elementwise", SIZE)
    assert written == 2 * SIZE + 4, "x itself is there anyway"


def test_recomputed_results_are_not_kept() -> None:
    """tanh and sin are computed again from x, which is there anyway."""
    found = trace(
        lambda: lambda x: (x.tanh() * x.sin()).sum(), "f", ((rows(wants=True),), {}), on_gpu=True, fuses="compiled"
    )
    assert move(found.forward) == [("elementwise", SIZE, 4)]
    assert move(found.backward) == [("elementwise", SIZE, SIZE)]


def test_a_loss_keeps_logits_in_half_precision() -> None:
    """Neither the float32 copy nor its log-softmax is written, and back only the logits' gradient in bfloat16 is."""

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy((x * 1).float(), target)

    half, target = (
        torch.empty(ROWS, WIDTH, dtype=torch.bfloat16, requires_grad=True),
        torch.empty(ROWS, dtype=torch.int64),
    )
    found = trace(lambda: loss, "f", ((half, target), {}), on_gpu=True, fuses="compiled")
    (read,) = {one.bytes_read for one in fuse_operators(found.forward)}
    assert read == SIZE / 2 + 8 * ROWS
    assert [one.bytes_written for one in fuse_operators(found.backward)] == [SIZE / 2]


def test_a_sum_over_rows_stays_within_its_kernel() -> None:
    found = trace_function(lambda x: (x * 2).sum(1, keepdim=True) + x, rows())
    assert move(found.forward) == [("elementwise", SIZE, SIZE)]


def test_a_sum_over_everything_ends_its_kernel() -> None:
    found = trace_function(lambda x: (x * 2).sum() + x, rows())
    assert move(found.forward) == [("elementwise", SIZE, 4), ("elementwise", SIZE + 4, SIZE)]


def test_a_sum_over_columns_is_a_kernel_of_its_own() -> None:
    found = trace_function(lambda x: (x * 2).sum(0), rows())
    assert move(found.forward) == [("elementwise", SIZE, SIZE), ("reduction", SIZE, 4 * WIDTH)]
    assert move(found.forward, epilogues=True) == [("elementwise", SIZE, 4 * WIDTH)]


def test_gradients_of_a_norms_weights_are_sums_over_columns() -> None:
    found = trace(lambda: nn.LayerNorm(WIDTH), "norm", ((rows(wants=True),), {}), on_gpu=True, fuses="compiled")
    *_, row_wise, column_wise = fuse_operators(found.backward)
    assert not row_wise.operations
    [summed] = column_wise.operations
    assert isinstance(summed, Reduction)
    assert (summed.reduced, summed.inner) == (2 * ROWS, WIDTH), "of the gradient and of the input"


@pytest.mark.parametrize(
    "norm", [lambda x: functional.layer_norm(x, (WIDTH,)), lambda x: x.softmax(-1)], ids=["layer_norm", "softmax"]
)
def test_a_norm_is_not_fused_into_a_product(norm: Callable[[Tensor], Tensor]) -> None:
    found = trace_function(lambda x, w: norm(x @ w), rows(), torch.empty(WIDTH, WIDTH))
    product, normed = fuse_operators(found.forward)
    assert (product.kind, product.bytes_written) == ("gemm", SIZE)
    assert (normed.kind, normed.bytes_read) == ("reduction", SIZE)


def test_a_batch_norm_passes_over_its_input_twice() -> None:
    """Its law has both passes; ReLU and the addition behind it are one kernel."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return (functional.batch_norm(x * 2, None, None, training=True) + y).relu()

    found = trace_function(function, *(torch.empty(4, WIDTH, 8, 8) for _ in range(2)))
    made = fuse_operators(found.forward)
    (normed,) = [each for each in made if any(isinstance(one, BatchNorm) for one in each.operations)]
    assert [each.kind for each in made] == ["elementwise", normed.kind, "elementwise"]


def test_products_stay_apart() -> None:
    found = trace_function(lambda x, w: x @ w @ w, rows(), torch.empty(WIDTH, WIDTH))
    assert len(fuse_operators(found.forward)) == 2


def test_an_in_place_change_is_not_fused_ahead_of_an_earlier_reader() -> None:
    """z is read by the product before it changes: what changes it comes after."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        z = x * 1
        y = z + 1
        product = z @ w
        return z.mul_(2) + y + product

    found = trace_function(function, rows(), torch.empty(WIDTH, WIDTH))
    assert move(found.forward) == [
        ("elementwise", SIZE, 2 * SIZE),
        ("gemm", SIZE + 4 * WIDTH**2, SIZE),
        ("elementwise", 3 * SIZE, SIZE),
    ]


@pytest.mark.parametrize("name", sorted(ZOO))
def test_fusion_never_adds_bytes_or_kernels(name: str) -> None:
    make, arguments = ZOO[name]
    found = trace(make, name, (arguments(), {}), on_gpu=True)
    for operators in (found.forward, found.backward):
        kernels, before = fuse_operators(operators), [one.kernel for one in operators]
        assert sum(one.flops for one in kernels) == pytest.approx(sum(one.flops for one in before))
        assert len(kernels) <= len(before)
        for key in ("bytes_read", "bytes_written"):
            assert sum(getattr(one, key) for one in kernels) <= sum(getattr(one, key) for one in before)


def test_a_linear_layer_saves_as_a_compiler_does() -> None:
    """A product with its bias, then the activation; back, the activation's gradient, products, and the bias's."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return functional.relu(self.layer(x))

    found = trace(Layer, "layer", ((rows(wants=True),), {}), on_gpu=True)
    assert [one.kind for one in fuse_operators(found.forward)] == ["gemm", "elementwise"]
    assert [one.kind for one in fuse_operators(found.backward)] == ["elementwise", "gemm", "gemm", "reduction"]
