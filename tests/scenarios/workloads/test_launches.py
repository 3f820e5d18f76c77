"""What kernels declare against what their computations dispatch: the operators exactly, the bytes within half again."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from real.calibration.kernels.blocks import load_autograd
from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.config.scenario import (
    Buckets,
    Compression,
    Exchange,
    Gradients,
    Interaction,
    Model,
    Optimizer,
    QComms,
    Scenario,
    ShardingType,
    Table,
    TimedCollective,
)
from scenarios.modules.ddp_buckets import GradientBucket
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.sparse import (
    KeyedJagged,
    RwPooledEmbeddingDist,
    RwSparseFeaturesDist,
    TwPooledEmbeddingDist,
    TwRwSparseFeaturesDist,
    TwSparseFeaturesDist,
)
from scenarios.workloads.build import build
from sim.run import simulate
from tests.scenarios.workloads.operators import Computed, watch
from tests.small import GPU, Play, change, cluster, scenario, with_model

DTYPES = ("float32", "float64", "bfloat16", "float16")
CLUSTER = cluster(gpu=dataclasses.replace(GPU, flops_per_s=dict.fromkeys(DTYPES, 1e13)))
WITHIN = 1.5
FEW_BYTES = 64


def run(given: Scenario, body: Callable[[Rank], Awaitable[None]] | None = None) -> list[Computed]:
    """What a scenario's program, or another body, computes on all ranks."""
    with pytest.MonkeyPatch.context() as patch, watch(patch) as found:
        simulate(given, build(given) if body is None else Play(body))
    return found


def agree(found: list[Computed], *labels: str) -> None:
    """Every kernel's declaration; and `labels` are among those seen, so that none is looked for in vain.

    Of a module neither its passes, which have threads of their own and are not watched, nor its update, which is one
    operator for all parameters on a GPU only: modules/test_trace.py counts them.
    """
    seen = {each.label for each in found}
    found = [each for each in found if not each.label.startswith(("dense.forward", "dense.backward", "dense.update"))]
    assert {label for label in labels if not any(one.endswith(label) for one in seen)} == set()
    wrong = {
        (each.label, each.kernel.launches, len(each.operators)): each.operators
        for each in found
        if each.kernel.launches != len(each.operators)
    }
    assert wrong == {}
    far = {
        (each.label, each.declared_bytes, each.touched_bytes): each.operators
        for each in found
        if not each.is_compiled
        and not each.touched_bytes / WITHIN - FEW_BYTES <= each.declared_bytes <= each.touched_bytes * WITHIN
    }
    assert far == {}


def training(
    types: tuple[ShardingType, ...], kind: Literal["cat", "dot", "dcn"], optimizer: Literal["sgd", "adagrad"], **of: Any
) -> Scenario:
    """Four tables that take the sharding types in turn, with more rows than ids, few of which come twice."""
    tables = tuple(
        Table(name=f"t{number}", rows=rows, dim=16, ids_per_sample=ids, sharding=(types[number % len(types)],))
        for number, (rows, ids) in enumerate(((400, 2.0), (900, 1.0), (570, 3.0), (1600, 5.0)))
    )
    model = Model(
        dense_features=13,
        bottom=(32, 16),
        interaction=Interaction(kind=kind, layers=2, low_rank=8),
        top=(24, 1),
        tables=tables,
        optimizer=Optimizer(kind=optimizer),
        **of,
    )
    return scenario(CLUSTER, model=model, batch_size=16, steps=2, buckets=Buckets(first_bytes=1 << 10))


