"""Laws of NCCL's tuning model, on topologies that its record does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.nccl.model.predictor import TunedCollective, TuningChoice, choices, choose, gb_per_s, is_enabled
from sim.nccl.model.topology import (
    ALGORITHMS,
    FUNCTIONS,
    PROTOCOLS,
    Algorithm,
    Graph,
    GroupTopology,
    Path,
    Protocol,
)
from tests.sim.nccl.published_rows import GRAPH, HOPPER, with_graph


@st.composite
def topologies(draw: st.DrawFn) -> GroupTopology:
    nodes = draw(st.integers(1, 20))
    graphs = st.builds(
        Graph,
        channels=st.integers(0, 32),
        intra_gb_per_s=st.floats(0.1, 100),
        inter_gb_per_s=st.floats(0.1, 100),
        net_latency_us=st.floats(0, 20),
        intra_type=st.sampled_from(Path),
        inter_type=st.sampled_from(Path),
        same_channels=st.booleans(),
    )
    ring = draw(graphs.filter(lambda graph: graph.channels > 0))
    return GroupTopology(
        ranks=nodes * draw(st.integers(2 if nodes == 1 else 1, 9)),
        nodes=nodes,
        compute_capability=draw(st.sampled_from((60, 70, 75, 80, 86, 90, 100, 120))),
        cpu=draw(st.sampled_from(("intel", "amd", "arm"))),
        channels=draw(st.integers(1, 64)),
        plain_tree=draw(st.booleans()),
        nvswitch=draw(st.booleans()),
        network_offload=draw(st.booleans()),
        chain_offload=draw(st.booleans()),
        graphs={**draw(st.dictionaries(st.sampled_from(ALGORITHMS), graphs)), "ring": ring},
    )


operations = st.builds(
    TunedCollective,
    function=st.sampled_from(FUNCTIONS),
    size_bytes=st.one_of(st.integers(1, 1 << 14), st.integers(1, 1 << 34)),
    together=st.integers(1, 40),
)


def change(topology: GroupTopology, changes: Callable[[Graph], dict[str, Any]]) -> GroupTopology:
    graphs = {name: replace(graph, **changes(graph)) for name, graph in topology.graphs.items()}
    return replace(topology, graphs=graphs)


def by_way(found: list[TuningChoice]) -> dict[tuple[Algorithm, Protocol], TuningChoice]:
    return {(choice.algorithm, choice.protocol): choice for choice in found}


@given(topologies(), operations)
def test_the_choice_is_the_fastest_enabled_combination_and_the_first_of_equals(
    topology: GroupTopology, operation: TunedCollective
) -> None:
    every = list(choices(topology, operation))
    chosen = choose(topology, operation)
    assert all(is_enabled(topology, operation.function, choice.algorithm, choice.protocol) for choice in every)
    assert chosen == next(choice for choice in every if choice.total_ns == min(other.total_ns for other in every))


@given(topologies(), operations, st.floats(1, 100))
def test_faster_links_never_make_an_operation_slower(
    topology: GroupTopology, operation: TunedCollective, factor: float
) -> None:
    faster = change(
        topology,
        lambda graph: {
            "intra_gb_per_s": graph.intra_gb_per_s * factor,
            "inter_gb_per_s": graph.inter_gb_per_s * factor,
        },
    )
    slow, fast = by_way(list(choices(topology, operation))), by_way(list(choices(faster, operation)))
    assert slow.keys() == fast.keys()
    assert all(fast[way].total_ns <= slow[way].total_ns * (1 + 1e-12) for way in slow)


@given(topologies(), operations, st.floats(0, 50))
def test_a_slower_network_never_makes_an_operation_quicker(
    topology: GroupTopology, operation: TunedCollective, more_us: float
) -> None:
    later = change(topology, lambda graph: {"net_latency_us": graph.net_latency_us + more_us})
    near, far = by_way(list(choices(topology, operation))), by_way(list(choices(later, operation)))
    assert all(far[way].total_ns >= near[way].total_ns for way in near)


@given(topologies(), operations)
def test_more_bytes_take_longer_but_for_the_size_classes_of_trees(
    topology: GroupTopology, operation: TunedCollective
) -> None:
    """Trees have classes from one power of two to the next; at its edge a tree may lose time."""
    last_of_class = (1 << operation.size_bytes.bit_length()) - 1
    one_more = replace(operation, size_bytes=operation.size_bytes + 1)
    small, large = by_way(list(choices(topology, operation))), by_way(list(choices(topology, one_more)))
    for way, choice in small.items():
        if way[0] not in ("tree", "nvls_tree") or operation.size_bytes != last_of_class:
            assert large[way].transfer_ns > choice.transfer_ns
            assert large[way].latency_ns >= choice.latency_ns


@given(topologies(), operations)
def test_a_ring_pays_a_latency_per_grouped_operation_and_others_one_per_eight(
    topology: GroupTopology, operation: TunedCollective
) -> None:
    alone = by_way(list(choices(topology, replace(operation, together=1))))
    for way, choice in by_way(list(choices(topology, operation))).items():
        latencies = operation.together if way[0] == "ring" else -(-operation.together // 8)
        assert choice.latency_ns == pytest.approx(latencies * alone[way].latency_ns)
        assert choice.transfer_ns == alone[way].transfer_ns


def test_an_algorithm_without_a_graph_is_not_there() -> None:
    only_rings = replace(HOPPER, graphs={"ring": GRAPH})
    found = choices(only_rings, TunedCollective(function="all_reduce", size_bytes=8))
    assert [(choice.algorithm, choice.protocol) for choice in found] == [("ring", name) for name in PROTOCOLS]


@pytest.mark.parametrize(
    ("compute_capability", "intra", "inter", "expected"),
    [
        (90, Path.NVL, Path.PXN, True),
        (90, Path.NVL, Path.PHB, False),
        (80, Path.NVB, Path.PXB, True),
        (80, Path.NVL, Path.P2C, False),
        (80, Path.NVL, Path.PXN, False),
        (70, Path.C2C, Path.PIX, False),
        (70, Path.NVL, Path.PIX, True),
        (60, Path.NVL, Path.PIX, False),
    ],
)
@pytest.mark.parametrize("algorithm", ["tree", "ring"])
def test_ll128_wants_nvlink_inside_and_pci_switches_to_the_nic(
    compute_capability: int, intra: Path, inter: Path, expected: bool, algorithm: Algorithm
) -> None:
    topology = with_graph(replace(HOPPER, compute_capability=compute_capability), intra_type=intra, inter_type=inter)
    assert is_enabled(topology, "all_reduce", algorithm, "LL128") is expected


@pytest.mark.parametrize(
    ("algorithm", "changes", "expected"),
    [
        ("nvls", {}, True),
        ("nvls", {"network_offload": False}, False),
        ("nvls", {"network_offload": False, "nodes": 1}, True),
        ("nvls", {"compute_capability": 80}, False),
        ("collnet_direct", {}, True),
        ("collnet_direct", {"network_offload": False}, False),
        ("collnet_direct", {"nvswitch": False}, False),
        ("collnet_chain", {}, False),
        ("collnet_chain", {"chain_offload": True}, True),
        ("collnet_chain", {"chain_offload": True, "nvswitch": False}, True),
        ("collnet_chain", {"chain_offload": True, "network_offload": False}, False),
    ],
)
def test_offloaded_all_reduces_want_their_hardware(
    algorithm: Algorithm, changes: dict[str, Any], expected: bool
) -> None:
    assert (gb_per_s(replace(HOPPER, **changes), "all_reduce", algorithm, "Simple") > 0) is expected


def test_collnet_gathers_no_quicker_than_its_nics() -> None:
    """8 GPUs of compute capability 8.6 on an AMD host: 90 % of 12 GB/s each, though 30 GB/s go between GPUs."""
    one_host = replace(HOPPER, ranks=8, nodes=1, compute_capability=86, cpu="amd")
    for inter, expected in ((12.0, 0.9 * 12.0), (48.0, 30.0)):
        topology = with_graph(one_host, intra_gb_per_s=30.0, inter_gb_per_s=inter)
        assert gb_per_s(topology, "all_gather", "collnet_direct", "Simple") == pytest.approx(8 * expected)
        assert gb_per_s(topology, "reduce_scatter", "collnet_direct", "Simple") == pytest.approx(8 * expected)


def test_bandwidths_count_the_mean_of_nodes_with_different_numbers_of_gpus() -> None:
    """7 ranks on 2 nodes, a channel for each of 2 NICs: a NIC serves 1.75 GPUs."""
    topology = with_graph(
        replace(HOPPER, ranks=7, nodes=2, compute_capability=86), channels=2, intra_gb_per_s=30.0, inter_gb_per_s=30.0
    )
    assert gb_per_s(topology, "all_reduce", "collnet_direct", "Simple") == pytest.approx(2 * 30 / (2.75 / 2) / 2)


def test_only_one_gpu_a_node_uses_pat() -> None:
    for ranks, expected in ((4, True), (8, False)):
        assert is_enabled(replace(HOPPER, ranks=ranks), "all_gather", "pat", "Simple") is expected
