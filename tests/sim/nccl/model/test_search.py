"""The channels on nodes that NCCL has said something of, and laws of all others."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim.nccl.model.search import LEAST_SPEED, Node, _pack, graphs
from sim.nccl.model.topology import Graph

HOPPER = Node(
    gpus=8,
    nics=0,
    compute_capability=90,
    nvlink=True,
    gpu_gb_per_s=450.0,
    nic_gb_per_s=50.0,
    net_latency_us=0.0,
)
AMPERE = dataclasses.replace(HOPPER, compute_capability=80, gpu_gb_per_s=300.0, nic_gb_per_s=25.0)
BLACKWELL = dataclasses.replace(HOPPER, compute_capability=100, gpu_gb_per_s=900.0)
TCP = dataclasses.replace(
    HOPPER, gpus=1, nics=1, compute_capability=70, nvlink=False, gpu_gb_per_s=15.75, nic_gb_per_s=1.25
)


def channels(graph: Graph) -> tuple[int, float, float]:
    return graph.channels, graph.intra_gb_per_s, graph.inter_gb_per_s


@pytest.mark.parametrize(
    ("node", "ring", "nvls"),
    [
        (HOPPER, (12, 30, 30), (8, 40, 60)),  # rings as in NCCL's golden record; heads as NCCL prints (NCCL issue 1197)
        (dataclasses.replace(HOPPER, nics=8), (8, 45, 45), (8, 40, 48)),  # rings as in the golden record
        (dataclasses.replace(HOPPER, gpus=4), (12, 30, 30), (4, 60, 60)),
        (AMPERE, (12, 20, 20), None),
        (dataclasses.replace(AMPERE, nics=8), (8, 24, 24), None),
        (BLACKWELL, (16, 45, 45), (8, 80, 90)),
        (TCP, (1, 1.2, 1.2), None),
    ],
)
def test_known_nodes(node: Node, ring: tuple[int, float, float], nvls: tuple[int, float, float] | None) -> None:
    found = graphs(node)
    assert channels(found["ring"]) == channels(found["tree"]) == channels(found["pat"]) == ring
    assert ("nvls" in found) == (nvls is not None)
    if nvls is not None:
        assert channels(found["nvls"]) == channels(found["nvls_tree"]) == nvls


@pytest.mark.parametrize(
    ("node", "direct", "chain"),
    [
        # A NIC's speed, and what GPUs' links carry beside: up to twice that, or the first beyond (src/graph/search.cc).
        (dataclasses.replace(HOPPER, nics=8), (8, 48, 48), (8, 48, 48)),
        (dataclasses.replace(AMPERE, nics=8), (8, 48, 24), (8, 30, 24)),
        (dataclasses.replace(BLACKWELL, nics=8), (8, 96, 48), (8, 96, 48)),
        (dataclasses.replace(HOPPER, gpus=9, nics=8), None, None),
    ],
)
def test_channels_of_offload(
    node: Node, direct: tuple[int, float, float] | None, chain: tuple[int, float, float] | None
) -> None:
    found = graphs(node, offload=True)
    for name, expected in (("collnet_direct", direct), ("collnet_chain", chain)):
        assert (channels(found[name]) if name in found else None) == expected
    assert not {"collnet_direct", "collnet_chain"} & set(graphs(node))


NODES = st.builds(
    Node,
    gpus=st.integers(1, 16),
    nics=st.integers(0, 16),
    compute_capability=st.sampled_from((70, 75, 80, 86, 89, 90, 100, 120)),
    nvlink=st.booleans(),
    gpu_gb_per_s=st.floats(1.0, 2000.0),
    nic_gb_per_s=st.floats(0.01, 200.0),
    net_latency_us=st.floats(0.0, 100.0),
)


@given(NODES)
def test_no_link_carries_more_than_it_can(node: Node) -> None:
    found = graphs(node)
    for graph in found.values():
        assert graph.channels >= 1
        assert graph.intra_gb_per_s > 0
        assert graph.inter_gb_per_s > 0
    ring = found["ring"]
    if node.gpus > 1 and node.link_gb_per_s >= min(node.speeds):
        assert ring.channels * ring.intra_gb_per_s <= node.link_gb_per_s * (1 + 1e-9)
    if node.nics and node.nic_gb_per_s >= min(node.speeds):
        assert ring.channels * ring.inter_gb_per_s <= node.nics * node.nic_gb_per_s * (1 + 1e-9)


TWO_SLOW_NICS = dataclasses.replace(TCP, gpus=2, nics=2, gpu_gb_per_s=2.0, nic_gb_per_s=1.0)


@example(TWO_SLOW_NICS, 1.5)  # 6 x 0.24, and then 1 x 1.2: 0.24 is less than 0.49 of that
@given(NODES, st.floats(1.0, 4.0))
def test_quicker_links_make_slower_rings_only_where_nccl_stops_at_few_quick_ones(node: Node, factor: float) -> None:
    """And then by no more than half: what fits once of a speed fills at least that of a link."""
    if node.nics and node.nic_gb_per_s < min(node.speeds):
        return  # nothing in NCCL's table is so slow
    wider = dataclasses.replace(node, gpu_gb_per_s=node.gpu_gb_per_s * factor, nic_gb_per_s=node.nic_gb_per_s * factor)
    (channels_before, speed_before), (channels_after, speed_after) = _pack(node), _pack(wider)
    is_tried = speed_before >= LEAST_SPEED * speed_after
    least = channels_before * speed_before * (1.0 if is_tried else 0.5)
    assert channels_after * speed_after >= least * (1 - 1e-9)