ANYWHERE = ("dense.update", "dense.backward.0", "dense.forward.0", "dense.gradients.bucket")


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize(
    ("types", "kind", "labels"),
    [
        (("table_wise",), "cat", ("table_wise.input_dist.recat", "table_wise.output_dist_backward.columns")),
        (("row_wise", "column_wise"), "dot", ("row_wise.input_dist.bucketize", "column_wise.update")),
        (
            ("table_row_wise", "table_column_wise"),
            "dcn",
            ("table_row_wise.input_dist.shuffle", "table_row_wise.gradients"),
        ),
        (("data_parallel", "grid_shard"), "dot", ("data_parallel.gradients", "data_parallel.update")),
        (("row_wise", "data_parallel", "table_wise"), "dcn", ("data_parallel.lookup", "table_wise.gradients")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else value,
)
def test_a_training_step(
    types: tuple[ShardingType, ...],
    kind: Literal["cat", "dot", "dcn"],
    labels: tuple[str, ...],
    optimizer: Literal["sgd", "adagrad"],
) -> None:
    agree(run(training(types, kind, optimizer)), *ANYWHERE, *labels)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_training_step_in_half_precision(dtype: str, optimizer: Literal["sgd", "adagrad"]) -> None:
    agree(run(training(("row_wise", "data_parallel"), "dot", optimizer, dtype=dtype)), *ANYWHERE)


QCOMMS = {
    "fp16": QComms(forward_precision="fp16", backward_precision="fp16"),
    "bf16, scaled": QComms(
        forward_precision="bf16", backward_precision="bf16", forward_loss_scale=2.0, backward_loss_scale=2.0
    ),
    "fp8": QComms(forward_precision="fp8", backward_precision="fp8", fp8_quantize_dim=16),
    "int8": QComms(forward_precision="int8", backward_precision="int8"),
}


@pytest.mark.parametrize("kind", QCOMMS)
def test_a_training_step_with_quantized_exchanges(kind: str) -> None:
    """What encodes and decodes, with gradients' division in the latter, and without the one before they leave."""
    types: tuple[ShardingType, ...] = ("table_wise",) if kind == "int8" else ("row_wise", "table_row_wise")
    found = run(change(training(types, "cat", "sgd"), qcomms=QCOMMS[kind]))
    labels = (f"{name}.{done}" for name in ("output_dist", "output_dist_backward") for done in ("encode", "decode"))
    agree(found, *ANYWHERE, *labels)
    assert not any(each.label.endswith("gradients") and "_wise" in each.label for each in found)


def test_a_rank_without_tables_launches_what_its_exchanges_do() -> None:
    """One table on four ranks: three look nothing up, but are given the sizes of nothing."""
    made = training(("table_wise",), "cat", "adagrad")
    found = run(with_model(made, tables=made.workload.tables[:1]))
    agree(found, *ANYWHERE)
    assert {each.kernel.launches for each in found if each.label == "table_wise.lookup"} == {0, 1}


# Wide, tall, small and no matrices; two alike in a bucket.
SHAPES = ((64, 64), (64,), (64, 64), (32, 64), (7,), (3, 32, 3), (96, 2), (64, 64))
ROUNDS = ("powersgd.draw", "powersgd.compress", "powersgd.orthogonalise", "powersgd.project", "powersgd.decompress")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rank", [1, 2, 4, 6])
@pytest.mark.parametrize("kind", ["batched_powersgd", "layerwise_powersgd"])
def test_gradients_that_are_compressed(
    kind: Literal["batched_powersgd", "layerwise_powersgd"], rank: int, dtype: str
) -> None:
    compression = Compression(kind=kind, start_powerSGD_iter=2, matrix_approximation_rank=rank, min_compression_rate=1)
    agree(run(reduction(compression, dtype)), *ROUNDS, "update", "backward.3", "powersgd.vanilla.divide")


@pytest.mark.parametrize(
    "options",
    [
        {"batch_tensors_with_same_shape": True},
        {"batch_tensors_with_same_shape": True, "matrix_approximation_rank": 5},
        {"use_error_feedback": False, "warm_start": False},
        {"orthogonalization_epsilon": 1e-8},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["batched_powersgd", "layerwise_powersgd"])
def test_the_options_of_compression(kind: Literal["batched_powersgd", "layerwise_powersgd"], options: Any) -> None:
    given = {"matrix_approximation_rank": 2, **options}
    agree(run(reduction(Compression(kind=kind, start_powerSGD_iter=2, **given))), *ROUNDS)


@pytest.mark.parametrize("flops", [0.0, 2e6])
def test_gradients_that_are_not_compressed(flops: float) -> None:
    agree(run(reduction(Compression(), flops=flops)), "backward.0", "gradients.mean.divide", "update")


def reduction(compression: Compression, dtype: Any = "float32", flops: float = 2e6) -> Scenario:
    gradients = Gradients(shapes=SHAPES, backward_flops=flops, dtype=dtype)
    buckets = Buckets(first_bytes=20_000, cap_bytes=40_000)
    return scenario(CLUSTER, program="powersgd", gradients=gradients, compression=compression, steps=3, buckets=buckets)


@pytest.mark.parametrize("algorithm", [batched_powersgd, layerwise_powersgd])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_matrices_that_must_survive_and_lie_column_by_column(algorithm: Any, rank: int) -> None:
    async def body(on: Rank) -> None:
        state = PowerSGDState(None, rank, 2, survive_zero_matrices=True, orthogonalization_epsilon=1e-8)
        for _ in range(4):
            bucket = Columns(torch.randn(2 * 40 * 60))
            await algorithm(on, state, bucket)

    agree(run(scenario(CLUSTER), body), *ROUNDS, "powersgd.refill")


class Columns(GradientBucket):
    """Two matrices, the second of which lies column by column, as a parameter's does that DDP finds so."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__(0, buffer, ((40, 60), (60, 40)), is_last=True)

    def gradients(self) -> list[Tensor]:
        first, second = super().gradients()
        return [first, second.mT]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "complex64"])
def test_a_checksum(dtype: Any) -> None:
    exchange = Exchange(size_bytes=80_000, splits="random", dtype=dtype)
    agree(run(scenario(CLUSTER, program="all_to_all", exchange=exchange)), "checksum")


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
def test_a_collective(op: Literal["all_reduce", "all_gather", "all_to_all"]) -> None:
    agree(
        run(scenario(CLUSTER, program="collective", collective=TimedCollective(op=op, size_bytes=80_000))), "reduction"
    )


KEYS = ("a", "b", "c", "d")


def features(rank: Rank, *, weighted: bool, by_key: bool = False) -> KeyedJagged:
    """A batch of its own size on every rank; with `by_key` also for every key."""
    batch = 12 + rank.rank
    strides = tuple((batch + by_key * number,) for number in range(len(KEYS)))
    lengths = torch.arange(sum(sum(stride) for stride in strides)) % 7 + 4
    ids = torch.arange(int(lengths.sum())) % 90
    return KeyedJagged(
        keys=KEYS,
        values=ids,
        lengths=lengths,
        weights=torch.ones(len(ids)) if weighted else None,
        stride=None if by_key else batch,
        stride_per_key_per_rank=strides if by_key else None,
    )


@pytest.mark.parametrize("by_key", [False, True], ids=["one batch", "by key"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("cut", ["tables", "rows", "rows in hosts"])
def test_features_that_are_exchanged(cut: str, weighted: bool, by_key: bool) -> None:
    async def body(rank: Rank) -> None:
        world = Group("world", tuple(range(4)))
        dist: Any = {
            "tables": TwSparseFeaturesDist(world, [2, 0, 1, 1]),
            "rows": RwSparseFeaturesDist(world, 4, [90] * 4, has_feature_processor=True),
            "rows in hosts": TwRwSparseFeaturesDist(world, 2, [2] * 4, [90] * 4),
        }[cut]
        await dist(rank, features(rank, weighted=weighted, by_key=by_key))

    agree(run(scenario(CLUSTER), body), "recat", *(() if cut == "tables" else ("bucketize",)))


def test_rows_of_uneven_batches_there_and_back() -> None:
    async def body(rank: Rank) -> None:
        batches, dims = [12 + number for number in range(4)], (16, 1, 32, 8)
        by_table = TwPooledEmbeddingDist(dim_sum_per_rank=dims)
        for dist, width in ((RwPooledEmbeddingDist(), sum(dims)), (by_table, dims[rank.rank])):
            pooled = torch.ones(sum(batches), width)
            output = await dist.forward(rank, pooled, batches)
            back = await dist.backward(rank, output, batches)
            assert back.shape == pooled.shape

    agree(
        run(scenario(CLUSTER), body), "output_dist.sum", "output_dist_backward.repeat", "output_dist_backward.columns"
    )


def test_a_backward_is_counted_and_what_is_free_is_not() -> None:
    def work(values: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad((values * values).sum(), values)  # mul, sum; ones_like, then mul, mul, add
        empty = torch.empty_like(gradient).view(-1).detach()
        return empty[: int(gradient.sum()) and gradient.numel()]  # sum

    async def body(rank: Rank) -> None:
        load_autograd(rank.device)
        await rank.compute(Kernel(kind="test"), work, torch.ones(5, requires_grad=True), label="work")

    first, *_ = run(scenario(CLUSTER), body)
    assert first.operators == ["mul", "sum", "ones_like", "mul", "mul", "add", "sum"]


def test_a_wrong_declaration_is_noticed() -> None:
    async def body(rank: Rank) -> None:
        values = torch.ones(100)
        right = Kernel(kind="test", bytes_read=800, bytes_written=800, launches=2)
        wrong = [dataclasses.replace(right, launches=1), dataclasses.replace(right, bytes_read=2000.0)]
        for name, kernel in (("right", right), ("launches", wrong[0]), ("bytes", wrong[1])):
            await rank.compute(kernel, lambda: values + 1 - 1, label=name)

    found = run(scenario(CLUSTER), body)
    agree([each for each in found if each.label == "right"], "right")
    for name in ("launches", "bytes"):
        with pytest.raises(AssertionError, match=name):
            agree([each for each in found if each.label == name])
    with pytest.raises(AssertionError, match="absent"):
        agree(found, "absent")
