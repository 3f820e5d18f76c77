"""Laws of the partitioner that no single vector shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.topology import CustomTopologyData, DeviceHardware, Topology
from scenarios.planner.types import (
    Perf,
    PlannerError,
    Shard,
    ShardingOption,
    Storage,
    known_perf,
    known_storage,
)
from scenarios.sharding_kind import ShardingKind

MS = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 7.5])


def option(
    name: str, kind: str, shards: Sequence[tuple[int, int, float]], dependency: str | None = None, kernel: str = "fused"
) -> ShardingOption:
    """Shards as (hbm bytes, ddr bytes, ms)."""
    return ShardingOption(
        name,
        None,
        ("ebc", None),
        [1.0],
        1,
        kind,
        ShardingKind(kind).partition_by,
        kernel,
        [Shard([1, 1], [0, 0], Storage(hbm, ddr), Perf(ms, 0.0, 0.0, 0.0)) for hbm, ddr, ms in shards],
        dependency=dependency,
    )


def ranks_of(proposal: Sequence[ShardingOption]) -> list[list[int | None]]:
    return [[shard.rank for shard in each.shards] for each in proposal]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[ShardingOption], Topology]:
    local, hosts = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    world = local * hosts + draw(st.integers(0, local - 1))  # perhaps a ragged tail
    pods = draw(st.none() | st.integers(1, hosts))
    group = local * (pods or 1)
    counts = {
        "row_wise": world,
        "data_parallel": world,
        "table_wise": 1,
        "column_wise": draw(st.integers(1, 4)),
        "table_row_wise": group,
        "table_column_wise": draw(st.integers(1, 4)),
        "grid_shard": group * draw(st.integers(1, 3)),
    }
    proposal = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(sorted(counts)), min_size=1, max_size=8))):
        shard = st.tuples(st.integers(0, 60), st.integers(0, 40), MS)
        shards = draw(st.lists(shard, min_size=counts[kind], max_size=counts[kind]))
        by_host = ShardingKind(kind).partition_by == "host"
        dependency = draw(st.sampled_from([None, "tower"])) if by_host else None
        kernel = draw(st.sampled_from(["fused", "key_value"])) if kind == "column_wise" else "fused"
        proposal.append(option(f"t{index}", kind, shards, dependency, kernel))
        for made in proposal[-1].shards:
            made.storage = known_storage(made) + Storage(0, 0, draw(st.integers(0, 9)))
    cap = st.lists(st.integers(-1, 200), min_size=world, max_size=world)
    caps = CustomTopologyData({"hbm_cap": draw(cap), "ddr_cap": draw(cap), "ssd_cap": draw(cap)}, world)
    return proposal, Topology(world, "cuda", local_world_size=local, pod_size=pods, custom_topology_data=caps)


@pytest.mark.parametrize("release", ["1.8.0", "0.2.0"])
@given(problem=problems(), before=st.none() | st.integers(0, 9))
def test_a_capacity_is_never_exceeded_and_a_failure_leaves_the_proposal_as_it_was(
    release: str, problem: tuple[list[ShardingOption], Topology], before: int | None
) -> None:
    proposal, topology = problem
    for each in proposal:
        for shard in each.shards:
            shard.rank = before
    partitioner = GreedyPerfPartitioner(release=release)
    try:
        partitioner.partition(proposal, topology)
    except (PlannerError, RuntimeError):
        assert {rank for ranks in ranks_of(proposal) for rank in ranks} == {before}
        assert partitioner.devices == []
        return
    used = [Storage(0, 0)] * topology.world_size
    for each in proposal:
        for shard in each.shards:
            assert shard.rank is not None
            assert shard.storage is not None
            used[shard.rank] = used[shard.rank] + shard.storage
    for device, left, taken in zip(topology.devices, partitioner.devices, used, strict=True):
        assert taken == Storage(0, 0) or taken.fits_in(device.storage)
        assert left.storage + taken == device.storage


@given(problem=problems(), sort_by=st.sampled_from(["storage", "perf"]), balance=st.booleans())
def test_a_partition_is_the_same_each_time(
    problem: tuple[list[ShardingOption], Topology], sort_by: str, balance: bool
) -> None:
    proposal, topology = problem
    outcomes: list[tuple[object, list[list[int | None]]]] = []
    for _ in range(2):
        again = deepcopy(proposal)
        partitioner = GreedyPerfPartitioner(sort_by, balance)
        try:
            partitioner.partition(again, topology)
        except PlannerError as error:
            outcomes.append((str(error), ranks_of(again)))
        else:
            outcomes.append((partitioner.devices, ranks_of(again)))
    assert outcomes[0] == outcomes[1]


def scan(proposal: Sequence[ShardingOption], topology: Topology) -> list[list[int]] | None:
    """Place by the device rule said plainly: for each shard, look at every rank."""
    devices = [DeviceHardware(device.rank, device.storage, device.perf) for device in topology.devices]
    ranks: dict[str, list[int]] = {}
    for each in sorted(proposal, key=lambda item: item.total_storage, reverse=True):
        for shard in each.shards:
            assert shard.storage is not None
            fitting = [device for device in devices if shard.storage.fits_in(device.storage)]
            if not fitting:
                return None
            local = topology.local_world_size
            best = min(fitting, key=lambda device: (device.perf.total, device.rank % local, device.rank))
            best.storage, best.perf = best.storage - shard.storage, best.perf + known_perf(shard)
            ranks.setdefault(each.name, []).append(best.rank)
    return [ranks[each.name] for each in proposal]


@given(data=st.data(), local=st.integers(1, 4), hosts=st.integers(1, 4))
def test_the_queue_finds_what_a_scan_of_all_ranks_finds(data: st.DataObject, local: int, hosts: int) -> None:
    shard = st.tuples(st.integers(0, 50), st.integers(0, 50), MS)
    tables = data.draw(st.lists(st.lists(shard, min_size=1, max_size=4), min_size=1, max_size=20))
    proposal = [option(f"t{index}", "column_wise", shards) for index, shards in enumerate(tables)]
    for each in proposal:
        for made in each.shards:
            made.perf = Perf(*data.draw(st.tuples(MS, MS, MS, MS, MS, MS)))
    caps = {
        name: data.draw(st.lists(st.integers(-1, 150), min_size=local * hosts, max_size=local * hosts))
        for name in ("hbm_cap", "ddr_cap")
    }
    custom = CustomTopologyData(caps, local * hosts)
    topology = Topology(local * hosts, "cuda", local_world_size=local, custom_topology_data=custom)
    expected = scan(proposal, topology)
    if expected is None:
        with pytest.raises(PlannerError, match="Device partition failed"):
            GreedyPerfPartitioner().partition(proposal, topology)
    else:
        assert ranks_of(GreedyPerfPartitioner().partition(proposal, topology)) == expected


def test_a_host_that_filled_up_half_way_gives_everything_back() -> None:
    """Host 0 has room for the sum, but not for one shard; nothing of the attempt may stay there."""
    custom = CustomTopologyData({"hbm_cap": [100, 10, 50, 50]}, 4)
    topology = Topology(4, "cuda", local_world_size=2, custom_topology_data=custom)
    proposal = [option("t0", "table_row_wise", [(40, 0, 1.0)] * 2), option("t1", "table_wise", [(60, 0, 1.0)])]
    partitioner = GreedyPerfPartitioner()
    partitioner.partition(proposal, topology)
    assert ranks_of(proposal) == [[2, 3], [0]]
    assert [device.storage.hbm for device in partitioner.devices] == [40, 10, 10, 10]


def test_hbm_per_device_replaces_every_ranks_memory() -> None:
    topology = Topology(2, "cuda", hbm_cap=10)
    proposal = [option("t0", "table_wise", [(50, 0, 1.0)])]
    with pytest.raises(PlannerError):
        GreedyPerfPartitioner().partition(proposal, topology)
    GreedyPerfPartitioner().partition(proposal, topology, hbm_per_device=50)
    assert ranks_of(proposal) == [[0]]
    assert [device.storage.hbm for device in topology.devices] == [10, 10]


def test_a_shard_that_fits_nowhere_is_named_with_its_table() -> None:
    proposal = [option("small", "table_wise", [(1, 0, 1.0)]), option("large", "table_wise", [(8, 0, 1.0)])]
    with pytest.raises(PlannerError) as caught:
        GreedyPerfPartitioner().partition(proposal, Topology(2, "cuda", hbm_cap=5, ddr_cap=0, ssd_cap=0))
    assert caught.value.kind == "device_no_fit"
    assert str(caught.value) == (
        "Device partition failed. Couldn't find a rank for shard Shard size: (1, 1), offset: (0, 0), storage:"
        " Storage(hbm=8, ddr=0, ssd=0), perf: Perf(fwd_compute=1.0, fwd_comms=0.0, bwd_compute=0.0, bwd_comms=0.0,"
        " input_dist_comms=0.0, prefetch_compute=0.0), rank: None of table large, largest device storage:"
        " Storage(hbm=5, ddr=0, ssd=0)"
    )


def test_0_2_0_names_a_shard_that_fits_nowhere_and_what_every_rank_has_left() -> None:
    proposal = [option("small", "table_wise", [(2, 0, 1.5)]), option("large", "table_wise", [(8, 0, 1.0)] * 2)]
    with pytest.raises(PlannerError) as caught:
        GreedyPerfPartitioner(release="0.2.0").partition(proposal, Topology(2, "cuda", hbm_cap=9, ddr_cap=3, ssd_cap=0))
    assert str(caught.value) == (
        "Device partition failed. Couldn't find a rank for shard Shard(size=[1, 1], offset=[0, 0],"
        " storage=Storage(hbm=2, ddr=0), perf=1.5, rank=None), devices: [DeviceHardware(rank=0,"
        " storage=Storage(hbm=1, ddr=3), perf=1.0), DeviceHardware(rank=1, storage=Storage(hbm=1, ddr=3), perf=1.0)]"
    )


@pytest.mark.parametrize(
    ("perf", "shard", "charged"),
    [
        (Perf(0, 0, 0, 0, 0, 0), "0", "0"),
        (Perf(0.0, 0, 0, 0, 0, 0), "0.0", "0.0"),
        (Perf(3, 0, 0, 1, 0, 0), "4", "4"),
        (Perf(1, 2.5, 0, 0, 0, 0), "3.5", "3.5"),
    ],
)
def test_0_2_0_prints_a_perf_as_whole_as_it_was_given(perf: Perf, shard: str, charged: str) -> None:
    """A rank's is 0 until it is charged (TorchRec 0.2.0, planner/types.py)."""
    proposal = [option("t0", "column_wise", [(4, 0, 0.0)] * 2)]
    for each in proposal[0].shards:
        each.perf = perf
    with pytest.raises(PlannerError) as caught:
        GreedyPerfPartitioner(release="0.2.0").partition(proposal, Topology(1, "cuda", hbm_cap=5, ddr_cap=0, ssd_cap=0))
    assert str(caught.value) == (
        "Device partition failed. Couldn't find a rank for shard Shard(size=[1, 1], offset=[0, 0],"
        f" storage=Storage(hbm=4, ddr=0), perf={shard}, rank=None), devices: [DeviceHardware(rank=0,"
        f" storage=Storage(hbm=1, ddr=0), perf={charged})]"
    )


