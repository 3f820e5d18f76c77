"""Estimates that the vectors leave out, as TorchRec 1.8.0 gave them: pods, weights, caches, pipelines, inference."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scenarios.planner import (
    BasicCommsBandwidths,
    CacheParams,
    CollectiveType,
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
    ParameterConstraints,
    PipelineType,
    ShardingOption,
    TensorShape,
    Topology,
)
from scenarios.planner.search.enumerator import cut
from scenarios.planner.types import known_perf, known_storage
from scenarios.sharding_kind import ShardingKind

COSTS = Path(__file__).parents[3] / "data" / "shard_costs.json"
POD = {"world_size": 8, "pod_size": 2}


@dataclass
class Stats:
    expected_lookups: int = 1000

    def expected_miss_rate(self, clf: float) -> float:
        return 1 - clf


def estimate(
    kind: str = "table_wise",
    kernel: str = "fused",
    *,
    device: str = "cuda",
    topology: dict[str, Any] | None = None,
    is_weighted: bool = False,
    cache: CacheParams | None = None,
    pipeline: str = "none",
    at_peak: bool = False,
    is_inference: bool = False,
) -> ShardingOption:
    """A table [1000, 64] of float32, 2 ids a sample, 32 samples a rank, 2 ranks a host."""
    on = Topology(compute_device=device, **{"world_size": 4, "local_world_size": 2, **(topology or {})})
    constraints = {"t": ParameterConstraints(is_weighted=is_weighted, cache_params=cache)}
    option = ShardingOption(
        name="t",
        tensor=TensorShape((1000, 64)),
        module=("", None),
        input_lengths=[2.0],
        batch_size=32,
        sharding_type=kind,
        partition_by=ShardingKind(kind).partition_by,
        compute_kernel=kernel,
        shards=cut(kind, 1000, 64, on),
    )
    EmbeddingPerfEstimator(on, constraints, is_inference).estimate([option], {})
    storage = EmbeddingStorageEstimator(on, constraints, PipelineType(pipeline), at_peak, is_inference)
    storage.estimate([option], {})
    return option


@pytest.mark.parametrize("case", json.loads(COSTS.read_text()), ids=lambda case: "-".join(case["given"]))
def test_a_shard_costs_what_1_8_0_said(case: dict[str, Any]) -> None:
    given = case["given"]
    if cache := given.get("cache"):
        given = given | {"cache": CacheParams(**cache | {"stats": Stats() if "stats" in cache else None})}
    shard = estimate(**given).shards[0]
    got, held = known_perf(shard), known_storage(shard)
    parts = [got.fwd_compute, got.fwd_comms, got.bwd_compute, got.bwd_comms]
    assert [*parts, got.input_dist_comms, got.prefetch_compute] == case["perf"]
    assert [held.hbm, held.ddr, held.ssd] == case["storage"]


def test_rows_of_a_pod_of_one_host_cost_what_they_cost_without_a_pod() -> None:
    """The width of a row-cut group is a pod's: 3997, 2782 and 4726 of TorchRec took the host's in one place only."""
    alone, pod = estimate("table_row_wise"), estimate("table_row_wise", topology={"pod_size": 1})
    assert [(shard.size, shard.perf, shard.storage) for shard in alone.shards] == [
        (shard.size, shard.perf, shard.storage) for shard in pod.shards
    ]
    assert [len(estimate("table_row_wise", topology=POD | {"pod_size": pods}).shards) for pods in (1, 2, 4)] == [
        2,
        4,
        8,
    ]


class Faster:
    """Bandwidths that a user measured: a reduce-scatter inside a host at 7 bytes/ms, all else at 2."""

    inter_host_bw = intra_host_bw = 2.0

    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        inside = collective_type is CollectiveType.REDUCE_SCATTER and local_world_size == world_size
        return 7.0 if inside else 2.0


def test_measured_bandwidths_stand_for_the_two_figures() -> None:
    shard = estimate("table_row_wise", topology={"generalized_comms_bandwidths": Faster()}).shards[0]
    rows, across = 4 * 32 * 64 * 4, 2 * 32 * 64 * 4
    assert known_perf(shard).fwd_comms == rows / 7 + across / 2
    assert known_perf(shard).bwd_comms == pytest.approx(rows / 2 + across / 2)
    assert known_perf(shard).input_dist_comms == 4 * 2 * 32 * 8 / 2


def test_an_all_reduce_uses_all_ways_out_of_a_host() -> None:
    basic = BasicCommsBandwidths(inter_host_bw=10.0, intra_host_bw=100.0)
    assert [basic.get_bw(4, world, CollectiveType.ALL_TO_ALL) for world in (2, 4, 8)] == [100, 100, 10]
    assert [basic.get_bw(4, world, CollectiveType.ALL_REDUCE) for world in (2, 8)] == [40, 40]
