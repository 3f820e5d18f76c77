"""The inputs of NCCL's tuning model: a group, its CPUs, and the graph that the search found for each algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias, get_args

from scenarios.seam.traits import CHAINS, Function

Algorithm: TypeAlias = Literal["tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"]
Protocol: TypeAlias = Literal["LL", "LL128", "Simple"]
Cpu: TypeAlias = Literal["intel", "amd", "arm"]
Generation: TypeAlias = Literal["Volta", "Ampere", "Hopper", "Blackwell"]

# In NCCL's order: of equally fast combinations it takes the first.
FUNCTIONS: tuple[Function, ...] = get_args(Function)
ALGORITHMS: tuple[Algorithm, ...] = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")

# The path between two devices, nearest first, by NCCL's names and numbers.
Path = IntEnum("Path", "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS", start=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A set of channels for one algorithm.

    Rates are of one channel, inside a node and between nodes. `net_latency_us` is the network's own, one way. The types
    are the worst paths between GPUs, and between a GPU and its NIC. `same_channels`: all have the same GPU order.
    """

    channels: int
    intra_gb_per_s: float
    inter_gb_per_s: float
    net_latency_us: float
    intra_type: Path
    inter_type: Path
    same_channels: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopology:
    """A group of `ranks` on `nodes`, one GPU per rank, with its graphs.

    `compute_capability` is 90 for 9.0. `channels` is the number that the communicator opened. `plain_tree`: every tree
    goes through one GPU of a node, neither split nor balanced over two. `network_offload`: switches of the network
    reduce (SHARP, by NCCL's CollNet); `chain_offload`: also for the heads of CollNetChain, which must be those of the
    others. An algorithm without a graph is not available.
    """

    ranks: int
    nodes: int
    compute_capability: int
    cpu: Cpu
    channels: int
    plain_tree: bool
    nvswitch: bool
    network_offload: bool
    graphs: Mapping[Algorithm, Graph]
    chain_offload: bool = False

    @property
    def ranks_per_node(self) -> int:
        """Ranks per node, rounded down, at least 1."""
        return max(1, self.ranks // self.nodes)

    @property
    def mean_ranks_per_node(self) -> float:
        """Mean ranks per node: in bandwidths NCCL counts parts of a rank, in latencies whole ones."""
        return self.ranks / self.nodes

    @property
    def one_gpu_a_node(self) -> bool:
        return self.ranks == self.nodes

    @property
    def node_levels(self) -> int:
        """Levels of a binary tree over the nodes: log2, rounded down."""
        return self.nodes.bit_length() - 1

    @property
    def generation(self) -> Generation:
        return generation(self.compute_capability)


def generation(compute_capability: int) -> Generation:
    """Return the row of the tables; GPUs older than Volta count as Volta."""
    if compute_capability >= 100:
        return "Blackwell"
    if compute_capability >= 90:
        return "Hopper"
    return "Ampere" if compute_capability >= 80 else "Volta"


def ring_steps(function: Function, ranks: int) -> int:
    """Return the hops of a chunk round the ring; each edge carries this over `ranks` of the buffer."""
    return ranks if function in CHAINS else (2 if function == "all_reduce" else 1) * (ranks - 1)


def ring_crossings(function: Function, nodes: int) -> int:
    """Return how many of the ring's hops go from node to node."""
    return (2 if function == "all_reduce" else 1) * (nodes - 1)
