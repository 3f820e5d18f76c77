"""The cluster's figures that NCCL's tuning model reads."""

from __future__ import annotations

from scenarios.config.hardware import Cluster, Inside
from sim.engine.network.network import BETWEEN
from sim.nccl.model.mesh import Mesh
from sim.nccl.tuning import NcclCosts


def costs_of(cluster: Cluster) -> NcclCosts:
    """Return what NCCL's tuning model has to know of a cluster."""
    host, gpus = cluster.host, cluster.host.gpus * cluster.hosts_per_domain
    return NcclCosts(
        intra_bytes_per_s=host.inside.link.bytes_per_s,
        inter_bytes_per_s=host.nics.link.bytes_per_s,
        nic_latency_ns=host.nics.link.latency_ns,
        hosts=cluster.hosts // cluster.hosts_per_domain,
        ranks_per_host=gpus,
        gpus_per_tray=host.gpus,
        compute_capability=host.gpu.compute_capability,
        nvlink=host.inside.kind in ("nvlink", "nvlink_mesh"),
        nics_per_host=None if host.nics.per == "gpu" else host.nics.count,
        by_rail=BETWEEN[cluster.network.kind].by_rail,
        network_latency_ns=cluster.network.latency_ns,
        payload_share=cluster.payload_share,
        efficiency=cluster.nccl_efficiency,
        start_ns=cluster.nccl_start_ns,
        floor_ns=cluster.nccl_floor_ns,
        p2p_share=cluster.nccl_p2p_share,
        mesh=_mesh(host.inside),
    )


def _mesh(inside: Inside) -> Mesh | None:
    if inside.kind != "nvlink_mesh":
        return None
    return Mesh(
        links=inside.links, link_bytes_per_s=inside.link.bytes_per_s, bridge_bytes_per_s=inside.bridge_bytes_per_s
    )
