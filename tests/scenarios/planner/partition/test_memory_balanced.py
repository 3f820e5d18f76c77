"""MemoryBalancedPartitioner: less memory on the fullest rank, for at most its tolerance in perf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planner import CustomTopologyData, GreedyPerfPartitioner, MemoryBalancedPartitioner, Topology
from scenarios.planner.types import PlannerError, ShardingOption, known_perf, known_storage
from tests.scenarios.planner.partition.test_greedy_perf import option, ranks_of

MB = 1 << 20


def sum_used(proposal: list[ShardingOption], world: int) -> list[tuple[int, float]]:
    """Bytes of hbm and ms, by rank."""
    total = [(0, 0.0)] * world
    for shard in (shard for each in proposal for shard in each.shards):
        assert shard.rank is not None
        hbm, ms = total[shard.rank]
        total[shard.rank] = (hbm + known_storage(shard).hbm, ms + known_perf(shard).total)
    return total


def two_sizes() -> list[ShardingOption]:
    """The greedy walk by perf puts both large tables on rank 1, which the slow small one leaves idle."""
    rows = [("slow", 10, 10.0), ("big", 400, 4.9), ("bigger", 500, 4.8), ("small", 10, 0.2)]
    return [option(name, "table_wise", [(megabytes * MB, 0, ms)]) for name, megabytes, ms in rows]


def test_memory_is_evened_out_as_far_as_the_tolerance_allows() -> None:
    """As TorchRec 1.8.0."""
    topology = Topology(2, "cuda", hbm_cap=2000 * MB)
    greedy = ranks_of(GreedyPerfPartitioner("perf").partition(two_sizes(), topology))
    assert greedy == [[0], [1], [1], [1]]
    exact = MemoryBalancedPartitioner(tolerance=0.0)
    assert ranks_of(exact.partition(two_sizes(), topology)) == greedy
    assert ranks_of(MemoryBalancedPartitioner().partition(two_sizes(), topology)) == [[0], [1], [1], [0]]
    balanced = MemoryBalancedPartitioner(tolerance=0.5)
    assert ranks_of(balanced.partition(two_sizes(), topology)) == [[0], [1], [0], [1]]
    assert [device.storage.hbm // MB for device in balanced.devices] == [1490, 1590]


def test_a_cap_never_gives_a_rank_more_than_it_has() -> None:
    """TorchRec's caps replace every rank's memory: the 100 MB rank got as much as the others."""
    custom = CustomTopologyData({"hbm_cap": [100 * MB, 1000 * MB]}, 2)
    topology = Topology(2, "cuda", custom_topology_data=custom)
    tables = [option(f"t{index}", "table_wise", [(90 * MB, 0, 1.0)]) for index in range(8)]
    MemoryBalancedPartitioner(tolerance=10.0).partition(tables, topology)
    assert [hbm // MB for hbm, _ in sum_used(tables, 2)] == [90, 630]


@given(
    rows=st.lists(st.tuples(st.integers(0, 300), st.sampled_from([0.1, 1.0, 2.0])), max_size=10),
    caps=st.lists(st.integers(0, 900), min_size=3, max_size=3),
    tolerance=st.sampled_from([0.0, 0.02, 1.0]),
)
def test_balanced_plans_take_no_more_memory_and_hardly_more_time_than_greedy(
    rows: list[tuple[int, float]], caps: list[int], tolerance: float
) -> None:
    def tables() -> list[ShardingOption]:
        return [option(f"t{index}", "table_wise", [(size * MB, 0, ms)]) for index, (size, ms) in enumerate(rows)]

    custom = CustomTopologyData({"hbm_cap": [cap * MB for cap in caps]}, 3)
    topology = Topology(3, "cuda", custom_topology_data=custom)
    greedy, balanced = tables(), tables()
    try:
        GreedyPerfPartitioner("perf").partition(greedy, topology)
    except PlannerError:
        with pytest.raises(PlannerError):
            MemoryBalancedPartitioner().partition(balanced, topology)
        assert {rank for ranks in ranks_of(balanced) for rank in ranks} <= {None}
        return
    partitioner = MemoryBalancedPartitioner(tolerance=tolerance)
    assert partitioner.partition(balanced, topology) is balanced
    before, after = sum_used(greedy, 3), sum_used(balanced, 3)
    assert max(hbm for hbm, _ in after) <= max(hbm for hbm, _ in before)
    assert max(ms for _, ms in after) <= max(ms for _, ms in before) * (1 + tolerance) * (1 + 1e-12)
    assert [hbm + left.storage.hbm for (hbm, _), left in zip(after, partitioner.devices, strict=True)] == [
        device.storage.hbm for device in topology.devices
    ]
    assert all(hbm <= cap * MB for (hbm, _), cap in zip(after, caps, strict=True))
