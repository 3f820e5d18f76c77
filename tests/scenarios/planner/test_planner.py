"""Shapes, estimates beyond the vectors, enumerator, proposers and the search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planner.enumerator import EmbeddingEnumerator
from scenarios.planner.partitioner import GreedyPerfPartitioner
from scenarios.planner.perf_estimator import EmbeddingPerfEstimator
from scenarios.planner.planner import EmbeddingShardingPlanner, Search
from scenarios.planner.proposers import GreedyProposer, GridSearchProposer, SmallestProposer, UniformProposer
from scenarios.planner.shapes import column_width, cut
from scenarios.planner.storage_estimator import EmbeddingStorageEstimator, PipelineType
from scenarios.planner.topology import HBM_TO_DDR_MEM_BW, CustomTopologyData, Topology
from scenarios.planner.types import (
    CacheParams,
    MultiPassPrefetchConfig,
    ParameterConstraints,
    PlannerError,
    ShardingOption,
    ShardingType,
    TensorShape,
    known_perf,
    known_storage,
)

from .test_partitioner import option, ranks_of

KINDS = [kind for kind in ShardingType if kind != ShardingType.DATA_PARALLEL]


class Adam:
    """Named as torch's."""


@dataclass
class Weight:
    shape: tuple[int, int]
    _optimizer_classes: list[type]

    def element_size(self) -> int:
        return 4


@dataclass
class Stats:
    expected_lookups: int = 1000

    def expected_miss_rate(self, clf: float) -> float:
        return 1 - clf


@given(
    kind=st.sampled_from(KINDS), rows=st.integers(1, 50), dim=st.sampled_from([4, 12, 64, 96, 256]),
    local=st.integers(1, 4), hosts=st.integers(1, 3), width=st.sampled_from([None, 4, 32]),
)  # fmt: skip
def test_shards_tile_the_table(
    kind: ShardingType, rows: int, dim: int, local: int, hosts: int, width: int | None
) -> None:
    cells: set[tuple[int, int]] = set()
    area = 0
    for shard in cut(kind, rows, dim, Topology(local * hosts, "cuda", local_world_size=local), width):
        (height, columns), (top, left) = shard.size, shard.offset
        area += height * columns
        cells |= set(product(range(top, top + height), range(left, left + columns)))
    assert area == rows * dim == len(cells)
    assert max(row for row, _ in cells) == rows - 1
    assert max(column for _, column in cells) == dim - 1


def test_last_row_blocks_may_be_empty() -> None:
    shards = cut("row_wise", 5, 8, Topology(4, "cuda"))
    assert [(*shard.size, *shard.offset) for shard in shards] == [
        (2, 8, 0, 0),
        (2, 8, 2, 0),
        (1, 8, 4, 0),
        (0, 8, 5, 0),
    ]


@pytest.mark.parametrize(("dim", "least", "width"), [(256, 128, 128), (128, 128, 128), (96, 32, 32), (100, 6, 20)])
def test_columns_are_cut_at_the_narrowest_even_width(dim: int, least: int, width: int) -> None:
    assert column_width(dim, least) == width


def table_option(tensor: object, kernel: str = "fused", kind: str = "table_wise") -> ShardingOption:
    made = option("t", kind, [(0, 0, 0.0)], kernel=kernel)
    made.tensor, made.shards = tensor, cut(kind, 100, 64, Topology(1, "cuda"))
    return made


@pytest.mark.parametrize(
    ("tensor", "state_bytes"),
    [
        (TensorShape((100, 64)), 0),
        (TensorShape((100, 64), optimizer_row_bytes=4), 400),
        (Weight((100, 64), []), 0),
        (Weight((100, 64), [Adam]), 2 * 25600),
        (Weight((100, 64), [type("SGD", (), {})]), 0),
        (Weight((100, 64), [type("RowWiseAdagrad", (), {})]), 400),
        (Weight((100, 64), [type("Lion", (), {})]), 25600),
    ],
)
def test_optimizer_state_is_counted_beside_the_weights(tensor: object, state_bytes: int) -> None:
    made = table_option(tensor)
    EmbeddingStorageEstimator(Topology(1, "cuda")).estimate([made])
    assert known_storage(made.shards[0]).hbm == 25600 + state_bytes + 8 + 64 * 4


