"""An operator that is made from a description is described so again, by the code that describes scripts' calls."""

from __future__ import annotations

import dataclasses
from itertools import islice

import pytest
import torch

from real.calibration.operators.draws import CPU_SCALE, GPU_SCALE, Scale
from real.calibration.operators.making import fbgemm
from real.calibration.operators.making.arena import Arena, CannotMakeError, TooLargeError
from real.calibration.operators.making.make import make
from real.calibration.operators.ranges import families, plan_operators
from scenarios.config.load import load_profile
from scenarios.seam.operations import products as layouts
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward, uniform
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous, strided_call
from scenarios.seam.operations.products import Product, Recurrence
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort
from tests.real.calibration.operators.described import describe

F, B, T = "float32", "bfloat16", "tf32"


def arena(device: str = "cpu", size_bytes: int = 1 << 24) -> Arena:
    return Arena(torch.device(device), size_bytes, size_bytes, size_bytes)


def again(operation: Operation, there: Arena) -> list[Operation]:
    """Return what the operator made from a description is described as."""
    made = make(operation, there)
    return describe(made.run, is_tf32=made.is_tf32)


def pointwise(name: str, inputs: str, outputs: str) -> Pointwise:
    """Return a call on 1,000 elements, by the dtypes of what it reads and writes."""
    operands = [tuple(Operand(dtype=each, elements=1000) for each in words.split()) for words in (inputs, outputs)]
    return Pointwise(name=name, elements=1000, inputs=operands[0], outputs=operands[1])


