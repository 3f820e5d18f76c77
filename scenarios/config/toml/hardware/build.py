"""A checked [cluster] to the frozen hardware that everyone else reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart, Part, Slowdown
from scenarios.config.hardware import Cluster, Gpu, Host, Inside, Link, Network, Nics, Tcp
from scenarios.config.toml.hardware.sections import (
    ClusterSection,
    Efficiency,
    GpuSection,
    Launches,
    NetworkSection,
    NicSection,
    Ramps,
    SlowSection,
    TcpSection,
)
from scenarios.config.toml.section import Section, given, have


def build_cluster(cluster: ClusterSection) -> Cluster:
    """The hardware alone."""
    gpus = have(cluster.gpus_per_host)
    inside = have(cluster.inside)
    host = Host(
        gpus=gpus,
        gpu=_gpu(have(cluster.gpu)),
        inside=Inside(
            kind=have(inside.kind),
            link=Link(bytes_per_s=have(inside.rate), latency_ns=have(inside.latency)),
            bridge_bytes_per_s=inside.bridge_rate,
            links=tuple(map(tuple, inside.links or ())),
            hosts_per_domain=inside.hosts_per_domain or 1,
        ),
        nics=_nics(have(cluster.nic), gpus),
        cores=have(cluster.cores),
        memory_bytes=have(cluster.host_memory),
    )
    return Cluster(
        profile=Path(cluster.profile).stem if cluster.profile else "inline",
        hosts=have(cluster.hosts),
        host=host,
        network=_network(cluster.network or NetworkSection()),
        payload_share=cluster.payload_share or 1.0,
        nccl_efficiency=cluster.nccl_efficiency or 1.0,
        **given(cluster, "nccl_start", "nccl_floor", suffix="_ns"),
        **given(cluster, "nccl_p2p_share", "nccl_sockets"),
        core_bytes_per_s=cluster.core_rate,
        tcp=_tcp(cluster.tcp) if cluster.tcp else None,
        hosts_share_cores=bool(cluster.hosts_share_cores),
        faults=_faults(cluster.slow or ()),
    )


def _gpu(gpu: GpuSection) -> Gpu:
    flops = have(gpu.flops)
    return Gpu(
        name=gpu.name or have(gpu.kind),
        kind=have(gpu.kind),
        memory_bytes=have(gpu.memory),
        memory_bytes_per_s=have(gpu.memory_rate),
        flops_per_s=_rates(flops),
        efficiency=_rates(gpu.efficiency or Efficiency()),
        launch_ns=gpu.launch or 0,
        launches_ns=_by_kind(gpu.launches or Launches()),
        ramp_ns=gpu.ramp or 0,
        ramps_ns=_by_kind(gpu.ramps or Ramps()),
        spread=gpu.spread or (),
        multiprocessors=gpu.multiprocessors,
        compute_capability=round(10 * float(gpu.compute_capability or "9.0")),
    )


def _rates(section: Section) -> dict[str, float]:
    return {key: value for key, value in section if value is not None}


def _by_kind(section: Section) -> dict[str, int]:
    return {kind: value for kind, value in section if value is not None}


def _nics(nic: NicSection, gpus: int) -> Nics:
    link = Link(bytes_per_s=have(nic.rate), latency_ns=have(nic.latency), burst_bytes=nic.burst or 0)
    return Nics(
        per=have(nic.per),
        count=nic.count or gpus,
        link=link,
        connection_bytes_per_s=nic.connection_rate,
        window_bytes=nic.window,
        initial_window_bytes=nic.initial_window,
    )


def _network(network: NetworkSection) -> Network:
    return Network(
        kind=network.kind or "non_blocking",
        latency_ns=network.latency or 0,
        hosts_per_leaf=network.hosts_per_leaf,
        oversubscription=network.oversubscription or 1.0,
    )


def _tcp(tcp: TcpSection) -> Tcp:
    return Tcp(
        queue_bytes=have(tcp.queue),
        send_buffer_bytes=have(tcp.send_buffer),
        acknowledged_share=have(tcp.acknowledgements),
        send_bytes_per_s=have(tcp.send_rate),
        receive_bytes_per_s=have(tcp.receive_rate),
        message_ns=have(tcp.message),
        post_ns=have(tcp.post),
        issue_ns=have(tcp.issue),
        wake_ns=have(tcp.wake),
        wake_spread=tcp.wake_spread or (),
        issue_spread=tcp.issue_spread or (),
        nap_ns=tcp.nap or 0,
        wake_soon_ns=tcp.wake_soon or 0,
        verb_ns=tcp.verb or 0,
        cold_ns=tcp.cold or 0,
        spin_ns=tcp.spin or 0,
        spin_share=tcp.spin_share or 0.0,
        stay_share=tcp.stay_share or 0.0,
    )


def _faults(parts: Sequence[SlowSection]) -> tuple[Fault, ...]:
    """Those that slow something down: a speed of 1 is no fault."""
    return tuple(Slowdown(_part(slow), have(slow.speed)) for slow in parts if slow.speed != 1)


def _part(slow: SlowSection) -> Part:
    if slow.leaf is not None:
        return LeafPart(slow.leaf)
    if slow.nic is not None:
        return NicPart(have(slow.host), slow.nic)
    return GpuPart(have(slow.host), have(slow.gpu))