@pytest.mark.parametrize(
    ("pipeline", "passes", "io"),
    [
        (PipelineType.NONE, None, 8 + 256),
        (PipelineType.TRAIN_SPARSE_DIST, None, 16),
        (PipelineType.TRAIN_PREFETCH_SPARSE_DIST, None, 24 + 7 * 8),
        (PipelineType.TRAIN_PREFETCH_SPARSE_DIST, 12, 24 + 12),
    ],
)
def test_pipelines_keep_more_inputs(pipeline: PipelineType, passes: int | None, io: int) -> None:
    made = table_option(TensorShape((100, 64)), "fused_uvm_caching")
    config = MultiPassPrefetchConfig(passes) if passes else None
    made.cache_params = CacheParams(load_factor=0.5, multipass_prefetch_config=config)
    EmbeddingStorageEstimator(Topology(1, "cuda"), pipeline_type=pipeline).estimate([made])
    assert known_storage(made.shards[0]).hbm == 12800 + ceil(100 * (4 + 16 * 0.5)) + io


def test_misses_of_a_known_cache_are_prefetched() -> None:
    made = table_option(TensorShape((100, 64)), "fused_uvm_caching")
    made.cache_params = CacheParams(load_factor=0.25, stats=Stats())
    EmbeddingPerfEstimator(Topology(1, "cuda")).estimate([made])
    assert known_perf(made.shards[0]).prefetch_compute == pytest.approx(750 * 64 * 4 / HBM_TO_DDR_MEM_BW)


def test_a_kernel_without_a_bandwidth_is_refused() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        EmbeddingPerfEstimator(Topology(1, "cpu")).estimate([table_option(TensorShape((100, 64)), "fused_uvm")])
    assert str(caught.value) == "compute kernel 'fused_uvm' on 'cpu' has no known bandwidth"


def test_custom_capacities_must_be_one_a_rank() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        CustomTopologyData({"hbm_cap": [1, 2]}, 3)
    assert str(caught.value) == "custom topology data 'hbm_cap' has 2 values, expected the world size 3"
    with pytest.raises(ValueError, match=r".") as caught:
        CustomTopologyData({"hbm": [1]}, 1)
    assert str(caught.value) == "custom topology data 'hbm': expected one of hbm_cap, ddr_cap, ssd_cap"


class Bag:
    """Two tables, as a module."""


class Model:
    def named_modules(self) -> list[tuple[str, object]]:
        return [("", self), ("sparse.ebc", Bag()), ("dense", object())]


class BagSharder:
    module_type = Bag

    def shardable_parameters(self, module: Bag) -> dict[str, TensorShape]:
        return {"t0": TensorShape((100, 64)), "t1": TensorShape((10, 64))}

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return ["table_wise", "row_wise", "data_parallel"]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return ["dense"] if sharding_type == "data_parallel" else ["fused", "fused_uvm"]


def test_the_enumerator_lists_what_sharders_and_constraints_allow() -> None:
    constraints = {"t1": ParameterConstraints(sharding_types=["row_wise"], compute_kernels=["fused"])}
    options = EmbeddingEnumerator(Topology(2, "cuda"), 16, constraints).enumerate(Model(), [BagSharder()])
    assert [(item.fqn, str(item.sharding_type), item.compute_kernel, item.num_shards) for item in options] == [
        ("sparse.ebc.t0", "table_wise", "fused", 1),
        ("sparse.ebc.t0", "table_wise", "fused_uvm", 1),
        ("sparse.ebc.t0", "row_wise", "fused", 2),
        ("sparse.ebc.t0", "row_wise", "fused_uvm", 2),
        ("sparse.ebc.t0", "data_parallel", "dense", 2),
        ("sparse.ebc.t1", "row_wise", "fused", 2),
    ]
    assert all(shard.perf and shard.storage for item in options for shard in item.shards)


