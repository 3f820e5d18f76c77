"""Applies NCCL's tuning model to the simulated cluster: its choice, and the time of its bytes on the links."""

from __future__ import annotations

from functools import lru_cache

from scenarios.config.hardware import NCCL_START_NS
from scenarios.seam.traits import CHAINS, IN_CHUNKS
from sim.nccl import one_host
from sim.nccl.costs import GroupShape, NcclCosts
from sim.nccl.model import mesh as nccl_mesh
from sim.nccl.model import predictor, tables
from sim.nccl.model.mesh import HostPart
from sim.nccl.model.predictor import TunedCollective, TuningChoice, inter_hop_us, intra_hop_us
from sim.nccl.model.search import Node, counted_share, graphs, twice
from sim.nccl.model.topology import Algorithm, Graph, GroupTopology, Path, Protocol, ring_crossings

# A communicator opens every channel of its graphs twice, as in the named topologies of NCCL's golden record.
_COPIES = 2
# Over several nodes a channel copies the last chunk after its arrival, with no overlap: GB/s. From vTrain's all-reduce
# of 1 GiB on 2 A100s, whose channels have 20 GB/s (docs/explanation/collectives.md). The rate grows with the channel's,
# as a faster link would otherwise make a ring slower.
_COPY_GB_PER_S, _COPY_SPEED = 25.0, 1.25

# Growth of the start (`NcclCosts.start_ns`) over several nodes: full from this size on, below by this power.
_STARTED_BYTES, _STARTING = 640 << 10, 0.4
# Through a switch that reduces and back by NVLS, over several nodes: not measured.
_NVLS_US = 25.0
# A tree over nodes fills level by level, with chunks that grow with the buffer: time added per level, up and down. From
# the all-reduces on 8 DGX H100 of arXiv 2411.13055.
_LEVEL_US, _LEVEL_BYTES, _MOST_LEVEL_US = 22.0, 32 << 20, 88.0

# Share of the NICs' payload rate that switches reach when they reduce: from the all-reduce of 16 GiB on 4 nodes of 8
# B200 by CollNet, 543.8 GB/s of bus bandwidth (togethercomputer/together-nccl-tests, use3a-ss, 2026-05-02).
SHARP_SHARE = 0.716

# Along the chain of a broadcast or reduce a host forwards slices of a channel: one of the eight steps of NCCL's buffer
# of 4 MiB (NCCL_STEPS, BROADCAST_SLICESTEPS: src/include/device.h, collectives.h).
_SLICE_BYTES = 512 << 10

# Point-to-point: largest message that goes by LL, and number of operations that start together.
P2P_LL_BYTES = 16 << 10
P2P_BATCH = 8


@lru_cache(maxsize=4096)  # each step repeats its calls
def choose(operation: TunedCollective, shape: GroupShape, costs: NcclCosts) -> TuningChoice:
    """Return the fastest algorithm and protocol by NCCL's own formula; the first of equals."""
    return predictor.choose(topology(shape, costs), operation)


@lru_cache(maxsize=1024)
def topology(shape: GroupShape, costs: NcclCosts) -> GroupTopology:
    """Return the group with the graphs that NCCL's search would find; its CPUs are Intel's, its NICs near the GPUs."""
    offload = costs.sharp and shape.hosts > 1
    if costs.mesh is None:
        found = graphs(node(shape, costs), offload=offload)
    else:
        found = _mesh_graphs(shape, costs, offload=offload)
    return GroupTopology(
        ranks=shape.ranks,
        nodes=shape.hosts,
        compute_capability=costs.compute_capability,
        cpu="intel",
        channels=_COPIES * found["ring"].channels,
        plain_tree=False,
        nvswitch=costs.nvlink and costs.mesh is None,
        network_offload=offload,
        graphs=found,
        chain_offload=offload,
    )


