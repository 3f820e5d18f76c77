"""Replays every case of partitioner.json, for TorchRec 1.8.0 and, where the case has it, for 0.2.0."""

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.planner.partitioner import GreedyPerfPartitioner
from scenarios.planner.topology import CustomTopologyData, Topology
from scenarios.planner.types import PartitionByType, Perf, PlannerError, Shard, ShardingOption, ShardingType, Storage

CASES = json.loads((Path(__file__).parents[2] / "data" / "partitioner.json").read_text())["cases"]
FIELDS = {
    "id", "tag", "world_size", "local_world_size", "pod_size", "sort_by", "balance_modules", "hbm_per_device",
    "devices", "options", "expected", "expected_v0_2_0",
}  # fmt: skip
OPTION_FIELDS = {
    "name", "path", "dependency", "sharding_type", "partition_by", "compute_kernel", "num_shards", "shards",
}  # fmt: skip
# Where a recorded message goes on with the library's own repr of an object.
REPRS = ("ShardingOptionGroup(", "Shard(size=", ", perf: P")


def padded(row: list[Any], length: int) -> list[Any]:
    assert len(row) <= length
    return row + [0] * (length - len(row))


def option_of(case: dict[str, Any]) -> ShardingOption:
    assert set(case) == OPTION_FIELDS
    assert case["sharding_type"] in set(ShardingType)
    assert case["partition_by"] in {*PartitionByType, "rack"}
    assert case["compute_kernel"] in {"fused", "dense", "key_value"}
    rows = [padded(row, 9) for row in case["shards"]]
    rows = rows * case["num_shards"] if len(rows) == 1 else rows
    assert len(rows) == case["num_shards"]
    return ShardingOption(
        name=case["name"],
        tensor=None,
        module=(case["path"], None),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type=case["sharding_type"],
        partition_by=case["partition_by"],
        compute_kernel=case["compute_kernel"],
        shards=[Shard([1, 1], [0, 0], Storage(*row[:3]), Perf(*row[3:])) for row in rows],
        dependency=case["dependency"],
    )


def topology_of(case: dict[str, Any]) -> Topology:
    world = case["world_size"]
    rows = [padded(row, 3) for row in case["devices"]]
    rows = rows * world if len(rows) == 1 else rows
    caps = {name: [row[tier] for row in rows] for tier, name in enumerate(("hbm_cap", "ddr_cap", "ssd_cap"))}
    return Topology(
        world,
        "cuda",
        local_world_size=case["local_world_size"],
        pod_size=case["pod_size"],
        custom_topology_data=CustomTopologyData(caps, world),
    )


def check(case: dict[str, Any], expected: dict[str, Any], partitioner: GreedyPerfPartitioner, width: int) -> None:
    assert set(case) | {"expected_v0_2_0"} == FIELDS
    proposal, topology = [option_of(option) for option in case["options"]], topology_of(case)
    before = [device.storage for device in topology.devices]
    if expected["status"] == "ok":
        assert set(expected) == {"status", "ranks", "devices"}
        assert partitioner.partition(proposal, topology, case["hbm_per_device"]) is proposal
        assert [[shard.rank for shard in option.shards] for option in proposal] == expected["ranks"]
        assert [row_of(device, width) for device in partitioner.devices] == [
            padded(row, width) for row in expected["devices"]
        ]
    else:
        assert expected["status"] == "error"
        fails(expected, lambda: partitioner.partition(proposal, topology, case["hbm_per_device"]))
        assert {shard.rank for option in proposal for shard in option.shards} <= {None}
    assert [device.storage for device in topology.devices] == before


def row_of(device: Any, width: int) -> list[float]:
    storage, perf = device.storage, device.perf
    if width == 3:
        assert storage.ssd == 0
        return [storage.hbm, storage.ddr, perf.total]
    parts = [perf.fwd_compute, perf.fwd_comms, perf.bwd_compute, perf.bwd_comms]
    return [storage.hbm, storage.ddr, storage.ssd, *parts, perf.input_dist_comms, perf.prefetch_compute]


def fails(expected: dict[str, Any], partition: Any) -> None:
    assert set(expected) == {"status", "exception", "category", "error_type", "message", "ranks_left_behind"}
    kind = {"PlannerError": PlannerError, "RuntimeError": RuntimeError, "AssertionError": AssertionError}
    with pytest.raises(kind[expected["exception"]]) as caught:
        partition()
    message = expected["message"]
    for mark in REPRS:
        message = message.split(mark)[0]
    assert str(caught.value).startswith(message)
    if isinstance(caught.value, PlannerError):
        assert caught.value.kind == expected["category"]
        assert caught.value.error_type == (expected["error_type"] or "partition")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['tag']}")
def test_a_partition_is_the_one_of_1_8_0(case: dict[str, Any]) -> None:
    check(case, case["expected"], GreedyPerfPartitioner(case["sort_by"], case["balance_modules"]), 9)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "expected_v0_2_0" in case], ids=lambda case: f"{case['id']}-{case['tag']}"
)
def test_a_partition_is_the_one_of_0_2_0(case: dict[str, Any]) -> None:
    partitioner = GreedyPerfPartitioner(case["sort_by"], case["balance_modules"], release="0.2.0")
    check(case, case["expected_v0_2_0"], partitioner, 3)
