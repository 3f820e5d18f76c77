"""Builds the frozen cluster of a checked [cluster] table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart, Part
from scenarios.config.hardware import Cluster
from scenarios.config.toml.derive import freeze
from scenarios.config.toml.hardware.sections import ClusterSection, FaultSection, NetworkSection
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
    made = freeze(Cluster, cluster.model_copy(update=given), profile=profile)
    assert isinstance(made, Cluster)
    return dataclasses.replace(made, faults=tuple(_faults(cluster.faults or (), made)))


def _faults(sections: Sequence[FaultSection], cluster: Cluster) -> Iterator[Fault]:
    """Yield the faults; a part that reaches its rates has none."""
    for section in sections:
        part = _part(section)
        if isinstance(part, GpuPart) or section.rate is None:
            speed = have(section.speed)
        else:
            speed = min(1.0, section.rate / cluster.bytes_per_s(part))
        if speed != 1:
            yield Fault(part, speed, section.begin or 0, section.end)


def _part(section: FaultSection) -> Part:
    if section.leaf is not None:
        return LeafPart(section.leaf)
    if section.nic is not None:
        return NicPart(have(section.host), section.nic)
    return GpuPart(have(section.host), have(section.gpu))
