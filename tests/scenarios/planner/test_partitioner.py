"""Laws of the partitioner that no single vector shows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planner.partitioner import GreedyPerfPartitioner
from scenarios.planner.topology import CustomTopologyData, DeviceHardware, Topology
from scenarios.planner.types import PARTITION_BY, Perf, PlannerError, Shard, ShardingOption, ShardingType, Storage

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
        PARTITION_BY[ShardingType(kind)],
        kernel,
        [Shard([1, 1], [0, 0], Storage(hbm, ddr), Perf(ms, 0.0, 0.0, 0.0)) for hbm, ddr, ms in shards],
        dependency=dependency,
    )


def ranks_of(proposal: Sequence[ShardingOption]) -> list[list[int | None]]:
    return [[shard.rank for shard in each.shards] for each in proposal]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[ShardingOption], Topology]:
    local, hosts = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    world = local * hosts + draw(st.integers(0, local - 1))  # perhaps a ragged tail
    counts = {
        "row_wise": world,
        "data_parallel": world,
        "table_wise": 1,
        "column_wise": draw(st.integers(1, 4)),
        "table_row_wise": local,
        "table_column_wise": draw(st.integers(1, 4)),
        "grid_shard": local * draw(st.integers(1, 3)),
    }
    proposal = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(sorted(counts)), min_size=1, max_size=8))):
        shard = st.tuples(st.integers(0, 60), st.integers(0, 40), MS)
        shards = draw(st.lists(shard, min_size=counts[kind], max_size=counts[kind]))
        by_host = PARTITION_BY[ShardingType(kind)] == "host"
        dependency = draw(st.sampled_from([None, "tower"])) if by_host else None
        kernel = draw(st.sampled_from(["fused", "key_value"])) if kind == "column_wise" else "fused"
        proposal.append(option(f"t{index}", kind, shards, dependency, kernel))
    cap = st.lists(st.integers(-1, 200), min_size=world, max_size=world)
    caps = CustomTopologyData({"hbm_cap": draw(cap), "ddr_cap": draw(cap)}, world)
    return proposal, Topology(world, "cuda", local_world_size=local, custom_topology_data=caps)


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
    outcomes = []
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
    """The device rule said plainly: for each shard, look at every rank."""
    devices = [DeviceHardware(device.rank, device.storage, device.perf) for device in topology.devices]
    ranks: dict[str, list[int]] = {}
    for each in sorted(proposal, key=lambda item: item.total_storage, reverse=True):
        for shard in each.shards:
            assert shard.storage is not None
            assert shard.perf is not None
            fitting = [device for device in devices if shard.storage.fits_in(device.storage)]
            if not fitting:
                return None
            local = topology.local_world_size
            best = min(fitting, key=lambda device: (device.perf.total, device.rank % local, device.rank))
            best.storage, best.perf = best.storage - shard.storage, best.perf + shard.perf
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


@pytest.mark.parametrize("kind", ["table_wise", "grid_shard"])
def test_only_host_groups_may_have_several_options(kind: str) -> None:
    proposal = [option(name, kind, [(1, 0, 1.0)], dependency="tower") for name in ("t0", "t1")]
    with pytest.raises(AssertionError) as caught:
        GreedyPerfPartitioner().partition(proposal, Topology(1, "cuda"))
    assert str(caught.value) == (
        "a group that is not placed on one host must be one option, got ebc.t0, ebc.t1 of Storage(hbm=2, ddr=0, ssd=0)"
    )
    assert ranks_of(proposal) == [[None], [None]]


def test_a_wrong_type_among_the_options_of_a_host_is_an_error_that_escapes_in_0_2_0_only() -> None:
    proposal = [
        option("t0", "table_row_wise", [(1, 0, 1.0)], dependency="tower"),
        option("t1", "table_wise", [(1, 0, 1.0)], dependency="tower"),
    ]
    with pytest.raises(PlannerError, match=r"can't find a host for sharding option group ebc\.t0, ebc\.t1 of"):
        GreedyPerfPartitioner().partition(proposal, Topology(1, "cuda"))
    with pytest.raises(RuntimeError) as caught:
        GreedyPerfPartitioner(release="0.2.0").partition(proposal, Topology(1, "cuda"))
    assert str(caught.value) == "ebc.t1: sharding type table_wise cannot be placed on a host"


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
    custom = CustomTopologyData({f"{tier}_cap": [10, 20]}, 2)
    topology = Topology(2, "cuda", custom_topology_data=custom)
    proposal = [option("large", "table_wise", [(0, 0, 1.0)]), option("small", "table_wise", [(0, 0, 1.0)])]
    for each, size in zip(proposal, (15, 10), strict=True):
        each.shards[0].storage = Storage(**{"hbm": 0, "ddr": 0, tier: size})
    assert ranks_of(GreedyPerfPartitioner().partition(proposal, topology)) == [[1], [0]]