def test_only_host_groups_may_have_several_options() -> None:
    proposal = [option(name, "table_wise", [(1, 0, 1.0)], dependency="tower") for name in ("t0", "t1")]
    with pytest.raises(AssertionError) as assertion:
        GreedyPerfPartitioner().partition(proposal, Topology(1, "cuda"))
    assert str(assertion.value) == (
        "Unexpected length for sharding options: 2: ebc.t0, ebc.t1 of Storage(hbm=2, ddr=0, ssd=0)"
    )
    assert ranks_of(proposal) == [[None], [None]]
    proposal = [option(name, "grid_shard", [(1, 0, 1.0)], dependency="tower") for name in ("t0", "t1")]
    with pytest.raises(PlannerError) as error:
        GreedyPerfPartitioner().partition(proposal, Topology(1, "cuda"))
    assert error.value.kind == "group_length"
    assert str(error.value) == (
        "Unexpected length for sharding options: 2. Length needs to be 1: ebc.t0, ebc.t1 of"
        " Storage(hbm=2, ddr=0, ssd=0)"
    )


def test_ties_fall_by_the_number_in_the_host_and_inside_a_pod_by_the_number_in_the_pod() -> None:
    topology = Topology(4, "cuda", local_world_size=2, pod_size=2)
    by_device = [option("t0", "column_wise", [(1, 0, 1.0)] * 4)]
    by_host = [option("t0", "table_column_wise", [(1, 0, 1.0)] * 4)]
    assert ranks_of(GreedyPerfPartitioner().partition(by_device, topology)) == [[0, 2, 1, 3]]
    assert ranks_of(GreedyPerfPartitioner().partition(by_host, topology)) == [[0, 1, 2, 3]]


