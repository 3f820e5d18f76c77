"""Tables, and what their shards cost by TorchRec 1.8.0's estimators: sizes, perf to the last bit, and storage."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from scenarios.compute_kernel import ComputeKernel
from scenarios.planner.estimators.perf import EmbeddingPerfEstimator
from scenarios.planner.estimators.storage import EmbeddingStorageEstimator
from scenarios.planner.search.enumerator import cut
from scenarios.planner.topology import DEVICES_WITH_HBM, Topology
from scenarios.planner.types import (
    CacheParams,
    ParameterConstraints,
    ShardingOption,
    TensorShape,
    known_perf,
    known_storage,
)
from scenarios.sharding_kind import ShardingKind
from tests.vectors.fields import COUNT, FLAG, NUMBER, SIZE, TEXT, Each, Fields, Is, Maybe, one_of
from tests.vectors.files import Case, Check, File, Format

ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "uint8": 1}
RUN_SIZES = [2, 6, 3]


def is_run(run: Any) -> bool:
    """Whether it counts shards that are alike, and holds numbers only."""
    return (
        isinstance(run, list)
        and len(run) == 1 + len(RUN_SIZES)
        and type(run[0]) is int
        and run[0] > 0
        and all(isinstance(part, list) for part in run[1:])
        and [len(part) for part in run[1:]] == RUN_SIZES
        and all(type(number) in (int, float) for part in run[1:] for number in part)
    )


RUN = Is("[count, [rows, columns], 6 perf numbers, 3 storage numbers]", is_run)

CASE = Fields(
    {
        "id": TEXT,
        "world_size": SIZE,
        "local_world_size": SIZE,
        "sharding_type": one_of(*map(str, ShardingKind)),
        "partition_by": one_of(*map(str, {kind.partition_by for kind in ShardingKind})),
        "rows": COUNT,
        "dim": SIZE,
        "dtype": one_of(*ELEMENT_BYTES),
        "col_wise_shard_dim": Maybe(SIZE),
        "input_lengths": Each(NUMBER),
        "num_poolings": Each(NUMBER),
        "batch_size": COUNT,
        "compute_device": one_of("cpu", *DEVICES_WITH_HBM),
        "compute_kernel": one_of(*map(str, ComputeKernel)),
        "cache_load_factor": Maybe(NUMBER),
        "is_pooled": FLAG,
        "is_weighted": FLAG,
        "shards_rle": Each(RUN),
    },
    {"tag": TEXT},
)


def option_of(case: Case, topology: Topology) -> ShardingOption:
    rows, dim, kind = case["rows"], case["dim"], ShardingKind(case["sharding_type"])
    assert kind.partition_by == case["partition_by"]
    return ShardingOption(
        name="t",
        tensor=TensorShape((rows, dim), ELEMENT_BYTES[case["dtype"]]),
        module=("", None),
        input_lengths=case["input_lengths"],
        batch_size=case["batch_size"],
        sharding_type=kind,
        partition_by=case["partition_by"],
        compute_kernel=case["compute_kernel"],
        shards=cut(kind, rows, dim, topology, min_partition=case["col_wise_shard_dim"]),
        is_pooled=case["is_pooled"],
    )


def estimate(case: Case) -> ShardingOption:
    topology = Topology(case["world_size"], case["compute_device"], local_world_size=case["local_world_size"])
    constraints = {
        "t": ParameterConstraints(
            num_poolings=case["num_poolings"],
            is_weighted=case["is_weighted"],
            cache_params=CacheParams(load_factor=case["cache_load_factor"]),
        )
    }
    option = option_of(case, topology)
    EmbeddingPerfEstimator(topology, constraints).estimate([option])
    EmbeddingStorageEstimator(topology, constraints).estimate([option])
    return option


def check(case: Case) -> None:
    option = estimate(case)
    expected = [run[1:] for run in case["shards_rle"] for _ in range(run[0])]
    assert [list(shard.size) for shard in option.shards] == [size for size, _, _ in expected]
    for shard, (_, perf, storage) in zip(option.shards, expected, strict=True):
        got, held = known_perf(shard), known_storage(shard)
        parts = [got.fwd_compute, got.fwd_comms, got.bwd_compute, got.bwd_comms]
        assert [*parts, got.input_dist_comms, got.prefetch_compute] == perf
        assert [held.hbm, held.ddr, held.ssd] == storage


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    CASE.check(case, where)
    yield "", partial(check, case)


FORMAT = Format(
    name="estimator",
    cases="cases",
    signature=frozenset({"shards_rle"}),
    head={"about": TEXT},
    replays=replays,
)
