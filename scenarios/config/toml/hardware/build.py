"""Builds the frozen cluster of a checked [cluster] table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart, Part, Slowdown
from scenarios.config.hardware import Cluster
from scenarios.config.toml.derive import freeze
from scenarios.config.toml.hardware.sections import ClusterSection, NetworkSection, SlowSection
from scenarios.config.toml.section import have


def build_cluster(cluster: ClusterSection) -> Cluster:
    """Build the frozen cluster of a checked [cluster] table."""
    gpu, nic = cluster.gpu, cluster.nic
    given = {
        "gpu": gpu.model_copy(update={"name": gpu.name or gpu.kind}),
        "nic": nic.model_copy(update={"count": nic.count or cluster.gpus_per_host}),
        "network": cluster.network or NetworkSection(),
    }
    profile = Path(cluster.profile).stem if cluster.profile else "inline"
    made = freeze(Cluster, cluster.model_copy(update=given), profile=profile, faults=_faults(cluster.slow or ()))
    assert isinstance(made, Cluster)
    return made


def _faults(parts: Sequence[SlowSection]) -> tuple[Fault, ...]:
    """Return the faults of slow parts; a speed of 1 is no fault."""
    return tuple(Slowdown(_part(slow), have(slow.speed)) for slow in parts if slow.speed != 1)


def _part(slow: SlowSection) -> Part:
    if slow.leaf is not None:
        return LeafPart(slow.leaf)
    if slow.nic is not None:
        return NicPart(have(slow.host), slow.nic)
    return GpuPart(have(slow.host), have(slow.gpu))
