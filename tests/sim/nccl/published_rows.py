"""NCCL's published caps and corrections as text, and what of them shows on links without limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from sim.nccl.model.predictor import TunedCollective, TuningChoice, choices, gb_per_s, latency_us
from sim.nccl.model.topology import ALGORITHMS, Algorithm, Cpu, Graph, GroupTopology, Path, Protocol, ring_steps

GRAPH = Graph(
    channels=8,
    intra_gb_per_s=20.0,
    inter_gb_per_s=20.0,
    net_latency_us=0.0,
    intra_type=Path.NVL,
    inter_type=Path.PIX,
    same_channels=True,
)
HOPPER = GroupTopology(
    ranks=32,
    nodes=4,
    compute_capability=90,
    cpu="intel",
    channels=16,
    plain_tree=False,
    nvswitch=True,
    network_offload=True,
    graphs=dict.fromkeys(ALGORITHMS, GRAPH),
)

# Rows Volta, Ampere, Hopper, Blackwell; columns one node, two, more. NVLS begins with Hopper.
CAPABILITIES = (70, 80, 90, 100)
CAPS: dict[str, str] = {
    "LL": "39 39 20.4 | 87.7 22.5 19 | 141 45 35 | 282 90 70",
    "ring LL128": "20 20 20 | 20 20 20 | 36.7 36.7 36.7 | 40 40 40",
    "tree LL128": "20 20 20 | 20 20 20 | 36.7 36.7 29 | 55.6 31.67 20",
    "tree": "26.5 18.5 10 | 24 23.6 17.8 | 38.7 41.4 36 | 70 42.8 24",
    "nvls_tree": "0 0 0 | 0 0 0 | 0 57.7 45.5 | 0 96 80",
}
# Index log2(bytes / 64).
TREE_SIZES: dict[Protocol, str] = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
OVERHEADS_US: dict[Cpu, float] = {"intel": 1.0, "amd": 2.0, "arm": 1.0}


def with_graph(topology: GroupTopology, **changes: Any) -> GroupTopology:
    graphs = {name: replace(graph, **changes) for name, graph in topology.graphs.items()}
    return replace(topology, graphs=graphs)


def compare() -> Iterator[tuple[str, float, float]]:
    """What, ours, published."""
    for compute_capability, nodes in product(CAPABILITIES, (1, 2, 3, 9)):
        yield from _caps(unlimited_topology(compute_capability, nodes))
    for cpu, nodes in product(OVERHEADS_US, (1, 2, 3)):
        yield _ring_ll(unlimited_topology(90, nodes, cpu))
    for protocol, place in product(TREE_SIZES, range(-1, 25)):
        yield _size(HOPPER, "tree", protocol, place)
    for place in range(-1, 25):
        yield _size(replace(HOPPER, compute_capability=100), "nvls_tree", "Simple", place)
    yield _collnet_gather()
    yield from _overheads()
    yield from _batches()


def unlimited_topology(compute_capability: int, nodes: int, cpu: Cpu = "intel") -> GroupTopology:
    """Eight GPUs a node."""
    topology = replace(HOPPER, compute_capability=compute_capability, nodes=nodes, ranks=8 * nodes, cpu=cpu)
    return with_graph(topology, intra_gb_per_s=1e6, inter_gb_per_s=1e6)


def _cap(topology: GroupTopology, name: str, row: int | None = None) -> float:
    row = CAPABILITIES.index(topology.compute_capability) if row is None else row
    return float(CAPS[name].split("|")[row].split()[min(topology.nodes, 3) - 1])


def _caps(topology: GroupTopology) -> Iterator[tuple[str, float, float]]:
    share, ring = 7 / 9 if topology.nodes == 1 else 15 / 16, _of_ring(topology)
    tree = _cap(topology, "tree")
    expected: dict[tuple[Algorithm, Protocol], float] = {
        ("ring", "LL128"): 8 * _cap(topology, "ring LL128") * ring,
        ("tree", "LL"): min(8 * tree / 3.8, _ll_cap(topology)) / 2,
        ("tree", "LL128"): 8 * min(tree * share, _cap(topology, "tree LL128")) / 2,
        ("tree", "Simple"): 8 * tree / 2,
        ("nvls_tree", "Simple"): 8 * _cap(topology, "nvls_tree") * ring,
    }
    for (algorithm, protocol), published in expected.items():
        yield _name(topology, algorithm, protocol), gb_per_s(topology, "all_reduce", algorithm, protocol), published
    yield _ring_ll(topology)


def _ring_ll(topology: GroupTopology) -> tuple[str, float, float]:
    ours = gb_per_s(topology, "all_reduce", "ring", "LL")
    return _name(topology, "ring", "LL"), ours, _ll_cap(topology) * _of_ring(topology)


def _ll_cap(topology: GroupTopology) -> float:
    """Of one node by its GPUs; of several Ampere's row on AMD and Arm hosts, else Volta's."""
    row = None if topology.nodes == 1 else 0 if topology.cpu == "intel" else 1
    return _cap(topology, "LL", row)


def _of_ring(topology: GroupTopology) -> float:
    return topology.ranks / ring_steps("all_reduce", topology.ranks)


def _name(topology: GroupTopology, algorithm: Algorithm, protocol: Protocol) -> str:
    return f"{algorithm} {protocol} on {topology.nodes} nodes, {topology.compute_capability}, {topology.cpu}"


def _all_reduce(
    topology: GroupTopology, algorithm: Algorithm, protocol: Protocol, operation: TunedCollective
) -> TuningChoice:
    found = choices(topology, operation)
    return next(choice for choice in found if (choice.algorithm, choice.protocol) == (algorithm, protocol))


def _size(topology: GroupTopology, algorithm: Algorithm, protocol: Protocol, place: int) -> tuple[str, float, float]:
    size_bytes = 1 if place < 0 else (64 << place) + 1
    found = size_bytes / gb_per_s(topology, "all_reduce", algorithm, protocol)
    operation = TunedCollective(function="all_reduce", size_bytes=size_bytes)
    share = found / _all_reduce(topology, algorithm, protocol, operation).transfer_ns
    shares = TREE_SIZES[protocol].split()[: 24 if algorithm == "nvls_tree" else 23]  # NCCL looks no further
    published = float(shares[place]) if 0 <= place < len(shares) else 1.0
    return f"{algorithm} {protocol} share at {place}", share, published


def _collnet_gather() -> tuple[str, float, float]:
    """Eight GPUs of a node, at 90 % of what a NIC has for each."""
    topology = with_graph(replace(HOPPER, ranks=8, nodes=1), inter_gb_per_s=12.0)
    return "CollNet's gather", gb_per_s(topology, "all_gather", "collnet_direct", "Simple"), 8 * 0.9 * 12.0


def _overheads() -> Iterator[tuple[str, float, float]]:
    """A hop inside a node of many waits 1 us, with AMD's processors 2: NVLink's own is 0.6 by LL."""
    for cpu, overhead_us in OVERHEADS_US.items():
        topology = replace(HOPPER, cpu=cpu)
        expected = 6.6 + (31 - 3) * overhead_us + 3 * 2.7
        yield f"{cpu}'s overhead", latency_us(topology, "all_gather", "ring", "LL"), expected


def _batches() -> Iterator[tuple[str, float, float]]:
    """Eight operations share a tree's latency."""
    one_ns, *more_ns = (
        _all_reduce(
            HOPPER, "tree", "LL", TunedCollective(function="all_reduce", size_bytes=8, together=together)
        ).latency_ns
        for together in (1, 8, 9, 17)
    )
    for together, latencies, ours in zip((8, 9, 17), (1, 2, 3), more_ns, strict=True):
        yield f"latency of {together} together", ours, latencies * one_ns
