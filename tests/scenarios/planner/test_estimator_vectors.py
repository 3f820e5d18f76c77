"""Replays every case of estimator.json: the shards' sizes, perf and storage are TorchRec 1.8.0's."""

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.planner.perf_estimator import EmbeddingPerfEstimator
from scenarios.planner.shapes import cut
from scenarios.planner.storage_estimator import EmbeddingStorageEstimator
from scenarios.planner.topology import Topology
from scenarios.planner.types import (
    PARTITION_BY,
    CacheParams,
    ParameterConstraints,
    ShardingOption,
    ShardingType,
    TensorShape,
    known_perf,
    known_storage,
)

CASES = json.loads((Path(__file__).parents[2] / "data" / "estimator.json").read_text())["cases"]
FIELDS = {
    "id", "world_size", "local_world_size", "sharding_type", "partition_by", "rows", "dim", "dtype",
    "col_wise_shard_dim", "input_lengths", "num_poolings", "batch_size", "compute_device", "compute_kernel",
    "cache_load_factor", "is_pooled", "is_weighted", "shards_rle",
}  # fmt: skip
ELEMENT_BYTES = {"fp32": 4, "fp16": 2}


def option_of(case: dict[str, Any], topology: Topology) -> ShardingOption:
    rows, dim, kind = case["rows"], case["dim"], ShardingType(case["sharding_type"])
    assert PARTITION_BY[kind] == case["partition_by"]
    return ShardingOption(
        name="t",
        tensor=TensorShape((rows, dim), ELEMENT_BYTES[case["dtype"]]),
        module=("", None),
        input_lengths=case["input_lengths"],
        batch_size=case["batch_size"],
        sharding_type=kind,
        partition_by=case["partition_by"],
        compute_kernel=case["compute_kernel"],
        shards=cut(kind, rows, dim, topology, case["col_wise_shard_dim"]),
        is_pooled=case["is_pooled"],
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['sharding_type']}")
def test_shards_cost_what_1_8_0_says(case: dict[str, Any]) -> None:
    assert set(case) == FIELDS
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
    expected = [run[1:] for run in case["shards_rle"] for _ in range(run[0])]
    assert [list(shard.size) for shard in option.shards] == [size for size, _, _ in expected]
    for shard, (_, perf, storage) in zip(option.shards, expected, strict=True):
        got, held = known_perf(shard), known_storage(shard)
        parts = [got.fwd_compute, got.fwd_comms, got.bwd_compute, got.bwd_comms]
        assert [*parts, got.input_dist_comms, got.prefetch_compute] == perf  # to the last bit
        assert [held.hbm, held.ddr, held.ssd] == storage