def test_a_table_without_options_is_named() -> None:
    constraints = {"t1": ParameterConstraints(sharding_types=["grid_shard"])}
    with pytest.raises(PlannerError) as caught:
        EmbeddingShardingPlanner(Topology(2, "cuda"), constraints=constraints).plan(Model(), [BagSharder()])
    assert caught.value.kind == "no_options"
    assert str(caught.value) == ("table t1: no sharding type and compute kernel of its constraints can be had on cuda")


def space() -> list[ShardingOption]:
    return [
        option("a", "table_wise", [(100, 0, 4.0)]),
        option("a", "row_wise", [(50, 0, 3.0)] * 2),
        option("b", "table_wise", [(30, 0, 1.0)]),
        option("b", "row_wise", [(15, 0, 2.0)] * 2),
    ]


def proposals_of(proposer: GreedyProposer | UniformProposer | GridSearchProposer | SmallestProposer) -> list[str]:
    proposer.load(space())
    found = []
    while (proposal := proposer.propose()) is not None:
        found.append(" ".join(f"{item.name}:{item.sharding_type}" for item in proposal))
        proposer.feedback(True)
    return found


def test_the_greedy_proposer_moves_on_the_largest_table() -> None:
    assert proposals_of(GreedyProposer()) == [
        "a:row_wise b:table_wise",
        "a:table_wise b:table_wise",
        "a:table_wise b:row_wise",
    ]
    assert proposals_of(GreedyProposer(use_depth=False))[0] == "a:table_wise b:table_wise"


def test_the_other_proposers_say_what_they_are_for() -> None:
    assert proposals_of(UniformProposer()) == ["a:table_wise b:table_wise", "a:row_wise b:row_wise"]
    assert proposals_of(SmallestProposer()) == ["a:row_wise b:row_wise"]
    assert len(set(proposals_of(GridSearchProposer()))) == 4
    assert proposals_of(GridSearchProposer(max_proposals=3)) == []


@given(
    tables=st.lists(st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 9)), min_size=3, max_size=3), max_size=4),
    cap=st.integers(20, 120),
)
def test_grid_search_finds_the_least_maximum(tables: list[list[tuple[int, float]]], cap: int) -> None:
    kinds = [("table_wise", 1), ("row_wise", 2), ("table_row_wise", 2)]
    options = [
        option(f"t{index}", kind, [(size // count, 0, ms)] * count)
        for index, mine in enumerate(tables)
        for (size, ms), (kind, count) in zip(mine, kinds, strict=True)
    ]
    if not tables:
        return
    topology, best = Topology(2, "cuda", hbm_cap=cap), []
    for combination in product(*[options[3 * index : 3 * index + 3] for index in range(len(tables))]):
        partitioner = GreedyPerfPartitioner()
        try:
            partitioner.partition(list(combination), topology)
        except PlannerError:
            continue
        best.append(max(device.perf.total for device in partitioner.devices))
    search = Search(topology, GreedyPerfPartitioner())
    if not best:
        with pytest.raises(PlannerError, match=f"none of {3 ** len(tables)} proposals fits"):
            search.run(options, [GridSearchProposer()])
        return
    found = search.run(options, [GreedyProposer(), GridSearchProposer()])
    assert found.perf_ms == min(best)
    assert (found.tried, found.fitting) == (3 ** len(tables), len(best))
    again = GreedyPerfPartitioner()
    kept = ranks_of(found.proposal)
    assert ranks_of(again.partition(found.proposal, topology)) == kept
    assert again.devices == found.devices


def test_a_budget_stops_the_search_but_not_its_first_proposal() -> None:
    found = Search(Topology(2, "cuda"), GreedyPerfPartitioner(), shard_budget=1).run(space(), [GridSearchProposer()])
    assert found.tried == 1


def test_the_planner_keeps_the_proposal_whose_busiest_rank_does_least() -> None:
    planner = EmbeddingShardingPlanner(Topology(2, "cuda", hbm_cap=100))
    chosen = planner.choose(space())
    assert [(item.name, str(item.sharding_type)) for item in chosen] == [("a", "row_wise"), ("b", "table_wise")]
    assert ranks_of(chosen) == [[0, 1], [0]]
