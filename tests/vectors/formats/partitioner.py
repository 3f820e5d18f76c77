"""Proposals, and where GreedyPerfPartitioner put their shards: as 1.8.0, and as 0.2.0 where that was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from scenarios.compute_kernel import ComputeKernel
from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.topology import CustomTopologyData, DeviceHardware, Topology
from scenarios.planner.types import (
    Perf,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
    SortBy,
    Storage,
)
from scenarios.sharding_kind import ShardingKind
from tests.vectors.fields import COUNT, FLAG, NUMBER, PROSE, SIZE, TEXT, WHOLE, Each, Fields, Maybe, VectorError, one_of
from tests.vectors.files import Case, Check, File, Format

ERRORS = {"PlannerError": PlannerError, "RuntimeError": RuntimeError, "AssertionError": AssertionError}
# Why ours was raised, where an error is no PlannerError, which says so itself.
SENTENCES = {
    "For a uniform partition": "uniform_shard_count",
    "Unexpected sharding option group": "unknown_partition_by",
}
# A sentence of 0.2.0 whose category the known recordings do not name.
COHOST = "unexpected cohost sharding type: "
# Where a recorded message goes on with the library's own repr of an object.
REPRS = ("ShardingOptionGroup(", ", perf: P")

OPTION = Fields(
    {
        "name": TEXT,
        "path": TEXT,
        "dependency": Maybe(TEXT),
        "sharding_type": one_of(*map(str, ShardingKind)),
        "partition_by": TEXT,  # also unknown ones: that they are refused is recorded
        "compute_kernel": one_of(*map(str, ComputeKernel)),
        "num_shards": COUNT,
        "shards": Each(Each(NUMBER)),
    }
)
OUTCOMES = {
    "ok": Fields({"status": TEXT, "ranks": Each(Each(COUNT)), "devices": Each(Each(NUMBER))}),
    "error": Fields(
        {
            "status": TEXT,
            "exception": one_of(*ERRORS),
            "category": TEXT,
            "error_type": Maybe(one_of(*map(str, PlannerErrorType))),
            "message": TEXT,
            "ranks_left_behind": Maybe(Each(Each(Maybe(COUNT)))),
        }
    ),
}


class Outcome:
    """Its fields depend on its status."""

    def check(self, value: Any, where: str) -> None:
        status = value.get("status") if isinstance(value, dict) else None
        one_of(*OUTCOMES).check(status, f"{where}.status")
        OUTCOMES[str(status)].check(value, where)


CASE = Fields(
    {
        "id": TEXT,
        "tag": TEXT,
        "world_size": SIZE,
        "local_world_size": SIZE,
        "pod_size": Maybe(SIZE),
        "sort_by": one_of(*map(str, SortBy)),
        "balance_modules": FLAG,
        "hbm_per_device": Maybe(WHOLE),
        "devices": Each(Each(WHOLE)),
        "options": Each(OPTION),
        "expected": Outcome(),
    },
    {"expected_v0_2_0": Outcome()},
)


def pad(row: list[Any], length: int) -> list[Any]:
    """With the zeros at its end that were left out."""
    if len(row) > length:
        raise VectorError(f"the row {row} has {len(row)} numbers, expected at most {length}")
    return row + [0] * (length - len(row))


def rows_of(rows: list[list[Any]], count: int, length: int) -> list[list[Any]]:
    """One row stands for all."""
    rows = rows * count if len(rows) == 1 else rows
    if len(rows) != count:
        raise VectorError(f"{len(rows)} rows, expected {count}")
    return [pad(row, length) for row in rows]


def option_of(case: Case) -> ShardingOption:
    return ShardingOption(
        name=case["name"],
        tensor=None,
        module=(case["path"], None),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type=case["sharding_type"],
        partition_by=case["partition_by"],
        compute_kernel=case["compute_kernel"],
        shards=[
            Shard([1, 1], [0, 0], Storage(*row[:3]), Perf(*row[3:]))
            for row in rows_of(case["shards"], case["num_shards"], 9)
        ],
        dependency=case["dependency"],
    )


def topology_of(case: Case) -> Topology:
    world = case["world_size"]
    rows = rows_of(case["devices"], world, 3)
    caps = {name: [row[tier] for row in rows] for tier, name in enumerate(("hbm_cap", "ddr_cap", "ssd_cap"))}
    return Topology(
        world,
        "cuda",
        local_world_size=case["local_world_size"],
        pod_size=case["pod_size"],
        custom_topology_data=CustomTopologyData(caps, world),
    )


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    CASE.check(case, where)
    versions = file.say("versions")
    if "expected_v0_2_0" in case and "torchrec_old" not in versions:
        raise VectorError(f"{where}.expected_v0_2_0: expected versions.torchrec_old beside the cases")
    yield versions["torchrec"], partial(check, case, case["expected"], "1.8.0", 9)
    if "expected_v0_2_0" in case:
        yield versions["torchrec_old"], partial(check, case, case["expected_v0_2_0"], "0.2.0", 3)


def check(case: Case, expected: dict[str, Any], release: str, width: int) -> None:
    partitioner = GreedyPerfPartitioner(case["sort_by"], case["balance_modules"], release=release)
    proposal, topology = [option_of(option) for option in case["options"]], topology_of(case)
    before = [device.storage for device in topology.devices]
    if expected["status"] == "ok":
        assert partitioner.partition(proposal, topology, case["hbm_per_device"]) is proposal
        assert [[shard.rank for shard in option.shards] for option in proposal] == expected["ranks"]
        devices = [row_of(device, width) for device in partitioner.devices]
        assert devices == [pad(row, width) for row in expected["devices"]]
    else:
        with pytest.raises(ERRORS[expected["exception"]]) as caught:
            partitioner.partition(proposal, topology, case["hbm_per_device"])
        check_error(caught.value, expected)
        assert all(shard.rank is None for option in proposal for shard in option.shards)
    assert [device.storage for device in topology.devices] == before


def row_of(device: DeviceHardware, width: int) -> list[float]:
    storage, perf = device.storage, device.perf
    if width == 3:
        assert storage.ssd == 0
        return [storage.hbm, storage.ddr, perf.total]
    parts = [perf.fwd_compute, perf.fwd_comms, perf.bwd_compute, perf.bwd_comms]
    return [storage.hbm, storage.ddr, storage.ssd, *parts, perf.input_dist_comms, perf.prefetch_compute]


def check_error(error: BaseException, expected: dict[str, Any]) -> None:
    message = expected["message"]
    for mark in REPRS:
        message = message.split(mark)[0]
    assert str(error).startswith(message)
    if isinstance(error, PlannerError):
        assert (error.kind, error.error_type) == (expected["category"], expected["error_type"] or "partition")
    elif isinstance(error, RuntimeError):
        kinds = [kind for start, kind in SENTENCES.items() if str(error).startswith(start)]
        assert kinds == [expected["category"]] or (str(error).startswith(COHOST) and not kinds)


FORMAT = Format(
    name="partitioner",
    cases="cases",
    signature=frozenset({"options", "devices", "expected"}),
    head={
        "about": TEXT,
        "encoding": PROSE,
        "versions": Fields(
            {"torchrec": one_of("1.8.0", "1.9.2"), "torch": TEXT},
            {"torchrec_old": one_of("0.2.0")},
        ),
    },
    replays=replays,
)
