"""Rows from calls as profilers write them: held against what a dispatch mode sees of the same step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.kernel_tables.called import rows_of
from scenarios.kernel_tables.traced import TracedCall as Call
from scenarios.kernel_tables.traced import TracedKernel
from scenarios.modules.operators import is_composite, price
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.products import Product


def kernel(name: str = "k<float>", us: float = 1.0, blocks: int = 0) -> TracedKernel:
    return TracedKernel(name, us, blocks)


class Seen(TorchDispatchMode):
    """Counts descriptions of what is dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[Any] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        kernel, _ = price(func, args, kwargs or {}, result, on_gpu=True)
        if kernel is not None and kernel.operations:
            self.operations[kernel.operations] += 1
        return result


def is_made_of_others(name: str) -> bool:
    """Whether torch takes an overload of an operator apart."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    return packet is not None and any(is_composite(getattr(packet, overload)) for overload in packet.overloads())


def calls_of(step: Callable[[], None], folder: Any) -> list[Call]:
    """Return the operators that a profiler sees on the CPU; those made of no others launch a kernel each."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
    profiler.export_chrome_trace(str(folder / "t.json"))
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    events = [one for one in events if one.get("cat") == "cpu_op"]
    roots: list[Call] = []
    stacks: dict[Any, list[tuple[Call, float]]] = {}  # each with its end
    for one in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        keys = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
        kernels = [] if is_made_of_others(one["name"]) else [kernel()]
        call = Call(one["name"], *(one["args"].get(key, []) for key in keys), kernels=kernels)
        stack = stacks.setdefault(one["tid"], [])
        while stack and stack[-1][1] <= one["ts"]:
            stack.pop()
        (stack[-1][0].calls if stack else roots).append(call)
        stack.append((call, one["ts"] + one["dur"]))
    return roots


def convolutional() -> Callable[[], None]:
    model: Any = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(8, 3, 32, 32).to(memory_format=torch.channels_last), torch.randint(10, (8,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def elementwise() -> Callable[[], None]:
    given, index = torch.randn(16, 8), torch.randint(16, (5,))

    def step() -> None:
        scaled = given * 2.0 + 1
        found = scaled.softmax(0).where(scaled > 0, scaled).clamp(max=3)
        found.std(1), found.max(1), found.cumsum(0), found.pow(2), found.norm(dim=1), found.sort(1), found.topk(2, 1)
        found.index_select(0, index), found.gather(1, torch.zeros(16, 1, dtype=torch.int64)), found.flip(0)
        torch.cat([found, scaled], 1), torch.stack([found, scaled]), found.t().contiguous(), found.to(torch.bfloat16)
        torch.scatter_add(torch.zeros(16, 8), 0, index[:, None].expand(5, 8), found[:5])
        functional.layer_norm(found, (8,)), functional.gelu(found, approximate="tanh"), found.sum((0, 1), keepdim=True)
        functional.embedding(index, found), functional.mse_loss(found, scaled), torch.bmm(found[None], found.t()[None])

    return step


@pytest.mark.parametrize("make", [convolutional, elementwise])
def test_a_profilers_calls_are_described_as_a_dispatch_mode_sees_them(make, tmp_path):
    """But for what autograd does otherwise where a mode is active, all operators with a law and their numbers."""
    torch.manual_seed(0)
    step = make()
    step()
    with Seen() as seen:
        step()
    rows = {one.operations: one.calls for one in rows_of(calls_of(step, tmp_path), []).rows}
    assert len(seen.operations) > 20
    missing = Counter(seen.operations) - Counter(rows)
    assert sum(missing.values()) <= 0.05 * sum(seen.operations.values())


def mm(name: str, dtype: str = "float") -> Call:
    dims, strides = [[8, 64], [64, 32]], [[64, 1], [32, 1]]
    return Call("aten::mm", dims, strides, [dtype] * 2, ["", ""], kernels=[kernel(name)])


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", "tf32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1>", "tf32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_ffma", "float32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", "float32"),
    ],
)
def test_names_of_kernels_say_how_products_are_rounded(kernel, dtype):
    before = torch.backends.cuda.matmul.allow_tf32
    (row,) = rows_of([mm(kernel)], []).rows
    (product,) = row.operations
    assert isinstance(product, Product)
    assert product.dtype == dtype
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_call_that_autocast_makes_of_another_counts_once_beside_its_casts():
    cast = Call(
        "aten::_to_copy", [[8, 64], [], [], [], [], [], []], [[64, 1], *[[]] * 6],
        ["float", "Scalar", "", "", "", "Scalar", ""], ["", "15", "", "", "", "False", ""], kernels=[kernel()],
    )  # fmt: skip
    outer = mm("")
    outer.kernels = []
    outer.calls = [Call("aten::to", calls=[cast]), mm("nvjet", "c10::BFloat16")]
    found = [type(one.operations[0]).__name__ for one in rows_of([outer], []).rows]
    assert found == ["Pointwise", "Product"]


def adam(blocks: int) -> Call:
    lists, numbers = ["TensorList"] * 6, ["Scalar"] * 7
    values = ["0.001", "0.9", "0.999", "0.", "1e-08", "False", "False", "", ""]
    types = [*lists, *numbers, "", ""]
    name = "multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, double>"
    return Call("aten::_fused_adam_", [[]] * 15, [[]] * 15, types, [""] * 6 + values, kernels=[kernel(name, 9, blocks)])