def test_a_host_that_is_overdrawn_as_a_whole_takes_nothing() -> None:
    custom = CustomTopologyData({"ddr_cap": [0, -1]}, 2)
    topology = Topology(2, "cuda", custom_topology_data=custom)
    with pytest.raises(PlannerError, match="can't find a host"):
        GreedyPerfPartitioner().partition([option("t0", "table_column_wise", [(1, 0, 1.0)])], topology)


def test_a_grid_without_a_whole_host_is_said() -> None:
    """TorchRec 1.8.0 ends with an IndexError."""
    proposal = [option("t0", "grid_shard", [(1, 0, 1.0)] * 4)]
    with pytest.raises(PlannerError) as caught:
        GreedyPerfPartitioner().partition(proposal, Topology(3, "cuda", local_world_size=2, pod_size=2))
    assert caught.value.kind == "no_hosts"


def test_a_pod_is_not_larger_than_the_world() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Topology(2, "cuda", local_world_size=1, pod_size=3)
    assert str(caught.value) == "pod_size=3 cannot be greater than world_size=2"


def test_groups_are_sorted_by_the_sum_of_their_shards_totals() -> None:
    """Added up field by field the two would tie, and "a" would come first."""
    parts = {"a": [(0.7, 0.6), (0.7, 0.6), (0.1, 0.2)], "b": [(0.1, 0.6), (0.2, 0.7), (1.1, 0.2)]}
    proposal = [option(name, "column_wise", [(1, 0, 0.0)] * 3) for name in parts]
    for each in proposal:
        for shard, (forward, backward) in zip(each.shards, parts[each.name], strict=True):
            shard.perf = Perf(forward, 0.0, backward, 0.0)
    assert proposal[0].total_perf < proposal[1].total_perf
    GreedyPerfPartitioner("perf").partition(proposal, Topology(9, "cuda"))
    assert ranks_of(proposal) == [[3, 4, 5], [0, 1, 2]]


