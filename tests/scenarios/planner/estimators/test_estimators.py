"""Estimates that the vectors leave out, as TorchRec 1.8.0 gave them: pods, weights, caches, pipelines, inference."""

from __future__ import annotations

from dataclasses import dataclass
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

POD = {"world_size": 8, "pod_size": 2}


@dataclass
class Stats:
    expected_lookups: int = 1000

    def expected_miss_rate(self, clf: float) -> float:
        return 1 - clf


def estimated(
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


@pytest.mark.parametrize(
    ("given", "perf", "storage"),
    [
        (
            {"kind": "table_row_wise", "topology": POD},
            [
                0.00010312866074850195,
                0.006103515625,
                0.0002062573214970039,
                0.006270562791771182,
                0.00030517578125,
                0.0,
            ],
            [130560, 0, 0],
        ),
        (
            {"kind": "grid_shard", "topology": POD},
            [
                0.00010312866074850195,
                0.006103515625,
                0.0002062573214970039,
                0.006270562791771182,
                0.00030517578125,
                0.0,
            ],
            [130560, 0, 0],
        ),
        (
            {"kind": "data_parallel", "kernel": "dense", "topology": POD},
            [5.209592140903707e-05, 0, 0.00010419184281807414, 0.03351149883291527, 0.0, 0.0],
            [264704, 0, 0],
        ),
        (
            {"is_weighted": True},
            [0.00012226593800080125, 0.00244140625, 0.0003790244078024839, 0.00244140625, 0.000152587890625, 0.0],
            [290816, 0, 0],
        ),
        (
            {"is_weighted": True, "topology": {"weighted_feature_bwd_compute_multiplier": 1.5}},
            [0.00012226593800080125, 0.00244140625, 0.0005012903458032851, 0.00244140625, 0.000152587890625, 0.0],
            [290816, 0, 0],
        ),
        (
            {"kernel": "key_value", "cache": CacheParams(load_factor=0.5)},
            [1.1005859374999998, 0.00244140625, 2.2011718749999996, 0.00244140625, 0.000152587890625, 0.0],
            [34816, 0, 268000],
        ),
        (
            {
                "kind": "row_wise",
                "kernel": "fused_uvm_caching",
                "cache": CacheParams(load_factor=0.5, stats=Stats()),
            },
            [
                *(0.0009957632797783233, 0.00244140625, 0.0019915265595566467, 0.004054337451224434),
                *(0.000152587890625, 0.0009313225746154785),
            ],
            [68280, 64000, 0],
        ),
        (
            {"kernel": "fused_uvm_caching", "cache": CacheParams(load_factor=0.5, prefetch_pipeline=True)},
            [0.00011982061924078524, 0.00244140625, 0.00023964123848157047, 0.00244140625, 0.000152587890625, 0.0],
            [174816, 256000, 0],
        ),
        (
            {"kernel": "fused_uvm_caching", "cache": CacheParams(load_factor=0.0)},
            [0.03358721733093261, 0.00244140625, 0.06717443466186522, 0.00244140625, 0.000152587890625, 0.0],
            [93216, 256000, 0],
        ),
        (
            {"kernel": "fused_uvm_caching", "cache": CacheParams(load_factor=0.5), "is_inference": True},
            [0.0023138664253817944, 0.00244140625, 0.0, 0.0, 0.000152587890625, 0.0],
            [128000, 256000, 0],
        ),
        (
            {"pipeline": "train_sparse_dist", "at_peak": True},
            [0.00011982061924078524, 0.00244140625, 0.00023964123848157047, 0.00244140625, 0.000152587890625, 0.0],
            [292864, 0, 0],
        ),
        (
            {"pipeline": "train_base"},
            [0.00011982061924078524, 0.00244140625, 0.00023964123848157047, 0.00244140625, 0.000152587890625, 0.0],
            [290816, 0, 0],
        ),
        (
            {"pipeline": "train_sparse_dist", "device": "cpu"},
            [0.002107433244293811, 0.00244140625, 0.004214866488587622, 0.00244140625, 0.000152587890625, 0.0],
            [0, 290816, 0],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_shard_costs_what_1_8_0_said(given: dict[str, Any], perf: list[float], storage: list[int]) -> None:
    shard = estimated(**given).shards[0]
    got, held = known_perf(shard), known_storage(shard)
    parts = [got.fwd_compute, got.fwd_comms, got.bwd_compute, got.bwd_comms]
    assert [*parts, got.input_dist_comms, got.prefetch_compute] == perf
    assert [held.hbm, held.ddr, held.ssd] == storage


def test_rows_of_a_pod_of_one_host_cost_what_they_cost_without_a_pod() -> None:
    """The width of a row-cut group is a pod's: 3997, 2782 and 4726 of TorchRec took the host's in one place only."""
    alone, pod = estimated("table_row_wise"), estimated("table_row_wise", topology={"pod_size": 1})
    assert [(shard.size, shard.perf, shard.storage) for shard in alone.shards] == [
        (shard.size, shard.perf, shard.storage) for shard in pod.shards
    ]
    assert [len(estimated("table_row_wise", topology=POD | {"pod_size": pods}).shards) for pods in (1, 2, 4)] == [
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
    shard = estimated("table_row_wise", topology={"generalized_comms_bandwidths": Faster()}).shards[0]
    rows, across = 4 * 32 * 64 * 4, 2 * 32 * 64 * 4
    assert known_perf(shard).fwd_comms == rows / 7 + across / 2
    assert known_perf(shard).bwd_comms == pytest.approx(rows / 2 + across / 2)
    assert known_perf(shard).input_dist_comms == 4 * 2 * 32 * 8 / 2


def test_an_all_reduce_uses_all_ways_out_of_a_host() -> None:
    basic = BasicCommsBandwidths(inter_host_bw=10.0, intra_host_bw=100.0)
    assert [basic.get_bw(4, world, CollectiveType.ALL_TO_ALL) for world in (2, 4, 8)] == [100, 100, 10]
    assert [basic.get_bw(4, world, CollectiveType.ALL_REDUCE) for world in (2, 8)] == [40, 40]
