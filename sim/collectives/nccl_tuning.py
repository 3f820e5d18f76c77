"""The simulated cluster as NCCL's tuning model wants it, and NCCL's choice there among what the simulator can play.

NCCL's search for graphs is approximated: channels and their rate follow from the link rates alone. The model itself
is `nccl_predictor`; where the bytes go is left to `nccl_paths`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sim.collectives import nccl_predictor as predictor
from sim.collectives import nccl_tables as tables
from sim.collectives.nccl_latency import inter_hop_us, intra_hop_us
from sim.collectives.nccl_predictor import Choice, Operation
from sim.collectives.nccl_topology import Function, Generation, Graph, Path, Protocol, Topology, generation

# What the graph search gives one channel at most on these GPUs; approximate until a search of our own stands here.
_CHANNEL_BYTES_PER_S: Mapping[Generation, float] = {"Volta": 20e9, "Ampere": 20e9, "Hopper": 30e9, "Blackwell": 40e9}
_CHANNELS = (2, 32)
# A communicator opens every channel of its graphs twice, as in the named topologies of NCCL's golden record.
_COPIES = 2

# Point-to-point: a message this small goes by LL, and at most so many operations start together.
P2P_LL_BYTES = 16 << 10
P2P_BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCosts:
    """What the formula needs to know of a cluster.

    `intra_bytes_per_s`: one GPU's link inside its host, each direction; `inter_bytes_per_s`: one NIC, each direction.
    `ranks_per_host` is the cluster's, `nics_per_host` how many NICs they share (None: each has its own).
    `compute_capability` is 90 for 9.0.
    """

    intra_bytes_per_s: float
    inter_bytes_per_s: float
    nic_latency_ns: int
    hosts: int
    ranks_per_host: int
    compute_capability: int
    nvlink: bool
    nics_per_host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A group on the cluster: `rails` NICs of each of its hosts carry its traffic."""

    ranks: int
    hosts: int
    rails: int


def choices(function: Function, size_bytes: int, shape: Shape, costs: NcclCosts) -> Iterator[Choice]:
    """Every way that is enabled and that the simulator can play."""
    return predictor.choices(topology(shape, costs), Operation(function=function, size_bytes=size_bytes))


@lru_cache(maxsize=4096)  # a program calls the same again each step
def choose(function: Function, size_bytes: int, shape: Shape, costs: NcclCosts) -> Choice:
    """The quickest by NCCL's own formula; the first of equals."""
    return predictor.choose(topology(shape, costs), Operation(function=function, size_bytes=size_bytes))


@lru_cache(maxsize=1024)
def topology(shape: Shape, costs: NcclCosts) -> Topology:
    """The group with a graph for rings and one for trees, alike; its CPUs are Intel's, its NICs near the GPUs."""
    graph = _graph(shape, costs)
    return Topology(
        ranks=shape.ranks,
        nodes=shape.hosts,
        compute_capability=costs.compute_capability,
        cpu="intel",
        channels=_COPIES * graph.channels,
        plain_tree=False,
        nvswitch=False,
        network_offload=False,
        graphs={"tree": graph, "ring": graph},
    )


def _graph(shape: Shape, costs: NcclCosts) -> Graph:
    """Rails visit the GPUs of a host each in an order of its own."""
    channels = _channels(shape, costs)
    channel_gb_per_s = bus_bytes_per_s(shape, costs) / 1e9 / channels
    return Graph(
        channels=channels,
        intra_gb_per_s=channel_gb_per_s,
        inter_gb_per_s=channel_gb_per_s,
        net_latency_us=costs.nic_latency_ns / 1e3,
        intra_type=Path.NVL if costs.nvlink else Path.PHB,
        inter_type=Path.PXB,
        same_channels=shape.rails == 1,
    )


def bus_bytes_per_s(shape: Shape, costs: NcclCosts) -> float:
    """What all rings together carry past one point: the GPUs' links, or a host's NICs where those are slower."""
    if shape.hosts == 1:
        return costs.intra_bytes_per_s
    network = shape.rails * costs.inter_bytes_per_s
    return network if shape.ranks == shape.hosts else min(network, costs.intra_bytes_per_s)


def _channels(shape: Shape, costs: NcclCosts) -> int:
    low, high = _CHANNELS
    most_bytes_per_s = _CHANNEL_BYTES_PER_S[generation(costs.compute_capability)]
    return min(high, max(low, round(bus_bytes_per_s(shape, costs) / most_bytes_per_s)))


def p2p_latency_ns(size_bytes: int, peers: int, crosses: bool, shape: Shape, costs: NcclCosts) -> float:
    """Until the last of `peers` grouped transfers may start, and its one hop; our own, for NCCL has no predictor."""
    protocol: Protocol = "LL" if size_bytes <= P2P_LL_BYTES else "Simple"
    hop_us = (inter_hop_us if crosses else intra_hop_us)(topology(shape, costs), "ring", protocol)
    return (tables.BASE_US[protocol]["ring"] + -(-peers // P2P_BATCH) * hop_us) * 1e3
