"""The channels that NCCL's search finds for a group on identical nodes: their number, speed and paths.

NCCL tries the speeds of a channel in order, the fastest first, and packs as many channels as the links carry. On nodes
with symmetric GPUs (an NVSwitch, or PCI Express under one bridge) that packing is a division, so no search is needed;
where NVLinks join only some GPUs, it is that of `mesh`. Rules and constants are those of NCCL 2.30's graph search
(src/graph/search.cc, topo.h); rates are NCCL's own for a link, which are lower than the data sheet's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.nccl.model.topology import Algorithm, Generation, Graph, Path, generation

# GB/s per channel, in NCCL's order of trials: inside a node, and over a network.
_INTRA: Mapping[Generation, Sequence[float]] = {
    "Volta": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "Ampere": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "Hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    "Blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
_SLOW = (17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_INTER: Mapping[Generation, Sequence[float]] = {
    "Volta": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    "Ampere": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    "Hopper": (48, 45, 42, 40, 30, 24, 22, 20, *_SLOW),
    "Blackwell": (96, 48, 45.1, 42, 40, 30, 24, 22, 20, *_SLOW),
}
# GB/s of one NVLink, by the data sheet and by NCCL; below that, of 16 lanes of PCI Express 3.0.
_NVLINK: Mapping[Generation, tuple[float, float]] = {
    "Volta": (25, 20),
    "Ampere": (25, 20),
    "Hopper": (25, 20.6),
    "Blackwell": (50, 40.1),
}
_PCI = (15.75, 12)
# NCCL's limit for a NIC, its PCI Express slot: 16 lanes of the generation that goes with the GPU.
_NIC_SLOT_GB_PER_S: Mapping[Generation, float] = {"Volta": 12, "Ampere": 24, "Hopper": 48, "Blackwell": 96}
# Least speed of a channel that is tried, over the best one's.
LEAST_SPEED = 0.49
MOST_RINGS = 32
_MOST_HEADS = 32
_MOST_COLLNET_GPUS = 8  # NCCL_MAX_DIRECT_ARITY + 1: with more on a node NCCL takes neither (src/enqueue.cc)
# Channels this fast are laid twice, at half the speed; since Hopper only if faster still, or few.
_TWICE_GB_PER_S, _TWICE_SINCE_HOPPER_GB_PER_S, _FEW = 25, 50, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The part of each node that a group has: `gpus` and the `nics` that serve them; rates are the data sheet's.

    `gpu_gb_per_s`: a GPU's link to its peers, over NVLink or PCI Express; `nic_gb_per_s`: one NIC. `nics` is 0 if the
    group has one node. NVLinks lead to an NVSwitch.
    """

    gpus: int
    nics: int
    compute_capability: int
    nvlink: bool
    gpu_gb_per_s: float
    nic_gb_per_s: float
    net_latency_us: float

    @property
    def generation(self) -> Generation:
        return generation(self.compute_capability)

    @property
    def link_gb_per_s(self) -> float:
        """NCCL's rate of a GPU's link, in GB/s."""
        return self.gpu_gb_per_s * counted_share(self.compute_capability, nvlink=self.nvlink)

    @property
    def slot_gb_per_s(self) -> float:
        """NCCL's rate of a NIC, in GB/s."""
        return counted_nic(self.compute_capability, self.nic_gb_per_s)

    @property
    def speeds(self) -> Sequence[float]:
        return speeds(self.compute_capability, crosses=self.nics > 0)


def counted_share(compute_capability: int, *, nvlink: bool) -> float:
    """Return NCCL's rate of a GPU's link, NVLink or PCI Express, over the data sheet's."""
    sheet, counted = _NVLINK[generation(compute_capability)] if nvlink else _PCI
    return counted / sheet


def counted_nic(compute_capability: int, gb_per_s: float) -> float:
    """Return NCCL's rate of a NIC, in GB/s: at most its slot's."""
    return min(gb_per_s, _NIC_SLOT_GB_PER_S[generation(compute_capability)])


def speeds(compute_capability: int, *, crosses: bool) -> Sequence[float]:
    """Return the GB/s per channel that NCCL tries, the fastest first: inside a node, or over a network."""
    return (_INTER if crosses else _INTRA)[generation(compute_capability)]