def test_0_2_0_takes_a_perf_of_one_number_and_1_8_0_says_that_it_does_not() -> None:
    proposal = [option(f"t{index}", "table_wise", [(1, 0, 0.0)]) for index in range(3)]
    for each, ms in zip(proposal, (3.0, 1.0, 1.0), strict=True):
        each.shards[0].perf = ms
    partitioner = GreedyPerfPartitioner(release="0.2.0")
    assert partitioner.partition(proposal, Topology(2, "cuda")) is proposal
    assert ranks_of(proposal) == [[0], [1], [1]]
    assert [device.perf.total for device in partitioner.devices] == [3.0, 2.0]
    with pytest.raises(ValueError, match=r".") as caught:
        GreedyPerfPartitioner().partition(proposal, Topology(2, "cuda"))
    assert str(caught.value) == (
        "Shard size: (1, 1), offset: (0, 0), storage: Storage(hbm=1, ddr=0, ssd=0), perf: 3.0, rank: 0: its perf is"
        " one number, as in release 0.2.0; expected a Perf"
    )


SEEDED = """
from scenarios.planner import *
from scenarios.sharding_kind import ShardingKind
options = [
    ShardingOption(f"t{i}", None, (f"m{i % 3}", None), [1.0], 1, "table_wise", "device", "fused",
                   [Shard([1, 1], [0, 0], Storage(i % 4, 0), Perf(i % 3, 0, 0, 0))])
    for i in range(40)
]
GreedyPerfPartitioner(balance_modules=True).partition(options, Topology(8, "cuda", local_world_size=4))
print([option.shards[0].rank for option in options])
"""


def test_a_partition_does_not_depend_on_the_hash_seed() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", SEEDED], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(printed) == 1