PRODUCTS: list[Operation] = [
    layouts.linear(64, 479, 32, F, element_bytes=4),
    layouts.linear(64, 479, 32, B, element_bytes=2),
    layouts.linear(64, 512, 32, T, element_bytes=4),
    layouts.linear_input_gradient(64, 479, 33, B, element_bytes=2),
    layouts.linear_weight_gradient(64, 479, 33, B, element_bytes=2),
    layouts.product(27, 27, 128, dtype=F, element_bytes=4, batch=64),
    Product(batch=64, rows=27, columns=27, inner=128, dtype=F, right_is_transposed=True, result_alignment=4),
    Product(rows=64, columns=1, inner=32, dtype=F, right_alignment=4, result_alignment=4),
    Product(rows=64, columns=16, inner=479, dtype=B, right_is_transposed=True, right_alignment=2),
    *(
        Attention(
            batch=2, heads=4, key_heads=4, queries=64, keys=64, head_size=32, dtype=dtype, is_causal=c, is_backward=b
        )
        for dtype in (F, B)
        for c in (False, True)
        for b in (False, True)
    ),
    *(
        Convolution(
            batch=2,
            in_channels=8,
            out_channels=16,
            size=(14, 14),
            out_size=(7, 7),
            kernel=(3, 3),
            stride=(2, 2),
            dtype=dtype,
            is_channels_last=last,
            makes=makes,  # type: ignore[arg-type]
        )
        for dtype in (F, T)
        for last in (False, True)
        for makes in ("output", "input_gradient", "weight_gradient")
    ),
]
_BY_INPUTS = {
    0: "zero_ fill_ zeros_like bernoulli_ uniform_ normal_ zeros ones full",
    1: "relu gelu add add_ mul_ div copy_ pow sqrt rsqrt clone neg exp clamp clamp_min sigmoid tanh silu log abs flip",
    2: "add add_ mul sub gelu_backward threshold_backward silu_backward tanh_backward sigmoid_backward lerp_ maximum"
    " mse_loss",
    3: "addcmul_ addcdiv_",
}
ELEMENTS: list[Operation] = [
    *(
        contiguous(name, 1000, dtype, inputs=inputs)
        for inputs, names in _BY_INPUTS.items()
        for name in names.split()
        for dtype in (F, B)
        if name != "mse_loss" or dtype == F
    ),
    contiguous("triu", 1024, F),
    pointwise("_to_copy", F, B),
    pointwise("copy_", B, F),
    pointwise("add", f"{B} {F}", F),
    pointwise("eq", f"{F} {F}", "bool"),
    pointwise("where", f"bool {F} {F}", F),
    pointwise("masked_fill", f"{F} bool", F),
    pointwise("native_dropout", F, f"{F} bool"),
    pointwise("native_dropout_backward", f"{F} bool", F),
]
STRIDED: list[Operation] = [
    strided_call("add", (64, 32), [(F, (32, 1)), (F, (0, 1))], [(F, (32, 1))]),
    strided_call("add", (64, 32), [(F, (32, 1)), (F, (1, 0))], [(F, (32, 1))]),
    strided_call("add", (64, 32), [(B, (32, 1)), (F, (0, 1))], [(F, (32, 1))]),
    strided_call("mul", (64, 32), [(F, (32, 1)), (F, (0, 0))], [(F, (32, 1))]),
    strided_call("copy_", (128, 27), [(F, (1, 128))], [(F, (27, 1))]),
    strided_call("copy_", (479,), [(F, (1000,))], [(F, (1,))]),
    strided_call("clone", (8, 128, 27), [(F, (3456, 1, 128))], [(F, (3456, 27, 1))]),
    strided_call("clone", (2, 8, 128, 64), [(B, (65536, 64, 512, 1))], [(B, (65536, 8192, 64, 1))]),
    strided_call("add_", (64, 32), [(F, (48, 1)), (F, (32, 1))], [(F, (48, 1))]),
    strided_call("copy_", (4, 16, 8, 32), [(B, (4096, 32, 512, 1))], [(B, (4096, 256, 32, 1))]),
    strided_call("mul", (2, 16, 8, 32), [(B, (4096, 256, 32, 1)), (B, (0, 32, 0, 1))], [(B, (4096, 256, 32, 1))]),
]
_REDUCTIONS = (
    "sum mean amax amin max min argmax argmin prod norm linalg_vector_norm var var_mean std any all logsumexp aminmax"
)
ROWS: list[Operation] = [
    *(
        Reduction(name=name, dtype=F, outer=outer, reduced=reduced, inner=inner)
        for name in _REDUCTIONS.split()
        for outer, reduced, inner in ((1, 1000, 1), (1, 64, 32), (64, 32, 1), (8, 16, 32))
    ),
    Qr(rows=64, columns=4),
    Qr(rows=64, columns=4, batch=3),
    *(
        Pool(dtype=F, inputs=12544, outputs=3136, window=window, with_indices=indices, backward=backward)
        for window, indices in ((9, True), (4, True), (4, False))
        for backward in (False, True)
    ),
    *(Pool(dtype=F, inputs=784, outputs=16, window=49, backward=backward) for backward in (False, True)),
    *(
        Softmax(rows=64, dim=100, dtype=dtype, is_log=is_log, backward=backward)
        for dtype in (F, B)
        for is_log in (False, True)
        for backward in (False, True)
    ),
    *(
        RowNorm(rows=64, dim=100, dtype=F, backward=backward, weights=weights)
        for weights in (0, 1, 2)
        for backward in (False, True)
    ),
    *(
        BatchNorm(elements=784, channels=8, dtype=F, backward=backward, training=training)
        for training in (False, True)
        for backward in (False, True)
    ),
    *(NllLoss(rows=64, classes=100, dtype=F, backward=backward) for backward in (False, True)),
    Sort(elements=1000),
    Sort(elements=100, rows=4, key_bytes=4, bits=32),
    Scan(elements=1000),
    Scan(elements=1000, element_bytes=4),
]
INDEXED: list[Operation] = [
    Gather(rows=100, dim=16, dtype=F),
    Gather(rows=100, dim=1, dtype=F),
    Index(elements=64 * 351, dtype=F, indices=2, source_elements=64 * 729),
    Index(elements=1000, dtype=F, indices=2, source_elements=4096),
    Index(elements=1000, dtype=F, indices=1, source_elements=4096),
    Index(elements=1000, dtype=F, indices=3, source_elements=4096),
    Index(elements=1000, dtype=F),
    IndexPut(slices=64, count=351, inner=1, dtype=F, target_elements=64 * 729, is_contiguous=False),
    IndexPut(slices=1, count=351, inner=16, dtype=F, target_elements=16000),
    EmbeddingBackward(ids=100, dim=16, dtype=F, table_rows=1000),
    ScatterAdd(elements=1000, dtype=F, target_elements=500),
    Cat(dtype=F, elements=1000, inputs=3, contiguous=True, dims=1),
    Cat(dtype=F, elements=1000, inputs=2, contiguous=False, dims=1),
    Cat(dtype=F, elements=512 * 27 * 16, inputs=27, contiguous=False, dims=2),
    Cat(dtype=F, elements=479 * 64, inputs=2, contiguous=False, dims=2),
    Cat(dtype=F, elements=479 * 128, inputs=2, contiguous=False, dims=3),
]
_NAMES = [
    *(("_foreach_add_", 2, 2, 1), ("_foreach_add_", 1, 1, 1), ("_foreach_mul_", 1, 1, 1), ("_foreach_sqrt", 2, 1, 1)),
    *(("_foreach_norm", 1, 1, 0), ("_foreach_copy_", 2, 1, 1), ("_foreach_zero_", 1, 0, 1), ("_foreach_add", 3, 2, 1)),
    *(("_foreach_addcdiv_", 3, 3, 1), ("_foreach_lerp_", 2, 2, 1), ("_foreach_div_", 2, 2, 1)),
    *(("_fused_adam_", 4, 4, 3), ("_fused_adamw_", 4, 4, 3), ("_fused_adamw_", 5, 5, 4), ("_fused_sgd_", 3, 3, 2)),
    *(("_fused_sgd_", 2, 2, 1), ("_fused_adagrad_", 3, 3, 2)),
]
LISTS: list[Operation] = [
    *(
        Foreach(name=name, dtype=F, numels=(100, 200, 7), lists=lists, read=read, written=written)
        for name, lists, read, written in _NAMES
    ),
    Foreach(name="_fused_adam_", dtype=F, numels=(1, 20), lists=1, read=1, written=0),
]
JAGGED: list[Operation] = [
    PermuteSparse(bags=26 * 8, ids=1000),
    PermuteSparse(bags=26 * 8, ids=1000, id_bytes=12),
    BucketizeSparse(bags=26 * 8, ids=1000, buckets=4),
    PermutePooled(size_bytes=4 * 128 * 26 * 8),
]
BAGS: list[Operation] = [
    BagsForward(bags=uniform(tables=3, rows=100, dim=16, bags=8, length=5)),
    BagsBackward(bags=uniform(tables=3, rows=100, dim=16, bags=8, length=5), optimizer="sgd"),
]
# Of which a CPU has no kernel, and copies between the host and itself.
ON_GPUS: list[Operation] = [
    HostCopy(size_bytes=1000, to_gpu=True),
    OneRankCollective(size_bytes=1000, in_place=True),
    Recurrence(cell="lstm", steps=5, batch=4, hidden=16, state=16, dtype=F),
]
EVERY = [*PRODUCTS, *ELEMENTS, *STRIDED, *ROWS, *INDEXED, *LISTS]


