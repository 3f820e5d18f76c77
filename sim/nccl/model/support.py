"""Which algorithm and protocol NCCL looks at for a function, and which it may use; costs are left to others.

The conditions on CollNet and NVLS are those that NCCL's golden results obey: CollNetDirect wants network offload and
an NVSwitch, over several nodes both only all-reduce, and CollNetChain is never used.
"""

from __future__ import annotations

from sim.nccl.model import tables
from sim.nccl.model.topology import FUNCTIONS, Algorithm, Function, Graph, Path, Protocol, Topology

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


def considered(topology: Topology, function: Function, algorithm: Algorithm, protocol: Protocol) -> bool:
    """NCCL computes a latency for it, whether or not it may be used."""
    graph = topology.graphs.get(algorithm)
    if graph is None or function not in _SERVES[algorithm]:
        return False
    if algorithm in _SIMPLE_ONLY and protocol != "Simple":
        return False
    if algorithm in ("nvls", "nvls_tree"):
        return graph.channels >= _NVLS_CHANNELS and topology.generation in tables.NVLS
    return algorithm != "pat" or topology.one_gpu_a_node


def enabled(topology: Topology, function: Function, algorithm: Algorithm, protocol: Protocol) -> bool:
    """NCCL may use it."""
    if not considered(topology, function, algorithm, protocol) or topology.graphs[algorithm].channels == 0:
        return False
    if algorithm in ("collnet_direct", "nvls") and function in _SCATTER and topology.nodes > 1:
        return False
    if algorithm == "collnet_direct":
        return topology.network_offload and topology.nvswitch and protocol == "Simple"
    if algorithm == "nvls":
        return topology.nodes == 1 or topology.network_offload
    return algorithm != "collnet_chain" and (protocol != "LL128" or _ll128(topology, topology.graphs[algorithm]))


def _ll128(topology: Topology, graph: Graph) -> bool:
    """It trusts stores of 128 bytes to arrive whole: over NVLink they do, and over PCI switches near the NIC."""
    farthest = Path.PXN if topology.compute_capability >= 90 else Path.PXB
    return graph.intra_type <= Path.NVB and graph.inter_type <= farthest and topology.compute_capability >= 70
