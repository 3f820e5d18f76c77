"""NCCL 2.30's prediction of an operation on an idle cluster, and its choice.

Pure arithmetic of a `GroupTopology`, in doubles: results equal those of NCCL's 32-bit floats but for their rounding.

The conditions on CollNet and NVLS are those of src/graph/tuning.cc: CollNetDirect requires network offload and an
NVSwitch, CollNetChain offload for its own heads, NVLS over several nodes offload. Over several nodes they only
all-reduce: gathers and scatters by SHARP, which newer plug-ins offer, are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from scenarios.seam.traits import CHAINS, Function
from sim.nccl.model import tables
from sim.nccl.model.topology import (
    ALGORITHMS,
    FUNCTIONS,
    PROTOCOLS,
    Algorithm,
    Graph,
    GroupTopology,
    Path,
    Protocol,
    ring_crossings,
    ring_steps,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedCollective:
    """A collective to predict: `size_bytes` is the larger of a rank's buffers; `together` such are launched in one
    kernel.
    """

    function: Function
    size_bytes: int
    together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningChoice:
    """NCCL's algorithm and protocol, and its prediction: latency plus `transfer_ns` for the bytes."""

    algorithm: Algorithm
    protocol: Protocol
    latency_ns: float
    transfer_ns: float

    @property
    def total_ns(self) -> float:
        """NCCL's own prediction, in ns."""
        return self.latency_ns + self.transfer_ns


_REDUCE: tuple[Function, ...] = ("all_reduce",)
_SCATTER: tuple[Function, ...] = ("all_gather", "reduce_scatter")
_SERVES: dict[Algorithm, tuple[Function, ...]] = {
    "tree": _REDUCE,
    "ring": FUNCTIONS,
    "collnet_direct": _SCATTER + _REDUCE,
    "collnet_chain": _REDUCE,
    "nvls": _SCATTER + _REDUCE,
    "nvls_tree": _REDUCE,
    "pat": _SCATTER,
}
_SIMPLE_ONLY = ("nvls", "nvls_tree", "pat")
_NVLS_CHANNELS = 2  # at least


def is_considered(topology: GroupTopology, function: Function, algorithm: Algorithm, protocol: Protocol) -> bool:
    """Return whether NCCL computes a latency for the combination, usable or not."""
    graph = topology.graphs.get(algorithm)
    if graph is None or function not in _SERVES[algorithm]:
        return False
    if algorithm in _SIMPLE_ONLY and protocol != "Simple":
        return False
    if algorithm in ("nvls", "nvls_tree"):
        return graph.channels >= _NVLS_CHANNELS and topology.generation in tables.NVLS
    return algorithm != "pat" or topology.one_gpu_a_node


def is_enabled(topology: GroupTopology, function: Function, algorithm: Algorithm, protocol: Protocol) -> bool:
    """Return whether NCCL may use the combination."""
    if not is_considered(topology, function, algorithm, protocol) or topology.graphs[algorithm].channels == 0:
        return False
    if algorithm in ("collnet_direct", "nvls") and function in _SCATTER and topology.nodes > 1:
        return False
    if algorithm in ("collnet_direct", "collnet_chain"):
        reaches = topology.nvswitch if algorithm == "collnet_direct" else topology.chain_offload
        return topology.network_offload and reaches and protocol == "Simple"
    if algorithm == "nvls":
        return topology.nodes == 1 or topology.network_offload
    if protocol != "LL128":
        return True
    # LL128 requires stores of 128 bytes to arrive whole, as over NVLink and over PCI switches near the NIC.
    graph, farthest = topology.graphs[algorithm], Path.PXN if topology.compute_capability >= 90 else Path.PXB
    return graph.intra_type <= Path.NVB and graph.inter_type <= farthest and topology.compute_capability >= 70