@pytest.mark.parametrize("kind", ["table_wise", "grid_shard"])
def test_a_wrong_type_among_the_options_of_a_host_is_an_error_that_escapes_in_0_2_0_only(kind: str) -> None:
    proposal = [
        option("t0", "table_row_wise", [(1, 0, 1.0)], dependency="tower"),
        option("t1", kind, [(1, 0, 1.0)], dependency="tower"),
    ]
    with pytest.raises(PlannerError, match=r"can't find a host for sharding option group ebc\.t0, ebc\.t1 of"):
        GreedyPerfPartitioner().partition(proposal, Topology(1, "cuda"))
    with pytest.raises(RuntimeError) as caught:
        GreedyPerfPartitioner(release="0.2.0").partition(proposal, Topology(1, "cuda"))
    assert str(caught.value) == f"unexpected cohost sharding type: {kind}: ebc.t1"


def test_an_estimate_that_is_missing_is_said() -> None:
    proposal = [option("t0", "table_wise", [(1, 0, 1.0)])]
    proposal[0].shards[0].perf = None
    with pytest.raises(ValueError, match="its perf has not been estimated"):
        GreedyPerfPartitioner().partition(proposal, Topology(1, "cuda"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"release": "0.3.0"}, "release '0.3.0': expected one of 1.8.0, 0.2.0"),
        ({"sort_by": "perf", "release": "0.2.0"}, "release 0.2.0 sorts by storage only, and does not balance modules"),
        (
            {"balance_modules": True, "release": "0.2.0"},
            "release 0.2.0 sorts by storage only, and does not balance modules",
        ),
        ({"sort_by": "size"}, "'size' is not a valid SortBy"),
    ],
)
def test_options_that_a_release_has_not_are_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        GreedyPerfPartitioner(**arguments)  # type: ignore[arg-type]
    assert str(caught.value) == sentence


def test_a_ranks_total_is_added_in_perfs_own_order() -> None:
    """0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1: ranks that tie by one order of the parts do not by another."""
    parts = {"a": Perf(0.1, 0.3, 0.2, 0.0), "b": Perf(0.3, 0.1, 0.2, 0.0), "c": Perf(0.0, 0.0, 0.0, 0.0)}
    assert parts["a"].total > parts["b"].total
    proposal = [option(name, "table_wise", [(3 - index, 0, 0.0)]) for index, name in enumerate(parts)]
    for each in proposal:
        each.shards[0].perf = parts[each.name]
    GreedyPerfPartitioner().partition(proposal, Topology(2, "cuda"))
    assert ranks_of(proposal) == [[0], [1], [1]]


@pytest.mark.parametrize("tier", ["hbm", "ddr", "ssd"])
def test_a_rank_that_was_too_full_for_one_shard_takes_the_next_that_just_fits(tier: str) -> None:
    custom = CustomTopologyData({f"{tier}_cap": [10, 40]}, 2)
    topology = Topology(2, "cuda", custom_topology_data=custom)
    proposal = [option("large", "table_wise", [(0, 0, 1.0)]), option("small", "table_wise", [(0, 0, 1.0)])]
    for each, size in zip(proposal, (15, 10), strict=True):
        each.shards[0].storage = Storage(**{"hbm": 0, "ddr": 0, tier: size})
    assert ranks_of(GreedyPerfPartitioner().partition(proposal, topology)) == [[1], [0]]


@pytest.mark.parametrize("kind", ["row_wise", "data_parallel", "table_row_wise", "grid_shard"])
@pytest.mark.parametrize("tier", ["hbm", "ddr", "ssd"])
def test_no_rank_takes_a_shard_that_one_tier_has_no_room_for(kind: str, tier: str) -> None:
    """Rank 1 is the short one; the host as a whole has enough, so only the rank can refuse."""
    spread = option("t", kind, [(0, 0, 1.0)] * 2)
    for shard in spread.shards:
        shard.storage = Storage(**{"hbm": 0, "ddr": 0, "ssd": 0, tier: 5})
    caps = {f"{name}_cap": [20, 4] if name == tier else [20, 20] for name in ("hbm", "ddr", "ssd")}
    topology = Topology(2, "cuda", custom_topology_data=CustomTopologyData(caps, 2))
    with pytest.raises(PlannerError):
        GreedyPerfPartitioner().partition([spread], topology)
    assert ranks_of([spread]) == [[None, None]]
