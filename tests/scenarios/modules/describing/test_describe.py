"""Calls of torch's operators become descriptions with their shapes, dtypes and layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.modules.operators import price
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat
from scenarios.seam.operations.normalisations import NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous, strided_call
from scenarios.seam.operations.products import Product, linear, linear_input_gradient, linear_weight_gradient
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut
from scenarios.seam.operations.sorting import Sort


class Described(TorchDispatchMode):
    """Keeps the descriptions of all calls inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        kernel, _ = price(func, args, kwargs or {}, result, on_gpu=True)
        self.found += kernel.operations if kernel is not None else ()
        return result


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def describe(call: Callable[[], object]) -> list[Operation]:
    with Described() as mode:
        call()
    return mode.found


def of(kind: type, operations: list[Operation]) -> list[Any]:
    return [each for each in operations if isinstance(each, kind)]


def ids(*shape: int) -> Tensor:
    return meta(*shape, dtype=torch.int64)


F32 = "float32"
ONE = Operand(dtype=F32, elements=4096)

CALLS: dict[str, tuple[Callable[[], object], Operation]] = {
    "linear of an odd width": (
        lambda: functional.linear(meta(8192, 479), meta(1024, 479)),
        linear(8192, 479, 1024, F32, element_bytes=4),
    ),
    "a product of rows": (
        lambda: meta(64, 32) @ meta(32, 16),
        Product(rows=64, columns=16, inner=32, dtype=F32),
    ),
    "a product of batches": (
        lambda: torch.bmm(meta(5, 27, 128), meta(5, 27, 128).transpose(1, 2)),
        Product(batch=5, rows=27, columns=27, inner=128, dtype=F32, right_is_transposed=True, result_alignment=4),
    ),
    "a product of bytes": (
        lambda: torch._int_mm(meta(64, 32, dtype=torch.int8), meta(32, 16, dtype=torch.int8)),
        Product(rows=64, columns=16, inner=32, dtype="int8", result_alignment=16),
    ),
    "a scaled product": (
        lambda: torch._scaled_mm(
            meta(64, 32, dtype=torch.float8_e4m3fn),
            meta(16, 32, dtype=torch.float8_e4m3fn).t(),
            meta(),
            meta(),
            out_dtype=torch.bfloat16,
        ),
        Product(rows=64, columns=16, inner=32, dtype="float8_e4m3fn", right_is_transposed=True, result_alignment=16),
    ),
    "relu": (
        lambda: torch.relu(meta(64, 64)),
        Pointwise(name="relu", elements=4096, inputs=(ONE,), outputs=(ONE,)),
    ),
    "an addition of a row": (
        lambda: meta(64, 64) + meta(64),
        Pointwise(name="add", elements=4096, inputs=(ONE, Operand(dtype=F32, elements=64)), outputs=(ONE,), dims=2),
    ),
    "a cast": (
        lambda: meta(64, 64).to(torch.bfloat16),
        Pointwise(name="_to_copy", elements=4096, inputs=(ONE,), outputs=(Operand(dtype="bfloat16", elements=4096),)),
    ),
    "a fill": (
        lambda: meta(64, 64).zero_(),
        Pointwise(name="zero_", elements=4096, inputs=(), outputs=(ONE,)),
    ),
    "a sum of columns": (lambda: meta(64, 32).sum(0), Reduction(name="sum", dtype=F32, outer=1, reduced=64, inner=32)),
    "a sum of rows": (lambda: meta(64, 32).sum(1), Reduction(name="sum", dtype=F32, outer=64, reduced=32, inner=1)),
    "a mean of all": (lambda: meta(64, 32).mean(), Reduction(name="mean", dtype=F32, outer=1, reduced=2048, inner=1)),
    "softmax": (lambda: meta(8, 32).softmax(-1), Softmax(rows=8, dim=32, dtype=F32)),
    "log softmax": (lambda: meta(8, 32).log_softmax(-1), Softmax(rows=8, dim=32, dtype=F32, is_log=True)),
    "layer norm": (
        lambda: functional.layer_norm(meta(8, 4, 32), (32,), meta(32), meta(32)),
        RowNorm(rows=32, dim=32, dtype=F32),
    ),
    "a loss": (lambda: functional.nll_loss(meta(8, 5), ids(8)), NllLoss(rows=8, classes=5, dtype=F32)),
    "rows of a table": (lambda: functional.embedding(ids(6, 7), meta(99, 16)), Gather(rows=42, dim=16, dtype=F32)),
    "columns by an index": (
        lambda: meta(99, 16).index_select(1, ids(6)),
        Index(elements=99 * 6, dtype=F32, source_elements=99 * 16),
    ),
    "rows by an index": (lambda: meta(99, 16)[ids(6)], Gather(rows=6, dim=16, dtype=F32)),
    "elements by two indices": (
        lambda: meta(3, 27, 27)[:, ids(351), ids(351)],
        Index(elements=3 * 351, dtype=F32, indices=2, source_elements=3 * 27 * 27),
    ),
    "a concatenation": (
        lambda: torch.cat([meta(8, 16), meta(8, 16)], 1),
        Cat(dtype=F32, elements=256, inputs=2, contiguous=False, dims=2),
    ),
    "a sort": (lambda: ids(1000).sort(), Sort(elements=1000)),
    "QR": (lambda: torch.linalg.qr(meta(512, 4)), Qr(rows=512, columns=4)),
    "a list of tensors": (
        lambda: torch._foreach_add_([meta(3), meta(5)], [meta(3), meta(5)]),
        Foreach(name="_foreach_add_", dtype=F32, numels=(3, 5), lists=2, read=2, written=1),
    ),
    "a convolution": (
        lambda: functional.conv2d(meta(2, 3, 8, 8), meta(5, 3, 3, 3), stride=2, padding=1),
        Convolution(
            batch=2,
            in_channels=3,
            out_channels=5,
            size=(8, 8),
            out_size=(4, 4),
            kernel=(3, 3),
            stride=(2, 2),
            dtype="tf32",
        ),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_described(name: str) -> None:
    call, expected = CALLS[name]
    assert describe(call) == [expected]


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(
    "call", ["sum", "mean", "amax", "max", "argmax", "logsumexp", "softmax", "log_softmax", "cumsum", "sort", "norm"]
)
def test_a_single_number_may_be_reduced_over_its_only_dimension(call: str, dim: int) -> None:
    assert describe(lambda: getattr(torch, call)(meta(), dim=dim))


def test_the_products_of_a_linear_layer_have_their_layouts() -> None:
    layer, given = nn.Linear(479, 1024, bias=False, device="meta"), meta(8192, 479, grad=True)
    products = of(Product, describe(lambda: layer(given).square().sum().backward()))
    sizes = {"element_bytes": 4}
    assert len(products) == 3
    assert products[0] == linear(8192, 479, 1024, F32, **sizes)
    assert linear_input_gradient(8192, 479, 1024, F32, **sizes) in products
    assert linear_weight_gradient(8192, 479, 1024, F32, **sizes) in products


def test_the_backward_of_an_index_sorts_it() -> None:
    given, first, second = meta(64, 27, 27, grad=True), ids(351), ids(351)
    (found,) = of(IndexPut, describe(lambda: given[:, first, second].sum().backward()))
    assert (found.slices, found.count, found.inner, found.target_elements) == (64, 351, 1, 64 * 27 * 27)


def test_the_backward_of_an_embedding_sums_into_a_table() -> None:
    weight = meta(99, 16, grad=True)
    (found,) = of(EmbeddingBackward, describe(lambda: functional.embedding(ids(42), weight).sum().backward()))
    assert found == EmbeddingBackward(ids=42, dim=16, dtype=F32, table_rows=99)


def test_a_convolution_has_the_gradients_that_are_asked_for() -> None:
    weight = meta(5, 3, 3, 3, grad=True)
    found = describe(lambda: functional.conv2d(meta(2, 3, 8, 8), weight).sum().backward())
    assert [each.makes for each in of(Convolution, found)] == ["output", "weight_gradient"]
    both = describe(lambda: functional.conv2d(meta(2, 3, 8, 8, grad=True), weight).sum().backward())
    assert {each.makes for each in of(Convolution, both)} == {"output", "weight_gradient", "input_gradient"}


def test_attention_has_heads_and_mask() -> None:
    query = torch.empty(2, 4, 64, 32, device="meta")
    (found,) = of(
        Attention, describe(lambda: torch.ops.aten._scaled_dot_product_flash_attention(query, query, query, 0.0, True))
    )
    assert (found.batch, found.heads, found.queries, found.head_size, found.is_causal) == (2, 4, 64, 32, True)


@pytest.mark.parametrize("fused", [True, False])
def test_an_optimizer_is_one_call_for_all_tensors(fused: bool) -> None:
    parameters = [torch.zeros(3, requires_grad=True), torch.zeros(5, 7, requires_grad=True)]
    for each in parameters:
        each.grad = torch.zeros_like(each)
    optimizer = torch.optim.Adam(parameters, fused=fused, foreach=not fused)
    optimizer.step()
    steps = (1, 1)  # how many steps there were, a number for each tensor
    found = [each for each in of(Foreach, describe(optimizer.step)) if each.numels != steps]
    assert all(each.numels == (3, 35) for each in found)
    if fused:
        (adam,) = found
        assert (adam.lists, adam.read, adam.written) == (4, 4, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copies_of_fsdp2_are_one_launch_each(dtype: torch.dtype) -> None:
    """Two ranks have 12 and 5 elements each of two parameters; the gathered ones are of float32 or of halves."""
    import torch.distributed.fsdp  # noqa: PLC0415  (defines the operators, which takes a second)

    name, fsdp = str(dtype).removeprefix("torch."), torch.ops.fsdp
    shards, gathered = [meta(12, dtype=dtype), meta(5, dtype=dtype)], meta(34, dtype=dtype)
    assert describe(lambda: fsdp.all_gather_copy_in(shards, gathered, [12, 5], 17, 0)) == [
        Foreach(name="_foreach_copy_", dtype=name, numels=(12, 5), lists=2, read=1, written=1)
    ]
    whole = [meta(2, 12, dtype=dtype), meta(2, 5, dtype=dtype)]
    assert describe(lambda: fsdp.split_with_sizes_copy(gathered.view(2, 17), [12, 5], dim=1, out=whole)) == [
        contiguous("copy_", 34, name)
    ]
    gradients, reduced = [meta(4, 6, dtype=dtype), meta(2, 5, dtype=dtype)], meta(2, 17)
    assert describe(lambda: fsdp.chunk_cat(gradients, dim=0, num_chunks=2, out=reduced)) == [
        strided_call("copy_", (34,), [(name, (1,))], [("float32", (1,))])
    ]


def test_all_gather_copy_in_writes_only_the_ranks_shards() -> None:
    import torch.distributed.fsdp  # noqa: PLC0415

    func, args = torch.ops.fsdp.all_gather_copy_in.default, ([meta(12), meta(5)], meta(34), [12, 5], 17, 0)
    kernel, is_known = price(func, args, {}, func(*args), on_gpu=True)
    assert kernel is not None
    assert (kernel.bytes_read, kernel.bytes_written, kernel.kind, is_known) == (4 * 17, 4 * 17, "permute", True)


def test_calls_on_empty_tensors_and_views_have_no_operations() -> None:
    assert describe(lambda: meta(4, 6).view(24)[:0]) == []
    assert describe(lambda: torch.relu(meta(0, 6))) == []


def test_a_pooling_has_windows_forward_and_back() -> None:
    images = meta(2, 8, 32, 32, grad=True)
    largest = of(Pool, describe(lambda: functional.max_pool2d(images, 3, 2, 1).sum().backward()))
    one = Pool(dtype="float32", inputs=2 * 8 * 32 * 32, outputs=2 * 8 * 16 * 16, window=9, with_indices=True)
    assert largest == [one, dataclasses.replace(one, backward=True)]
    (mean,) = of(Pool, describe(lambda: functional.adaptive_avg_pool2d(images, 4)))
    assert (mean.outputs, mean.window, mean.with_indices) == (2 * 8 * 16, 64, False)