def test_there_is_an_example_of_every_description() -> None:
    assert {type(each) for each in (*EVERY, *JAGGED, *BAGS, *ON_GPUS)} == set(Operation.kinds.values())


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "given",
    [PRODUCTS, ELEMENTS, STRIDED, ROWS, INDEXED, LISTS],
    ids=["products", "elements", "strided", "rows", "ids", "lists"],
)
def test_an_operator_is_described_as_what_it_was_made_from(given: list[Operation], device: str) -> None:
    there = arena(device)
    for operation in given:
        if device == "meta" and getattr(operation, "name", "") in ("_fused_sgd_", "_fused_adagrad_"):
            continue  # which torch has not on meta
        assert again(operation, there) == [operation]


@pytest.mark.parametrize(("scale", "device", "count"), [(CPU_SCALE, "cpu", 250), (GPU_SCALE, "meta", 500)])
def test_drawn_operators_are_described_as_made_up_to_unique_ids(scale: Scale, device: str, count: int) -> None:
    there = arena(device, 1 << (26 if device == "cpu" else 40))
    every = plan_operators(families(load_profile("hgx_h200").host.gpu, has_fbgemm=False), scale)
    for _, operation in islice(every, count):
        if isinstance(operation, HostCopy) or (device == "meta" and getattr(operation, "name", "") == "_fused_sgd_"):
            continue
        expected = dataclasses.replace(operation, unique=0) if isinstance(operation, Gather) else operation
        assert again(operation, there) == [expected]