def latency_us(topology: GroupTopology, function: Function, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return the latency of an operation of no bytes, in us; 0 if NCCL does not consider the combination."""
    if not is_considered(topology, function, algorithm, protocol):
        return 0.0
    base_us = tables.BASE_US[protocol][algorithm]
    if algorithm == "ring":
        rooted = function in CHAINS
        return base_us + (_chain_us(topology, protocol) if rooted else _ring_us(topology, function, protocol))
    return base_us + _hops_us(topology, algorithm, protocol)


def intra_hop_us(topology: GroupTopology, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return the latency from a GPU to the next inside a node, in us."""
    hops = tables.NVLINK_HOP_US if topology.graphs[algorithm].intra_type == Path.NVL else tables.PCI_HOP_US
    return hops[protocol][algorithm]


def inter_hop_us(topology: GroupTopology, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return the latency from a GPU to one in another node, in us; Simple crosses the network twice, to flush."""
    hop_us = tables.NET_HOP_US[protocol]["tree" if topology.one_gpu_a_node else algorithm]
    return hop_us + topology.graphs[algorithm].net_latency_us * (2 if protocol == "Simple" else 1)


def _ring_us(topology: GroupTopology, function: Function, protocol: Protocol) -> float:
    """Return the latency of a ring's steps; on several nodes each hop inside a node lasts at least the network
    overhead.
    """
    crossings = ring_crossings(function, topology.nodes)
    overhead_us = 0.0
    if topology.nodes > 1:
        times = tables.SIMPLE_OVERHEADS if protocol == "Simple" else 1
        overhead_us = tables.NETWORK_OVERHEAD_US[topology.cpu] * times
    intra_us = max(intra_hop_us(topology, "ring", protocol), overhead_us)
    steps = ring_steps(function, topology.ranks)
    return (steps - crossings) * intra_us + crossings * inter_hop_us(topology, "ring", protocol)


def _chain_us(topology: GroupTopology, protocol: Protocol) -> float:
    """Return the latency of a chain in us: one hop if all channels visit the GPUs in one order, else a hop per rank.

    Simple then has the tree's hops.
    """
    inside = tables.NVLINK_HOP_US if topology.graphs["ring"].intra_type == Path.NVL else tables.PCI_HOP_US
    hops = (inside if topology.nodes == 1 else tables.NET_HOP_US)[protocol]
    if topology.graphs["ring"].same_channels:
        return hops["ring"]
    return topology.ranks * hops["tree" if protocol == "Simple" else "ring"]


def _hops_us(topology: GroupTopology, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return the latency of an algorithm other than rings in us: its hops inside nodes and over the levels of nodes."""
    inter_us, levels = inter_hop_us(topology, algorithm, protocol), topology.node_levels
    if algorithm == "pat":
        return levels * inter_us / tables.PAT_HOPS_AT_ONCE + topology.ranks * tables.PAT_RANK_US
    intra_us, peers = intra_hop_us(topology, algorithm, protocol), topology.ranks_per_node - 1
    match algorithm:
        case "tree":  # up and down, along the chain of a node
            return 2 * (peers * intra_us + levels * inter_us)
        case "collnet_direct":
            return 2 * (min(1, peers) * intra_us + peers * tables.COLLNET_ARITY_US) + inter_us
        case "collnet_chain":
            return 2 * (peers * intra_us) + inter_us
        case "nvls_tree":
            return intra_us + 2 * (levels * inter_us)
    return intra_us + (inter_us if topology.nodes > 1 else 0.0)


def gb_per_s(topology: GroupTopology, function: Function, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return buffer bytes per ns, before the correction for size; 0 if NCCL may not use the combination."""
    if not is_enabled(topology, function, algorithm, protocol):
        return 0.0
    share = _buffer_share(topology, function, algorithm)
    if algorithm in ("ring", "tree"):
        return share * (_ring if algorithm == "ring" else _tree)(topology, protocol)
    return share * _offloaded(topology, function, algorithm)


def _buffer_share(topology: GroupTopology, function: Function, algorithm: Algorithm) -> float:
    """Return buffer bytes per byte that passes one point; a ring's is defined for every function."""
    if algorithm == "ring" or (algorithm in ("nvls", "nvls_tree") and function == "all_reduce"):
        return topology.ranks / ring_steps(function, topology.ranks)
    return 1 / 2 if function == "all_reduce" else 1.0


def _bus(topology: GroupTopology, graph: Graph) -> float:
    return graph.channels * (graph.intra_gb_per_s if topology.nodes <= 2 else graph.inter_gb_per_s)


def _cap(topology: GroupTopology, caps: tables.Caps) -> float:
    return caps[topology.generation][min(topology.nodes, 3) - 1]


def _ll_cap(topology: GroupTopology) -> float:
    row = topology.generation if topology.nodes == 1 else tables.LL_ROW_BY_CPU[topology.cpu]
    return tables.LL_GB_PER_S[row][min(topology.nodes, 3) - 1]


def _ring(topology: GroupTopology, protocol: Protocol) -> float:
    graph = topology.graphs["ring"]
    bus = _bus(topology, graph)
    if protocol == "LL":
        return min(tables.RING_LL * bus, _ll_cap(topology))
    if protocol == "LL128":
        cap = graph.channels * _cap(topology, tables.RING_LL128_CHANNEL_GB_PER_S)
        return min(tables.RING_LL128 * bus, cap)
    return bus


def _tree(topology: GroupTopology, protocol: Protocol) -> float:
    graph = topology.graphs["tree"]
    bus = min(tables.TREE * _bus(topology, graph), graph.channels * _cap(topology, tables.TREE_CHANNEL_GB_PER_S))
    if protocol == "LL":
        bus = min(tables.TREE_LL * bus, _ll_cap(topology))
    elif protocol == "LL128":
        share = tables.TREE_LL128_ONE_NODE if topology.nodes == 1 else tables.TREE_LL128
        bus = min(share * bus, graph.channels * _cap(topology, tables.TREE_LL128_CHANNEL_GB_PER_S))
    return bus * (tables.PLAIN_TREE if topology.plain_tree else 1.0)


def _collnet_direct(topology: GroupTopology, function: Function) -> float:
    """Return the rate of CollNet direct.

    An all-reduce's rate is divided by (GPUs per NIC + 1) / 2; gathers and scatters are limited by a NIC's rate per GPU,
    too.
    """
    graph, gpus = topology.graphs["collnet_direct"], topology.mean_ranks_per_node
    if function != "all_reduce":
        return gpus * min(graph.intra_gb_per_s, tables.COLLNET_DIRECT_NIC * graph.inter_gb_per_s)
    gpus_a_nic = gpus / graph.channels
    bus = graph.channels * graph.intra_gb_per_s / ((gpus_a_nic + 1) / 2)
    return bus * (tables.COLLNET_DIRECT_SINCE_HOPPER if topology.compute_capability >= 90 else 1.0)


def _nvls_channel(topology: GroupTopology, function: Function, graph: Graph) -> float:
    """Return the NVSwitch's rate for one channel in GB/s; one of the graph's channels serves the NICs."""
    rate = graph.intra_gb_per_s * tables.NVLS[topology.generation] * (graph.channels - 1) / graph.channels
    if function == "all_reduce":
        return 2 * rate
    return rate * (topology.mean_ranks_per_node - 1) / topology.mean_ranks_per_node


def _offloaded(topology: GroupTopology, function: Function, algorithm: Algorithm) -> float:
    graph = topology.graphs[algorithm]
    match algorithm:
        case "collnet_direct":
            return _collnet_direct(topology, function)
        case "collnet_chain":
            return graph.channels * graph.intra_gb_per_s
        case "pat":
            return tables.PAT * _bus(topology, graph)
        case "nvls":
            return graph.channels * min(_nvls_channel(topology, function, graph), graph.inter_gb_per_s)
    inter = graph.inter_gb_per_s * (2 if topology.nodes <= 2 else 1)
    cap = _cap(topology, tables.NVLS_TREE_CHANNEL_GB_PER_S)
    return graph.channels * min(_nvls_channel(topology, function, graph), inter, cap)


def choices(topology: GroupTopology, operation: TunedCollective) -> Iterator[TuningChoice]:
    """Yield every enabled combination, in NCCL's order."""
    for algorithm, protocol in product(ALGORITHMS, PROTOCOLS):
        rate = gb_per_s(topology, operation.function, algorithm, protocol)
        if rate > 0:
            one_us = latency_us(topology, operation.function, algorithm, protocol)
            yield TuningChoice(
                algorithm=algorithm,
                protocol=protocol,
                latency_ns=1e3 * one_us * _latencies(topology, operation, algorithm, protocol),
                transfer_ns=operation.size_bytes / (rate * _size_share(topology, operation, algorithm, protocol)),
            )


def choose(topology: GroupTopology, operation: TunedCollective) -> TuningChoice:
    """Return the fastest combination; the first of equals."""
    return min(choices(topology, operation), key=lambda choice: choice.total_ns)


def _latencies(topology: GroupTopology, operation: TunedCollective, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return how often the latency counts: for a ring per operation, more where it is full, else once per batch."""
    if algorithm != "ring":
        return -(-operation.together // tables.OPERATIONS_A_BATCH)
    full_bytes = tables.FULL_RING_BYTES * topology.channels * topology.ranks
    full = protocol == "Simple" and topology.nodes > 1 and operation.size_bytes >= full_bytes
    if full and operation.function == "all_reduce":
        return operation.together * tables.FULL_RING[topology.generation]
    return operation.together


def _size_share(topology: GroupTopology, operation: TunedCollective, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return the share of its bandwidth that a tree reaches at a size; NVLS trees have one since Blackwell."""
    shares: tuple[float, ...] = ()
    if algorithm == "tree":
        shares = tables.TREE_SIZES[protocol]
    elif algorithm == "nvls_tree" and topology.generation == "Blackwell":
        shares = tables.NVLS_TREE_SIZES
    # log2 of the size in units of 64 B, rounded down: negative below 64 B, where the full rate counts.
    place = (operation.size_bytes >> 6).bit_length() - 1
    return shares[place] if 0 <= place < len(shares) else 1.0
