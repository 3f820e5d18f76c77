"""Shapes, estimates beyond the vectors, enumerator, proposers and the search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planner.estimators.perf import EmbeddingPerfEstimator
from scenarios.planner.estimators.storage import EmbeddingStorageEstimator, PipelineType
from scenarios.planner.partition.partitioners import GreedyPerfPartitioner
from scenarios.planner.planner import EmbeddingShardingPlanner, Search
from scenarios.planner.search.enumerator import EmbeddingEnumerator, column_width, cut
from scenarios.planner.search.proposers import GreedyProposer, GridSearchProposer, SmallestProposer, UniformProposer
from scenarios.planner.topology import HBM_TO_DDR_MEM_BW, CustomTopologyData, Topology
from scenarios.planner.types import (
    CacheParams,
    MultiPassPrefetchConfig,
    ParameterConstraints,
    PlannerError,
    ShardingOption,
    TensorShape,
    known_perf,
    known_storage,
)
from scenarios.sharding_kind import ShardingKind
from tests.scenarios.planner.estimators.test_estimators import Stats
from tests.scenarios.planner.partition.test_greedy_perf import option, ranks_of

KINDS = [kind for kind in ShardingKind if kind != ShardingKind.DATA_PARALLEL]


class Adam:
    """Named as torch's."""


@dataclass
class Weight:
    shape: tuple[int, int]
    _optimizer_classes: list[type]

    def element_size(self) -> int:
        return 4


@given(
    kind=st.sampled_from(KINDS), rows=st.integers(1, 50), dim=st.sampled_from([4, 12, 64, 96, 256]),
    local=st.integers(1, 4), hosts=st.integers(1, 3), width=st.sampled_from([None, 4, 32]),
)  # fmt: skip
def test_shards_tile_the_table(
    kind: ShardingKind, rows: int, dim: int, local: int, hosts: int, width: int | None
) -> None:
    cells: set[tuple[int, int]] = set()
    area = 0
    for shard in cut(kind, rows, dim, Topology(local * hosts, "cuda", local_world_size=local), min_partition=width):
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


class Part:
    """A module with children."""

    def __init__(self, **children: object) -> None:
        self._children = children

    def named_children(self) -> list[tuple[str, object]]:
        return list(self._children.items())


def model() -> Part:
    return Part(sparse=Part(ebc=Bag()), dense=Part())


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
    options = EmbeddingEnumerator(Topology(2, "cuda"), 16, constraints).enumerate(model(), [BagSharder()])
    assert [(item.fqn, str(item.sharding_type), item.compute_kernel, item.num_shards) for item in options] == [
        ("sparse.ebc.t0", "table_wise", "fused", 1),
        ("sparse.ebc.t0", "table_wise", "fused_uvm", 1),
        ("sparse.ebc.t0", "row_wise", "fused", 2),
        ("sparse.ebc.t0", "row_wise", "fused_uvm", 2),
        ("sparse.ebc.t0", "data_parallel", "dense", 2),
        ("sparse.ebc.t1", "row_wise", "fused", 2),
    ]
    assert all(shard.perf and shard.storage for item in options for shard in item.shards)


def test_children_come_in_reverse_as_in_torchrec_unless_their_order_is_asked_for() -> None:
    nested = Part(a=Part(x=Bag(), y=Bag()), b=Bag())
    orders = []
    for exact in (False, True):
        options = EmbeddingEnumerator(Topology(1, "cuda"), 16, use_exact_enumerate_order=exact)
        orders.append(list(dict.fromkeys(item.path for item in options.enumerate(nested, [BagSharder()]))))
    assert orders == [["b", "a.y", "a.x"], ["a.x", "a.y", "b"]]


class RareSharder(BagSharder):
    def sharding_types(self, compute_device_type: str) -> list[str]:
        return ["table_wise", "grid_shard"]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return ["fused", "key_value"]


def test_grids_and_key_value_stores_are_for_those_who_name_them() -> None:
    def kinds(wished: ParameterConstraints) -> set[tuple[str, str]]:
        constraints = {"t0": wished}
        options = EmbeddingEnumerator(Topology(2, "cuda"), 16, constraints).enumerate(bags(), [RareSharder()])
        return {(str(item.sharding_type), item.compute_kernel) for item in options if item.name == "t0"}

    assert kinds(ParameterConstraints()) == {("table_wise", "fused")}
    both = ParameterConstraints(sharding_types=["grid_shard"], compute_kernels=["key_value"])
    assert kinds(both) == {("grid_shard", "key_value")}


def bags() -> Part:
    return Part(ebc=Bag())


class EmbeddingCollectionInterface:
    """Named as TorchRec's: its ids keep a row each."""

    def is_weighted(self) -> bool:
        return True


def test_a_module_says_whether_it_is_pooled_and_weighted() -> None:
    sequence = EmbeddingCollectionInterface()
    enumerator = EmbeddingEnumerator(Topology(2, "cuda"), 16)
    options = [
        enumerator.of_table("t0", TensorShape((100, 64)), ("ec", module), BagSharder())[0]
        for module in (Bag(), sequence)
    ]
    assert [item.is_pooled for item in options] == [True, False]
    bag, weighted = (known_perf(item.shards[0]) for item in options)
    assert bag.bwd_compute / bag.fwd_compute == pytest.approx(2)
    assert weighted.bwd_compute / weighted.fwd_compute == pytest.approx(3.1)


