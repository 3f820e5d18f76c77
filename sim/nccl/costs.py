"""The inputs of NCCL's tuning model: of a cluster, and of a group on it."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.config.hardware import NCCL_P2P_SHARE, NCCL_START_NS, Cluster
from sim.engine.network.between import BETWEEN
from sim.nccl.model.mesh import Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCosts:
    """The inputs of NCCL's formula for a cluster. "Host" is NCCL's node: all hosts that NVLinks join (MNNVL).

    Attributes:
        intra_bytes_per_s: one GPU's link inside its host, each direction.
        inter_bytes_per_s: one NIC, each direction.
        ranks_per_host: GPUs of a host.
        nics_per_host: NICs that a host's GPUs share; None: each has its own.
        gpus_per_tray: GPUs of one of the joined machines; None: all GPUs of a host.
        by_rail: whether a NIC reaches only NICs of its number.
        sharp: whether the network's switches reduce.
        network_latency_ns: latency between two NICs, which NCCL's formula ignores.
        compute_capability: 90 for 9.0.
        payload_share: payload over all bytes of a NIC.
        efficiency: share of all links' rates that NCCL reaches.
        p2p_share: share of an NVLink that point-to-point reaches, on top of `efficiency`.
        start_ns: longest start of a collective over several hosts; starts within a host are the law's times `start_ns`
            over its default.
        floor_ns: least time of any collective.
        mesh: pairs of GPUs of a host with NVLinks, where no switch joins all.
    """

    intra_bytes_per_s: float
    inter_bytes_per_s: float
    nic_latency_ns: int
    hosts: int
    ranks_per_host: int
    compute_capability: int
    nvlink: bool
    nics_per_host: int | None = None
    gpus_per_tray: int | None = None
    by_rail: bool = False
    sharp: bool = False
    network_latency_ns: int = 0
    payload_share: float = 1.0
    efficiency: float = 1.0
    start_ns: int = NCCL_START_NS
    floor_ns: int = 0
    p2p_share: float = NCCL_P2P_SHARE
    bridge_bytes_per_s: float | None = None
    mesh: Mesh | None = None
    lanes_bytes_per_s: float | None = None

    @property
    def path_bytes_per_s(self) -> float:
        """Rate in bytes/s of a GPU's path to the network by one NIC, each direction, as NCCL's search sees it."""
        if self.lanes_bytes_per_s is None:
            return self.inter_bytes_per_s
        return min(self.inter_bytes_per_s, self.lanes_bytes_per_s / self.payload_share)

    @property
    def network_bytes_per_s(self) -> float:
        """Payload rate in bytes/s of `path_bytes_per_s`."""
        return self.path_bytes_per_s * self.payload_share


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """The size of a group on the cluster: `rails` NICs of each of its hosts carry its traffic.

    `gpus`: on a mesh, the group's GPUs of a host, once for all hosts with equal ones.
    """

    ranks: int
    hosts: int
    rails: int
    gpus: tuple[tuple[int, ...], ...] = ()


def costs_of(cluster: Cluster) -> NcclCosts:
    """Return the inputs of NCCL's formula for a cluster."""
    host, gpus, inside = cluster.host, cluster.host.gpus * cluster.hosts_per_domain, cluster.host.inside
    mesh = None
    if inside.kind == "nvlink_mesh":
        per_s, bridge_per_s = inside.link.bytes_per_s, inside.bridge_bytes_per_s
        mesh = Mesh(links=inside.links, link_bytes_per_s=per_s, bridge_bytes_per_s=bridge_per_s)
    return NcclCosts(
        intra_bytes_per_s=inside.link.bytes_per_s,
        inter_bytes_per_s=host.nics.link.bytes_per_s,
        nic_latency_ns=host.nics.link.latency_ns,
        hosts=cluster.hosts // cluster.hosts_per_domain,
        ranks_per_host=gpus,
        gpus_per_tray=host.gpus,
        compute_capability=host.gpu.compute_capability,
        nvlink=inside.kind in ("nvlink", "nvlink_mesh"),
        nics_per_host=None if host.nics.per == "gpu" else host.nics.count,
        by_rail=BETWEEN[cluster.network.kind].by_rail,
        sharp=cluster.network.sharp,
        network_latency_ns=cluster.network.latency_ns,
        payload_share=cluster.payload_share,
        efficiency=cluster.nccl_efficiency,
        start_ns=cluster.nccl_start_ns,
        floor_ns=cluster.nccl_floor_ns,
        p2p_share=cluster.nccl_p2p_share,
        bridge_bytes_per_s=inside.bridge_bytes_per_s if inside.kind == "pcie" else None,
        mesh=mesh,
        lanes_bytes_per_s=cluster.narrow_lanes_bytes_per_s,
    )