def test_ids_name_as_many_rows_as_described() -> None:
    gathered: list[torch.Tensor] = []
    embedding = torch.ops.aten.embedding.default
    made = make(Gather(rows=1000, dim=4, dtype=F, unique=300), arena())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.ops.aten.embedding, "default", lambda table, ids: gathered.append(ids))
        made.run()
    (ids,) = gathered
    assert ids.numel() == 1000
    assert ids.unique().numel() == 300
    assert embedding is torch.ops.aten.embedding.default


def test_changed_tensors_are_no_inputs() -> None:
    there = arena()
    read = make(contiguous("relu", 1000, F), there)
    before = read.run()
    assert isinstance(before, torch.Tensor)
    kept = before.clone()
    for _ in range(3):
        make(contiguous("add_", 1000, F, inputs=2), there).run()
    after = make(contiguous("relu", 1000, F), there).run()
    assert isinstance(after, torch.Tensor)
    assert torch.equal(after, kept)


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (ON_GPUS[0], "copies to and from the host need a GPU"),
        (ON_GPUS[1], "collectives of one rank need a process group"),
        (ON_GPUS[2], "the steps of a recurrent layer do not run without the products of its inputs"),
        (Sort(elements=1000, bits=20), "torch sorts by all bits of its integers"),
        (Softmax(rows=8, dim=8, dtype=F, is_staged=False), "the softmax of torch 2.0"),
        (contiguous("frobnicate", 8, F), "torch has no operator 'frobnicate' of 1 tensors"),
        (contiguous("relu", 8, "float7"), "dtype 'float7'"),
        (contiguous("relu", 1 << 28, F), "too large: 1.07 GB of 0.0168 GB set aside"),
        (
            dataclasses.replace(PRODUCTS[9], window=128),  # type: ignore[call-arg, type-var]
            "attention of an inference server, or with a window, is not torch's",
        ),
    ],
)
def test_impossible_operators_have_reasons(operation: Operation, why: str) -> None:
    with pytest.raises(CannotMakeError) as refused:
        make(operation, arena())
    assert str(refused.value) == why


def test_too_large_operators_raise_too_large_error() -> None:
    with pytest.raises(TooLargeError):
        make(contiguous("zeros_like", 1 << 28, F, inputs=0), arena())


def test_fbgemms_operators_say_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fbgemm, "is_installed", lambda: False)
    for operation in (*JAGGED, *BAGS):
        with pytest.raises(CannotMakeError, match=r"^fbgemm_gpu is not installed$"):
            make(operation, arena())


@pytest.mark.filterwarnings("ignore")  # fbgemm's own
@pytest.mark.usefixtures("fbgemm")
def test_fbgemms_operators_are_made_where_it_is_installed() -> None:
    there = arena()
    for operation in JAGGED:
        assert again(operation, there) == [operation]
    for operation in BAGS:
        made = make(operation, there)
        for _ in range(3):
            made.run()