def node(shape: GroupShape, costs: NcclCosts) -> Node:
    """Return one of the group's hosts, as the search sees it."""
    return Node(
        gpus=-(-shape.ranks // shape.hosts),
        nics=0 if shape.hosts == 1 else shape.rails,
        compute_capability=costs.compute_capability,
        nvlink=costs.nvlink,
        gpu_gb_per_s=costs.intra_bytes_per_s / 1e9,
        nic_gb_per_s=costs.path_bytes_per_s / 1e9,
        net_latency_us=costs.nic_latency_ns / 1e3,
    )


def part(gpus: tuple[int, ...], shape: GroupShape, costs: NcclCosts) -> HostPart:
    """Return the input of the search for channels: some GPUs of one host of a mesh, and their NICs."""
    assert costs.mesh is not None
    return HostPart(
        mesh=costs.mesh,
        gpus=gpus,
        nics=() if shape.hosts == 1 else tuple(gpu % (costs.nics_per_host or costs.ranks_per_host) for gpu in gpus),
        nic_gb_per_s=costs.path_bytes_per_s / 1e9,
        compute_capability=costs.compute_capability,
    )


def mesh_rings(gpus: tuple[int, ...], shape: GroupShape, costs: NcclCosts) -> tuple[tuple[int, ...], ...]:
    """Return the rings through these GPUs of a host: at most as many as every host of the group has."""
    fewest = min(len(nccl_mesh.search(part(one, shape, costs)).rings) for one in shape.gpus)
    return nccl_mesh.search(part(gpus, shape, costs)).rings[:fewest]


def _mesh_graphs(shape: GroupShape, costs: NcclCosts, *, offload: bool) -> dict[Algorithm, Graph]:
    """Return the graphs of the host with the slowest channels; chains of trees and of CollNet are its rings, cut."""
    found = [nccl_mesh.search(part(gpus, shape, costs)) for gpus in shape.gpus]
    rings = [mesh_rings(gpus, shape, costs) for gpus in shape.gpus]
    channels, gb_per_s = twice(costs.compute_capability, len(rings[0]), min(one.gb_per_s for one in found))
    ring = Graph(
        channels=channels,
        intra_gb_per_s=gb_per_s,
        inter_gb_per_s=gb_per_s,
        net_latency_us=costs.nic_latency_ns / 1e3,
        intra_type=max(one.path for one in found),
        inter_type=Path.PXB,
        same_channels=all(len(set(one)) == 1 for one in rings),
    )
    graphs_by: dict[Algorithm, Graph] = {"tree": ring, "ring": ring, "pat": ring}
    return {**graphs_by, "collnet_chain": ring} if offload else graphs_by


def bus_gb_per_s(shape: GroupShape, costs: NcclCosts) -> float:
    """Return the GB/s of all rings together past one point: a GPU's link, or a host's NICs where those are slower.

    NCCL itself uses the speeds of its table, of which a whole number of channels fits.
    """
    nic_gb_per_s = costs.network_bytes_per_s / 1e9
    if costs.mesh is not None:
        parts = [(part(gpus, shape, costs), mesh_rings(gpus, shape, costs)) for gpus in shape.gpus]
        return min(nccl_mesh.bus_gb_per_s(one, rings, nic_gb_per_s) for one, rings in parts)
    one = node(shape, costs)
    if shape.hosts == 1:
        return one.link_gb_per_s
    # With one rank on each host no byte crosses a GPU's link to a peer, however slow that link is.
    network = shape.rails * nic_gb_per_s
    return network if shape.ranks == shape.hosts else min(network, one.link_gb_per_s)


def latency_ns(choice: TuningChoice, operation: TunedCollective, shape: GroupShape, costs: NcclCosts) -> float:
    """Return the time of an operation in ns, without that of its bytes.

    Within a host it follows the law of `one_host`; over several it is NCCL's figure plus the measured excess over it.
    """
    if shape.hosts == 1:
        found_ns = 1e3 * _in_one_host(choice, operation, shape, costs).latency_us
    else:
        found_ns = _latency_over_hosts_ns(choice, operation, shape, costs)
    # The floor is of latency and bytes together, so only what the bytes leave of it is added.
    return max(found_ns, costs.floor_ns - transfer_ns(choice, operation, shape, costs))


def _latency_over_hosts_ns(
    choice: TuningChoice, operation: TunedCollective, shape: GroupShape, costs: NcclCosts
) -> float:
    size_bytes, group = operation.size_bytes, topology(shape, costs)
    if is_offloaded(choice.algorithm, shape):
        crossings = 1  # up to the switches that reduce, and down again
    elif choice.algorithm == "ring":
        crossings = ring_crossings(operation.function, group.nodes)
    else:  # of the network, one after the other
        crossings = group.node_levels if choice.algorithm == "pat" else 2 * group.node_levels
    beyond_ns = float(crossings * costs.network_latency_ns)
    if crossings and choice.algorithm in ("tree", "nvls_tree"):
        level_us: float = _LEVEL_US * (size_bytes / _LEVEL_BYTES) ** (1 / 3)
        beyond_ns += 1e3 * crossings * min(level_us, _MOST_LEVEL_US)
    else:
        beyond_ns += costs.start_ns * min(1.0, size_bytes / _STARTED_BYTES) ** _STARTING
    if choice.algorithm == "nvls":
        beyond_ns += 1e3 * _NVLS_US
    if operation.function in CHAINS and choice.protocol == "Simple":
        slices_bytes = min(size_bytes, _COPIES * shape.rails * _SLICE_BYTES)
        beyond_ns += crossings * slices_bytes / (bus_gb_per_s(shape, costs) * costs.efficiency)
    return choice.latency_ns + beyond_ns


def transfer_ns(choice: TuningChoice, operation: TunedCollective, shape: GroupShape, costs: NcclCosts) -> float:
    """Return the time of an operation's bytes in ns on idle links.

    Within a host it follows the law of `one_host`; over several it is NCCL's figure at the links' rates, and for a ring
    by Simple the last copy.
    """
    if shape.hosts == 1:
        return 1e3 * _in_one_host(choice, operation, shape, costs).transfer_us / costs.efficiency
    bytes_ns = _counted_ns(choice, shape, costs) / costs.efficiency
    if choice.algorithm != "ring" or choice.protocol != "Simple" or operation.function not in IN_CHUNKS:
        return bytes_ns
    found = topology(shape, costs)
    a_channel_bytes = operation.size_bytes / (found.channels * shape.ranks)
    return bytes_ns + a_channel_bytes / max(_COPY_GB_PER_S, _COPY_SPEED * found.graphs["ring"].intra_gb_per_s)


def _counted_ns(choice: TuningChoice, shape: GroupShape, costs: NcclCosts) -> float:
    """Return NCCL's figure for the bytes, in ns, at the links' rates."""
    ring = topology(shape, costs).graphs["ring"]
    counted = ring.channels * (ring.intra_gb_per_s if shape.hosts <= 2 else ring.inter_gb_per_s)
    return choice.transfer_ns * counted / bus_gb_per_s(shape, costs)


@lru_cache(maxsize=4096)
def _in_one_host(
    choice: TuningChoice, operation: TunedCollective, shape: GroupShape, costs: NcclCosts
) -> one_host.OneHostTime:
    group, counted_us = _group(shape, costs), _counted_ns(choice, shape, costs) / 1e3
    if choice.algorithm == "ring":
        if choice.protocol == "Simple":
            return one_host.simple_ring(operation, group)
        return one_host.low_latency_ring(operation, group, choice.protocol)
    if choice.algorithm == "nvls":
        return one_host.nvls(operation.size_bytes, counted_us, group)
    return one_host.tree(choice.protocol, counted_us, group)


def _group(shape: GroupShape, costs: NcclCosts) -> one_host.OneHostGroup:
    found = topology(shape, costs)
    return one_host.OneHostGroup(
        ranks=shape.ranks,
        link_gb_per_s=bus_gb_per_s(shape, costs),
        channels=found.channels,
        generation=found.generation,
        nvlink=costs.nvlink,
        start_share=costs.start_ns / NCCL_START_NS,
    )


def is_offloaded(algorithm: Algorithm, shape: GroupShape) -> bool:
    """Return whether the network's switches reduce."""
    return algorithm in ("collnet_direct", "collnet_chain") or (algorithm == "nvls" and shape.hosts > 1)


def pipeline_overhead(is_inside: bool, costs: NcclCosts) -> float:
    """Return the link bytes per byte of a pipeline's payload, at the best rate that NCCL reaches."""
    share = counted_share(costs.compute_capability, nvlink=costs.nvlink) if is_inside else 1.0
    return 1 / (share * costs.efficiency)


def overhead(is_inside: bool, costs: NcclCosts, peers: int = 1) -> float:
    """Return the link bytes per byte of payload, where each rank sends to `peers` others.

    Inside a host point-to-point reaches less of the data sheet's rate than NCCL counts, over PCI Express less with more
    peers.
    """
    if not is_inside:
        return 1 / costs.efficiency
    share = costs.p2p_share if costs.nvlink else 1 / (1 + max(0, peers - 1) * one_host.PCIE_PEER)
    return 1 / (counted_share(costs.compute_capability, nvlink=costs.nvlink) * share * costs.efficiency)


def p2p_latency_ns(
    size_bytes: int, peers: int, shape: GroupShape, costs: NcclCosts, *, crosses: bool, own_bytes: float = 0.0
) -> float:
    """Return the time in ns until the last of `peers` grouped transfers may start, and its one hop.

    NCCL has no predictor for it: within a host it follows a law, with the bytes that a rank copies for itself
    (`own_bytes`).
    """
    if shape.hosts == 1:
        return 1e3 * one_host.sends_us(size_bytes, own_bytes / costs.efficiency, peers, _group(shape, costs))
    protocol: Protocol = "LL" if size_bytes <= P2P_LL_BYTES else "Simple"
    hop_us = (inter_hop_us if crosses else intra_hop_us)(topology(shape, costs), "ring", protocol)
    network_ns = costs.network_latency_ns if crosses else 0
    return (tables.BASE_US[protocol]["ring"] + -(-peers // P2P_BATCH) * hop_us) * 1e3 + network_ns