def graphs(node: Node, *, offload: bool = False) -> dict[Algorithm, Graph]:
    """Return the graph of each algorithm that these nodes can run; `offload`: the network's switches reduce."""
    channels, speed = twice(node.compute_capability, *_pack(node))
    ring = _graph(node, channels, speed, speed)
    found: dict[Algorithm, Graph] = {"tree": ring, "ring": ring, "pat": ring}
    if node.nvlink and node.gpus > 1 and node.compute_capability >= 90:
        found["nvls"] = found["nvls_tree"] = _nvls(node)
    if offload and node.nics and node.gpus <= _MOST_COLLNET_GPUS:
        found["collnet_direct"] = _collnet_direct(node)
        found["collnet_chain"] = _collnet_chain(node, channels)
    return found


def _pack(node: Node) -> tuple[int, float]:
    """Return number and speed of channels with the highest total, of equals the fewest; at least one channel."""
    most, best = 0, 0.0
    for speed in node.speeds:
        # NCCL's ends of the search: slower channels are not worth it, or the found ones fill the link already.
        if speed < LEAST_SPEED * best or most * best >= node.link_gb_per_s:
            break
        channels = _channels(node, speed)
        if channels * speed > most * best:
            most, best = channels, speed
    if most:
        return most, best
    # No listed speed fits: one channel for each NIC at the links' own rate, so that slow clusters have a prediction.
    channels = max(1, node.nics)
    link_gb_per_s = node.link_gb_per_s / channels if node.gpus > 1 else node.nic_gb_per_s
    return channels, min(node.nic_gb_per_s, link_gb_per_s) if node.nics else link_gb_per_s


def _channels(node: Node, speed: float) -> int:
    """Return how many rings of that speed fit: one crosses each GPU's link once each way, and a NIC once in and once
    out.
    """
    fit = int(node.link_gb_per_s / speed) if node.gpus > 1 else MOST_RINGS
    if node.nics:
        fit = min(fit, node.nics * int(node.slot_gb_per_s / speed))
    return min(fit, MOST_RINGS)


def twice(compute_capability: int, channels: int, speed: float) -> tuple[int, float]:
    """Double fast channels, at half the speed."""
    if speed < _TWICE_GB_PER_S or channels * 2 > MOST_RINGS:
        return channels, speed
    if compute_capability > 80 and speed < _TWICE_SINCE_HOPPER_GB_PER_S and channels > _FEW:
        return channels, speed
    return 2 * channels, speed / 2


def _nvls(node: Node) -> Graph:
    """Return NVLS's graph: a channel for each head, which loads its link twice and others' once; between nodes heads
    have a NIC.
    """
    heads = min(node.nics or node.gpus, node.gpus, _MOST_HEADS)
    slot_gb_per_s = node.slot_gb_per_s if node.nics else float("inf")
    fits = [speed for speed in node.speeds if (heads + 1) * speed <= node.link_gb_per_s and speed <= slot_gb_per_s]
    intra = max(fits, default=min(node.speeds))
    quicker = [speed for speed in node.speeds if intra <= speed <= min(slot_gb_per_s, 2 * intra)]
    return _graph(node, heads, intra, max(quicker, default=intra))


def _collnet_direct(node: Node) -> Graph:
    """Return the graph of one channel per NIC, whose GPU (the head) exchanges its part with the node's other GPUs."""
    heads = min(node.nics, node.gpus)
    # A head's link carries its whole channel and, for each other head's channel, the part of one peer.
    load = 1 + (heads - 1) / (node.gpus - 1) if node.gpus > 1 else 0.0
    return _offload_graph(node, heads, load, node.slot_gb_per_s)


def _collnet_chain(node: Node, channels: int) -> Graph:
    """Return the graph of as many chains through a node as it has rings; each GPU but the last forwards a chain."""
    load = channels * (node.gpus - 1) / node.gpus
    return _offload_graph(node, channels, load, node.slot_gb_per_s / -(-channels // node.nics))


def _offload_graph(node: Node, channels: int, load: float, nic_gb_per_s: float) -> Graph:
    """Return the graph whose channels load a GPU's link by `load` per GB/s; inside a node NCCL tries faster ones."""
    fits = [speed for speed in node.speeds if speed * load <= node.link_gb_per_s]
    inter = max((speed for speed in fits if speed <= nic_gb_per_s), default=min(node.speeds))
    intra = inter
    for speed in sorted(fits):
        if inter <= intra < speed and intra < 2 * inter:
            intra = speed
    return _graph(node, channels, intra, inter)


def _graph(node: Node, channels: int, intra: float, inter: float) -> Graph:
    return Graph(
        channels=channels,
        intra_gb_per_s=intra,
        inter_gb_per_s=inter,
        net_latency_us=node.net_latency_us,
        intra_type=Path.NVL if node.nvlink else Path.PHB,
        inter_type=Path.PXB,
        same_channels=node.nics <= 1,
    )