def test_a_table_without_options_is_named() -> None:
    constraints = {"t1": ParameterConstraints(sharding_types=["grid_shard"])}
    with pytest.raises(PlannerError) as caught:
        EmbeddingShardingPlanner(Topology(2, "cuda"), constraints=constraints).plan(model(), [BagSharder()])
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


@pytest.mark.parametrize(("threshold", "proposals"), [(None, 8), (0, 8), (1, 3), (2, 4), (3, 8)])
def test_the_greedy_proposer_ends_when_too_many_proposals_were_no_better(threshold: int | None, proposals: int) -> None:
    """As TorchRec 1.8.0: the second and third 3.0 are no better than the first, the 2.0 is."""
    proposer = GreedyProposer(threshold=threshold)
    proposer.load([option("t", "table_wise", [(9, 0, float(ms))]) for ms in range(9)])
    seen = 0
    for rating in (3.0, 4.0, 3.0, 3.0 if threshold == 2 else 2.0, 2.0, 2.0, 1.0, 1.0):
        if proposer.propose() is None:
            break
        seen += 1
        proposer.feedback(True, None, rating)
    assert seen == proposals


def test_the_greedy_proposer_leaves_a_table_that_takes_no_memory_where_it_is() -> None:
    proposer = GreedyProposer()
    proposer.load([option("a", "table_wise", [(0, 0, 1.0)]), option("a", "row_wise", [(0, 0, 2.0)] * 2)])
    proposer.feedback(True)
    assert proposer.propose() is None


def test_the_greedy_proposer_moves_on_the_largest_shard_and_of_equal_ones_the_larger_table() -> None:
    proposer = GreedyProposer()
    proposer.load(
        [
            option("a", "column_wise", [(50, 0, 1.0), (0, 0, 1.0)]),
            option("a", "row_wise", [(0, 0, 2.0)] * 2),
            option("b", "column_wise", [(50, 0, 1.0), (9, 0, 1.0)]),
            option("b", "row_wise", [(49, 0, 2.0)] * 3),
        ]
    )
    seen = []
    while (proposal := proposer.propose()) is not None:
        seen.append(" ".join(str(item.sharding_type) for item in proposal))
        proposer.feedback(False)
    assert seen == ["column_wise column_wise", "column_wise row_wise", "row_wise row_wise"]


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


class Halved:
    """Half of the memory for something else."""

    def reserve(self, topology: Topology, *_: object) -> Topology:
        return Topology(topology.world_size, "cuda", hbm_cap=topology.devices[0].storage.hbm // 2)


class Slowest:
    """Likes what TorchRec does not."""

    def rate(self, plan: list[ShardingOption]) -> float:
        return -sum(option.total_perf for option in plan)


def sharding_types(**arguments: Any) -> list[str]:
    planner = EmbeddingShardingPlanner(Topology(2, "cuda", hbm_cap=10**6), 16, **arguments)
    return [f"{item.name}:{item.sharding_type}" for item in planner.plan(bags(), [BagSharder()])]


def test_the_planner_takes_a_reservation_a_performance_model_and_callbacks() -> None:
    usual = sharding_types()
    assert sharding_types(storage_reservation=Halved()) == usual
    assert sharding_types(performance_model=Slowest()) != usual
    assert sharding_types(callbacks=[lambda plan: plan[:1]]) == usual[:1]
    fused = {name: ParameterConstraints(compute_kernels=["fused"]) for name in ("t0", "t1")}
    tight = Topology(2, "cuda", hbm_cap=40_000)
    assert EmbeddingShardingPlanner(tight, 16, constraints=fused).plan(bags(), [BagSharder()])
    planner = EmbeddingShardingPlanner(tight, 16, constraints=fused, storage_reservation=Halved())
    with pytest.raises(PlannerError) as caught:
        planner.plan(bags(), [BagSharder()])
    assert caught.value.error_type == "insufficient_storage"


def test_a_model_that_fits_in_all_ranks_but_in_no_proposal_fails_for_its_constraints() -> None:
    options = [option("t", "table_wise", [(15, 0, 1.0)])]
    with pytest.raises(PlannerError) as caught:
        EmbeddingShardingPlanner(Topology(2, "cuda", hbm_cap=10)).choose(options)
    assert (caught.value.error_type, caught.value.kind) == ("strict_constraints", "no_plan")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"stats": ()}, "stats = () is not supported: print format_proposal(plan, topology)"),
        (
            {"timeout_seconds": 5},
            "timeout_seconds = 5 is not supported: give Search a shard_budget, which finds the same plan each time",
        ),
        ({"plan_loader": 1}, "plan_loader = 1 is not supported: call the partitioner on a proposal that you have"),
    ],
)
def test_unsupported_arguments_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        EmbeddingShardingPlanner(Topology(2, "cuda"), **arguments)
    assert str(caught.value) == sentence
