"""NCCL's latency of an operation of no bytes, in microseconds; bandwidths are left to `nccl_bandwidth`."""

from __future__ import annotations

from sim.nccl.model import tables
from sim.nccl.model.support import considered
from sim.nccl.model.topology import (
    Algorithm,
    Function,
    Graph,
    Path,
    Protocol,
    Topology,
    ring_crossings,
    ring_steps,
)


def latency_us(topology: Topology, function: Function, algorithm: Algorithm, protocol: Protocol) -> float:
    """Of one operation; 0 where NCCL does not look at the combination."""
    if not considered(topology, function, algorithm, protocol):
        return 0.0
    base_us = tables.BASE_US[protocol][algorithm]
    if algorithm == "ring":
        rooted = function in ("broadcast", "reduce")
        return base_us + (_chain_us(topology, protocol) if rooted else _ring_us(topology, function, protocol))
    return base_us + _HOPS_US[algorithm](topology, protocol)


def intra_hop_us(topology: Topology, algorithm: Algorithm, protocol: Protocol) -> float:
    """From a GPU to the next inside a node."""
    return _inside(topology.graphs[algorithm])[protocol][algorithm]


def inter_hop_us(topology: Topology, algorithm: Algorithm, protocol: Protocol) -> float:
    """From a GPU to one in another node; Simple asks the network once more, to flush."""
    hop_us = tables.NET_HOP_US[protocol]["tree" if topology.one_gpu_a_node else algorithm]
    return hop_us + topology.graphs[algorithm].net_latency_us * (2 if protocol == "Simple" else 1)


def _inside(graph: Graph) -> tables.Hops:
    return tables.NVLINK_HOP_US if graph.intra_type == Path.NVL else tables.PCI_HOP_US


def _ring_us(topology: Topology, function: Function, protocol: Protocol) -> float:
    """Every step a hop; on several nodes also one inside a node waits for the network's overhead."""
    crossings = ring_crossings(function, topology.nodes)
    intra_us = max(intra_hop_us(topology, "ring", protocol), _overhead_us(topology, protocol))
    steps = ring_steps(function, topology.ranks)
    return (steps - crossings) * intra_us + crossings * inter_hop_us(topology, "ring", protocol)


def _overhead_us(topology: Topology, protocol: Protocol) -> float:
    if topology.nodes == 1:
        return 0.0
    return tables.NETWORK_OVERHEAD_US[topology.cpu] * (tables.SIMPLE_OVERHEADS if protocol == "Simple" else 1)


def _chain_us(topology: Topology, protocol: Protocol) -> float:
    """One hop if all channels visit the GPUs alike, else one a rank; Simple then takes the tree's, for its chunks."""
    graph = topology.graphs["ring"]
    hops = _inside(graph) if topology.nodes == 1 else tables.NET_HOP_US
    if graph.same_channels:
        return hops[protocol]["ring"]
    return topology.ranks * hops[protocol]["tree" if protocol == "Simple" else "ring"]


def _tree_us(topology: Topology, protocol: Protocol) -> float:
    """Up and down again, along the chain of a node and the levels of nodes."""
    inside_us = (topology.ranks_per_node - 1) * intra_hop_us(topology, "tree", protocol)
    return 2 * (inside_us + topology.node_levels * inter_hop_us(topology, "tree", protocol))


def _collnet_direct_us(topology: Topology, protocol: Protocol) -> float:
    peers = topology.ranks_per_node - 1
    inside_us = min(1, peers) * intra_hop_us(topology, "collnet_direct", protocol)
    return 2 * (inside_us + peers * tables.COLLNET_ARITY_US) + inter_hop_us(topology, "collnet_direct", protocol)


def _collnet_chain_us(topology: Topology, protocol: Protocol) -> float:
    inside_us = (topology.ranks_per_node - 1) * intra_hop_us(topology, "collnet_chain", protocol)
    return 2 * inside_us + inter_hop_us(topology, "collnet_chain", protocol)


def _nvls_us(topology: Topology, protocol: Protocol) -> float:
    across_us = inter_hop_us(topology, "nvls", protocol) if topology.nodes > 1 else 0.0
    return intra_hop_us(topology, "nvls", protocol) + across_us


def _nvls_tree_us(topology: Topology, protocol: Protocol) -> float:
    across_us = topology.node_levels * inter_hop_us(topology, "nvls_tree", protocol)
    return intra_hop_us(topology, "nvls_tree", protocol) + 2 * across_us


def _pat_us(topology: Topology, protocol: Protocol) -> float:
    across_us = topology.node_levels * inter_hop_us(topology, "pat", protocol)
    return across_us / tables.PAT_HOPS_AT_ONCE + topology.ranks * tables.PAT_RANK_US


_HOPS_US = {
    "tree": _tree_us,
    "collnet_direct": _collnet_direct_us,
    "collnet_chain": _collnet_chain_us,
    "nvls": _nvls_us,
    "nvls_tree": _nvls_tree_us,
    "pat": _pat_us,
}
