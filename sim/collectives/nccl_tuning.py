"""NCCL's own cost model for Ring and Tree: which algorithm and protocol, and its time on an idle cluster.

Constants and formulas are those of NCCL 2.30's predictor (microseconds, GB/s). The graph search is left out: the number
of channels and their rate follow from the link rates alone. Where the bytes go is left to `nccl_paths`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

Algorithm: TypeAlias = Literal["ring", "tree"]
Protocol: TypeAlias = Literal["LL", "LL128", "Simple"]

ALGORITHMS: tuple[Algorithm, ...] = ("tree", "ring")
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")

_LL, _LL128, _SIMPLE = range(3)

# Rows Volta, Ampere, Hopper, Blackwell; columns 1 host, 2 hosts, more. GB/s in all, or a channel.
_LL_MAX = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
_RING_LL128 = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0))
_TREE_LL128 = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
_TREE = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))

# LL, LL128, Simple in microseconds.
_BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_NVLINK_HOP = {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
_PCI_HOP = {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)}
_NET_HOP = {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}

# Share of the tree's bandwidth that is left at a size, by log2(bytes / 64).
_TREE_SIZES = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    (0.9,) * 7 + (0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
)

# What the graph search gives one channel at most on these GPUs; approximate until a search of our own stands here.
_CHANNEL_BYTES_PER_S = (20e9, 20e9, 30e9, 40e9)
_CHANNELS = (2, 32)

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

    @property
    def generation(self) -> int:
        """Row of the tables: Volta 0, Ampere 1, Hopper 2, Blackwell 3."""
        return min(3, max(0, self.compute_capability // 10 - 7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A group on the cluster: `rails` NICs of each of its hosts carry its traffic."""

    ranks: int
    hosts: int
    rails: int

    @property
    def ranks_per_host(self) -> int:
        """Rounded down, at least one."""
        return max(1, self.ranks // self.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What NCCL would do, and what it thinks that takes: latency plus `transfer_ns` for the bytes."""

    algorithm: Algorithm
    protocol: Protocol
    latency_ns: float
    transfer_ns: float

    @property
    def total_ns(self) -> float:
        """NCCL's own prediction."""
        return self.latency_ns + self.transfer_ns


def ring_steps(op: str, ranks: int) -> int:
    """Hops of a chunk round the ring; bytes on each edge are this over `ranks` of the buffer."""
    return {"all_reduce": 2 * (ranks - 1), "all_gather": ranks - 1, "reduce_scatter": ranks - 1}.get(op, ranks)


def choices(op: str, size_bytes: int, shape: Shape, costs: NcclCosts) -> Iterator[Choice]:
    """Every way that is enabled; `op` is all_reduce, all_gather, reduce_scatter, broadcast or reduce."""
    for algorithm, (index, protocol) in product(ALGORITHMS, enumerate(PROTOCOLS)):
        if (algorithm == "tree" and op != "all_reduce") or (index == _LL128 and not costs.nvlink):
            continue
        yield Choice(
            algorithm=algorithm,
            protocol=protocol,
            latency_ns=_latency_us(algorithm, index, op, size_bytes, shape, costs) * 1e3,
            transfer_ns=size_bytes / _bytes_per_ns(algorithm, index, op, size_bytes, shape, costs),
        )


def choose(op: str, size_bytes: int, shape: Shape, costs: NcclCosts) -> Choice:
    """The quickest by NCCL's own formula; the first of equals."""
    return min(choices(op, size_bytes, shape, costs), key=lambda choice: choice.total_ns)


def bus_bytes_per_s(shape: Shape, costs: NcclCosts) -> float:
    """What all rings together carry past one point: the GPUs' links, or a host's NICs where those are slower."""
    if shape.hosts == 1:
        return costs.intra_bytes_per_s
    network = shape.rails * costs.inter_bytes_per_s
    return network if shape.ranks == shape.hosts else min(network, costs.intra_bytes_per_s)


def channels(shape: Shape, costs: NcclCosts) -> int:
    """How many rings (or trees) NCCL would open."""
    low, high = _CHANNELS
    return min(high, max(low, round(bus_bytes_per_s(shape, costs) / _CHANNEL_BYTES_PER_S[costs.generation])))


def p2p_latency_ns(size_bytes: int, peers: int, crosses: bool, shape: Shape, costs: NcclCosts) -> float:
    """Until the last of `peers` grouped transfers may start, and its one hop; our own, for NCCL has no predictor."""
    protocol = _LL if size_bytes <= P2P_LL_BYTES else _SIMPLE
    hop_us = _inter_us("ring", protocol, shape, costs) if crosses else _intra_us("ring", protocol, costs)
    return (_BASE["ring"][protocol] + -(-peers // P2P_BATCH) * hop_us) * 1e3


def _bytes_per_ns(
    algorithm: Algorithm, protocol: int, op: str, size_bytes: int, shape: Shape, costs: NcclCosts
) -> float:
    """Buffer bytes per ns, which is GB/s."""
    if algorithm == "tree":
        rate = _tree_rate(protocol, shape, costs) / 2
        place = (size_bytes >> 6).bit_length() - 1
        return rate * _TREE_SIZES[protocol][place] if 0 <= place < len(_TREE_SIZES[protocol]) else rate
    return _ring_rate(protocol, shape, costs) * shape.ranks / ring_steps(op, shape.ranks)


def _ring_rate(protocol: int, shape: Shape, costs: NcclCosts) -> float:
    bus, column = bus_bytes_per_s(shape, costs) / 1e9, min(shape.hosts, 3) - 1
    if protocol == _LL:
        return min(_ll_max(shape, costs), bus / 2)
    if protocol == _LL128:
        return min(0.92 * bus, channels(shape, costs) * _RING_LL128[costs.generation][column])
    return bus


def _tree_rate(protocol: int, shape: Shape, costs: NcclCosts) -> float:
    bus, column, count = bus_bytes_per_s(shape, costs) / 1e9, min(shape.hosts, 3) - 1, channels(shape, costs)
    rate = min(0.92 * bus, count * _TREE[costs.generation][column])
    if protocol == _LL:
        return min(rate / 3.8, _ll_max(shape, costs))
    if protocol == _LL128:
        return min(rate * (7 / 9 if shape.hosts == 1 else 15 / 16), count * _TREE_LL128[costs.generation][column])
    return rate


def _ll_max(shape: Shape, costs: NcclCosts) -> float:
    """On several hosts the processor's part counts, not the GPU's: Volta's row stands for x86."""
    return _LL_MAX[costs.generation if shape.hosts == 1 else 0][min(shape.hosts, 3) - 1]


def _latency_us(algorithm: Algorithm, protocol: int, op: str, size_bytes: int, shape: Shape, costs: NcclCosts) -> float:
    base = _BASE[algorithm][protocol]
    intra, inter = _intra_us(algorithm, protocol, costs), _inter_us(algorithm, protocol, shape, costs)
    if algorithm == "tree":
        levels = shape.hosts.bit_length() - 1
        return base + 2 * ((shape.ranks_per_host - 1) * intra + levels * inter)
    if op in ("broadcast", "reduce"):
        hop = intra if shape.hosts == 1 else _NET_HOP["ring"][protocol]
        return base + (hop if shape.rails == 1 else ring_steps(op, shape.ranks) * hop)  # rails visit GPUs in own orders
    crossings = (2 if op == "all_reduce" else 1) * (shape.hosts - 1)
    overhead = 0.0 if shape.hosts == 1 else 3.0 if protocol == _SIMPLE else 1.0
    total = base + (ring_steps(op, shape.ranks) - crossings) * max(intra, overhead) + crossings * inter
    pieces = channels(shape, costs) * shape.ranks
    if op == "all_reduce" and protocol == _SIMPLE and shape.hosts > 1 and size_bytes // pieces >= 64:
        total *= 1.4 if costs.compute_capability >= 80 else 1.9
    return total


def _intra_us(algorithm: Algorithm, protocol: int, costs: NcclCosts) -> float:
    return (_NVLINK_HOP if costs.nvlink else _PCI_HOP)[algorithm][protocol]


def _inter_us(algorithm: Algorithm, protocol: int, shape: Shape, costs: NcclCosts) -> float:
    row = _NET_HOP["tree" if shape.ranks == shape.hosts else algorithm]
    return row[protocol] + costs.nic_latency_ns / 1e3 * (2 if protocol == _SIMPLE else 1)
