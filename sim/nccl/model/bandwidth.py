"""NCCL's bandwidth of an operation: bytes of the buffer a second, in GB/s; latencies are left to `nccl_latency`."""

from __future__ import annotations

from sim.nccl.model import tables
from sim.nccl.model.support import enabled
from sim.nccl.model.topology import Algorithm, Function, Graph, Protocol, Topology, ring_steps


def gb_per_s(topology: Topology, function: Function, algorithm: Algorithm, protocol: Protocol) -> float:
    """Before the correction of its size; 0 where NCCL may not use the combination."""
    if not enabled(topology, function, algorithm, protocol):
        return 0.0
    share = _buffer_share(topology, function, algorithm)
    if algorithm == "ring":
        return share * _ring(topology, protocol)
    if algorithm == "tree":
        return share * _tree(topology, protocol)
    return share * _OFFLOADED[algorithm](topology, function)


def _buffer_share(topology: Topology, function: Function, algorithm: Algorithm) -> float:
    """From what passes one point to what of the buffer is done; a ring's is given for every function."""
    if algorithm == "ring" or (algorithm in ("nvls", "nvls_tree") and function == "all_reduce"):
        return topology.ranks / ring_steps(function, topology.ranks)
    return 1 / 2 if function == "all_reduce" else 1.0


def _bus(topology: Topology, graph: Graph) -> float:
    return graph.channels * (graph.intra_gb_per_s if topology.nodes <= 2 else graph.inter_gb_per_s)


def _cap(topology: Topology, caps: tables.Caps) -> float:
    return caps[topology.generation][min(topology.nodes, 3) - 1]


def _ll_cap(topology: Topology) -> float:
    row = topology.generation if topology.nodes == 1 else tables.LL_ROW_BY_CPU[topology.cpu]
    return tables.LL_GB_PER_S[row][min(topology.nodes, 3) - 1]


def _ring(topology: Topology, protocol: Protocol) -> float:
    graph = topology.graphs["ring"]
    bus = _bus(topology, graph)
    if protocol == "LL":
        return min(tables.RING_LL * bus, _ll_cap(topology))
    if protocol == "LL128":
        cap = graph.channels * _cap(topology, tables.RING_LL128_CHANNEL_GB_PER_S)
        return min(tables.RING_LL128 * bus, cap)
    return bus


def _tree(topology: Topology, protocol: Protocol) -> float:
    graph = topology.graphs["tree"]
    bus = min(tables.TREE * _bus(topology, graph), graph.channels * _cap(topology, tables.TREE_CHANNEL_GB_PER_S))
    if protocol == "LL":
        bus = min(tables.TREE_LL * bus, _ll_cap(topology))
    elif protocol == "LL128":
        share = tables.TREE_LL128_ONE_NODE if topology.nodes == 1 else tables.TREE_LL128
        bus = min(share * bus, graph.channels * _cap(topology, tables.TREE_LL128_CHANNEL_GB_PER_S))
    return bus * (tables.PLAIN_TREE if topology.plain_tree else 1.0)


def _collnet_direct(topology: Topology, function: Function) -> float:
    """A NIC that serves several GPUs counts half as much less."""
    graph, peers = topology.graphs["collnet_direct"], topology.ranks_per_node
    if function != "all_reduce":
        return peers * graph.intra_gb_per_s
    gpus_a_nic = peers / graph.channels
    bus = graph.channels * graph.intra_gb_per_s / ((gpus_a_nic + 1) / 2)
    return bus * (tables.COLLNET_DIRECT_SINCE_HOPPER if topology.compute_capability >= 90 else 1.0)


def _nvls_channel(topology: Topology, function: Function, graph: Graph) -> float:
    """What the switch does for one channel; the NICs keep one channel in `channels` from it."""
    rate = graph.intra_gb_per_s * tables.NVLS[topology.generation] * (graph.channels - 1) / graph.channels
    if function == "all_reduce":
        return 2 * rate
    return rate * (topology.ranks_per_node - 1) / topology.ranks_per_node


def _nvls(topology: Topology, function: Function) -> float:
    graph = topology.graphs["nvls"]
    return graph.channels * min(_nvls_channel(topology, function, graph), graph.inter_gb_per_s)


def _nvls_tree(topology: Topology, function: Function) -> float:
    graph = topology.graphs["nvls_tree"]
    inter = graph.inter_gb_per_s * (2 if topology.nodes <= 2 else 1)
    cap = _cap(topology, tables.NVLS_TREE_CHANNEL_GB_PER_S)
    return graph.channels * min(_nvls_channel(topology, function, graph), inter, cap)


def _pat(topology: Topology, _: Function) -> float:
    return tables.PAT * _bus(topology, topology.graphs["pat"])


_OFFLOADED = {"collnet_direct": _collnet_direct, "nvls": _nvls, "nvls_tree": _nvls_tree, "pat": _pat}
