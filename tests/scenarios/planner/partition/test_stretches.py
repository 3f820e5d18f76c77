"""Ranks that are alike are placed on as if each were looked at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.plan_text import format_proposal
from scenarios.planner.planner import Search
from scenarios.planner.search.enumerator import EmbeddingEnumerator
from scenarios.planner.search.proposers import SmallestProposer, UniformProposer
from scenarios.planner.topology import CustomTopologyData, Topology
from scenarios.planner.types import (
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
    SortBy,
    TensorShape,
)
from scenarios.run_length import run_count
from scenarios.sharding_kind import ShardingKind

TABLES = st.lists(
    st.tuples(st.sampled_from(ShardingKind), st.integers(1, 400), st.sampled_from([16, 64])), min_size=1, max_size=9
)


class Sharder:
    """Offers one sharding type."""

    module_type = object

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shardable_parameters(self, module: object) -> dict[str, TensorShape]:
        raise NotImplementedError

    def sharding_types(self, compute_device_type: str) -> Sequence[str]:
        return [self._kind]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> Sequence[str]:
        return ["fused"]


def proposal_of(tables: Sequence[tuple[str, int, int]], topology: Topology, *, listed: bool) -> list[ShardingOption]:
    """An option of each (kind, rows, columns); `listed`: every shard by itself."""
    options = []
    for index, (kind, rows, dim) in enumerate(tables):
        wished = ParameterConstraints(sharding_types=[kind], min_partition=16)
        enumerator = EmbeddingEnumerator(topology, 4, {f"t{index}": wished})
        options += enumerator.of_table(f"t{index}", TensorShape((rows, dim)), ("m", object()), Sharder(kind))
    for option in options:
        if listed:
            option.shards = list(option.shards)
    return options


def outcome(proposal: list[ShardingOption], topology: Topology, sort_by: SortBy) -> object:
    partitioner = GreedyPerfPartitioner(sort_by)
    try:
        partitioner.partition(proposal, topology)
    except PlannerError as error:
        return error.kind, str(error)
    return [option.shards for option in proposal], partitioner.devices


@given(
    tables=TABLES,
    local=st.integers(1, 4),
    hosts=st.integers(1, 12),
    ragged=st.booleans(),
    cap=st.sampled_from([10**4, 3 * 10**4, 10**5, 10**9]),
    larger=st.integers(0, 5),
    sort_by=st.sampled_from(SortBy),
)
def test_runs_of_ranks_and_of_shards_take_what_single_ones_take(
    tables: list[tuple[ShardingKind, int, int]],
    local: int,
    hosts: int,
    ragged: bool,
    cap: int,
    larger: int,
    sort_by: SortBy,
) -> None:
    world = local * hosts + (local - 1 if ragged else 0)
    caps = [cap + 1000 if rank < larger else cap for rank in range(world)]
    data = CustomTopologyData({"hbm_cap": caps}, world)
    alike, single = (Topology(world, "cuda", local_world_size=local, custom_topology_data=data) for _ in range(2))
    single.devices = list(single.devices)
    assert run_count(alike.devices) <= 2
    found = outcome(proposal_of(tables, alike, listed=False), alike, sort_by)
    assert found == outcome(proposal_of(tables, single, listed=True), single, sort_by)
    assert run_count(alike.devices) <= 2


def test_the_shards_of_copies_and_of_blocks_on_many_ranks_are_not_made_one_by_one() -> None:
    topology = Topology(10**5, "cuda", local_world_size=8)
    kinds = ["data_parallel", "row_wise", "table_row_wise", "table_wise"]
    proposal = proposal_of([(kind, 10**5 + 7, 16) for kind in kinds], topology, listed=False)
    partitioner = GreedyPerfPartitioner()
    partitioner.partition(proposal, topology)
    assert [run_count(option.shards) for option in proposal] == [1, 3, 8, 1]
    assert run_count(partitioner.devices) < 20
    assert [shard.rank for shard in proposal[0].shards[99_990:]] == list(range(99_990, 10**5))
    block = proposal[1].shards[50_002]
    assert (block.rank, block.offset, block.size) == (50_002, [100_004, 0], [2, 16])


def test_shards_on_alike_ranks_count_once_against_the_budget() -> None:
    """Listed, the first proposal uses up what four can be tried with."""
    topology = Topology(100, "cuda", local_world_size=4)
    tried = {}
    for listed in (False, True):
        space = [
            option
            for kind in ("data_parallel", "row_wise", "table_row_wise", "table_wise")
            for option in proposal_of([(kind, 1000, 16)], topology, listed=listed)
        ]
        space.sort(key=lambda option: option.num_shards, reverse=True)
        tried[listed] = Search(topology, GreedyPerfPartitioner(), 20).run(space, [UniformProposer()]).tried
    assert tried == {False: 4, True: 1}


def test_the_best_proposals_ranks_outlast_those_tried_after_it() -> None:
    topology = Topology(6, "cuda", local_world_size=2)
    space = proposal_of([("row_wise", 20, 16)], topology, listed=False)
    found = Search(topology, GreedyPerfPartitioner()).run(space, [SmallestProposer()])
    (option,) = found.proposal
    assert [(shard.rank, shard.size[0], shard.offset[0]) for shard in option.shards] == [
        (0, 4, 0), (1, 4, 4), (2, 4, 8), (3, 4, 12), (4, 4, 16), (5, 0, 20),
    ]  # fmt: skip


def test_ranks_with_the_same_shards_and_other_memory_are_printed_apart() -> None:
    data = CustomTopologyData({"hbm_cap": [10**6, 10**6, 2 * 10**6]}, 3)
    topology = Topology(3, "cuda", custom_topology_data=data)
    proposal = proposal_of([("data_parallel", 100, 64)], topology, listed=False)
    text = format_proposal(GreedyPerfPartitioner().partition(proposal, topology), topology)
    head = next(index for index, line in enumerate(text.splitlines()) if line.startswith("ranks"))
    assert [line.split()[0] for line in text.splitlines()[head + 1 : head + 3]] == ["0-1", "2"]


def test_a_search_that_finds_nothing_looks_at_no_rank_either() -> None:
    topology = Topology(10**5, "cuda", local_world_size=8, hbm_cap=10**6)
    space = proposal_of([("data_parallel", 10**5, 64)], topology, listed=False)
    with pytest.raises(PlannerError, match="none of 1 proposals fits") as caught:
        Search(topology, GreedyPerfPartitioner()).run(space, [SmallestProposer()])
    assert caught.value.error_type == PlannerErrorType.INSUFFICIENT_STORAGE
    assert run_count(topology.devices) == run_count(space[0].shards) == 1