@pytest.mark.parametrize(
    ("parameters", "blocks", "numels"),
    [
        ([[512, 256], [256]], 3, (131072, 256)),
        ([[512, 256], [256], [512, 256], [256]], 3, (131072, 256)),  # gradients of two backward passes
        ([[512, 256], [256], [64]], 2, (131072,)),  # a group of matrices
    ],
)
def test_lists_of_an_optimizer_are_the_parameters_that_make_as_many_blocks(parameters, blocks, numels):
    (row,) = rows_of([adam(blocks)], parameters).rows
    (found,) = row.operations
    assert isinstance(found, Foreach)
    assert (found.dtype, found.numels, found.read) == ("float32", numels, 4)


def test_a_list_of_as_many_blocks_as_tensors_is_of_steps_where_1_is_added():
    launched = kernel("multi_tensor_apply_kernel<BinaryOpScalarFunctor<float, 1, 1, 0>>", 1, 2)
    calls = [
        Call("aten::_foreach_add_", [[], []], [[], []], ["TensorList", "Scalar"], ["", value], kernels=[launched])
        for value in ("1", "1e-08")
    ]
    lists: list[Any] = [one.operations[0] for one in rows_of(calls, [[256, 256], [256]]).rows]
    found = [each.numels for each in lists]
    assert found == [(1, 1), (65536, 256)]


def test_lists_of_numbers_that_a_trace_leaves_out_are_not_needed():
    """As of more than 30, which profilers do not write."""
    launched = kernel("multi_tensor_apply_kernel<PointwiseOpScalarListFunctor<float, 3, 3, 0>>", 1, 2)
    call = Call("aten::_foreach_addcdiv_", [[]] * 4, [[]] * 4, ["TensorList"] * 3 + [""], [""] * 4, kernels=[launched])
    (row,) = rows_of([call], [[256, 256], [256]]).rows
    assert row.operations[0] == Foreach(
        name="_foreach_addcdiv_", dtype="float32", numels=(65536, 256), lists=3, read=3, written=1
    )


def test_stacks_may_be_deep():
    call = mm("k")
    for _ in range(3000):
        call = Call("mine::op", calls=[call])
    assert len(rows_of([call], []).rows) == 1


def test_unexplained_lists_are_left_out_with_their_time():
    found = rows_of([adam(77), Call("mine::op", kernels=[kernel(us=3)])], [[512, 256]])
    assert (found.rows, dict(found.left_out)) == ([], {"aten::_fused_adam_": 9, "mine::op": 3})


@pytest.mark.parametrize("dims", [[[8, -1], [64, 32]], [[8], [64, 32]], [[[8]], [64, 32]]])
def test_arguments_that_no_operator_takes_are_left_out(dims):
    call = mm("")
    call.dims = dims
    assert rows_of([call], []).rows == []


def integers(count: int, kind: str = "long int") -> tuple[list[int], list[int], str, str]:
    return [count], [1], kind, ""


def fbgemms(name: str, *arguments: tuple[Any, ...]) -> Call:
    columns: list[Any] = [list(each) for each in zip(*arguments, strict=True)]
    return Call(f"fbgemm::{name}", *columns, kernels=[kernel(us=2)])


NONE = ([], [], "", "")


def test_operators_of_keyed_jagged_tensors_are_described_by_their_places():
    calls = [
        fbgemms("permute_2D_sparse_data", integers(4), ([4, 8], [8, 1], "long int", ""), integers(100), NONE, NONE),
        fbgemms("asynchronous_complete_cumsum", integers(32)),
        fbgemms(
            "block_bucketize_sparse_features", integers(32), integers(100), *[([], [], "Scalar", "True")] * 2,
            integers(4), ([], [], "Scalar", "2"), ([100], [1], "float", ""),
        ),
    ]  # fmt: skip
    found = [repr(one.operations[0]) for one in rows_of(calls, []).rows]
    assert found == [
        "PermuteSparse(bags=32, ids=100, id_bytes=8)",
        "Scan(elements=32, element_bytes=8)",
        "BucketizeSparse(bags=32, ids=100, buckets=2, id_bytes=12)",
    ]


def test_a_sequence_look_up_has_a_row_for_each_id():
    scalar = ([], [], "Scalar", "64")
    call = fbgemms(
        "split_embedding_nobag_codegen_forward_unweighted_cuda",
        ([6400], [1], "c10::Half", ""), ([0], [1], "c10::Half", ""), ([0, 0], [1, 1], "float", ""),
        integers(2, "int"), integers(2), scalar, integers(50), integers(9), integers(0, "int"), integers(0, "int"),
        ([], [], "Scalar", "0"), ([], [], "Scalar", "False"),
    )  # fmt: skip
    (row,) = rows_of([call], []).rows
    assert repr(row.operations[0]) == (
        "BagsForward(bags=Bags(tables=2, rows=50, dim=64, bags=4, ids=50, unique=0, long_runs=0, longest=0,"
        " weight_dtype='float16', output_dtype='float32', pooled=False, weighted=False), checks_bounds=False)"
    )
