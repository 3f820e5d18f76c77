"""Leaf switches of some hosts each, joined by spines over uplinks that may be oversubscribed."""

from __future__ import annotations

from scenarios.config.faults import LeafPart
from scenarios.config.hardware import Cluster
from sim.engine.capacity import Capacity
from sim.engine.network.between import Between
from sim.engine.network.links import Links


class LeafSpine(Between):
    """All cables from one leaf to the spines are one link in each direction."""

    def __init__(self, cluster: Cluster, links: Links) -> None:
        super().__init__(cluster, links)
        assert cluster.network.hosts_per_leaf is not None, "leaf_spine has hosts_per_leaf"
        self.hosts_per_part: int = cluster.network.hosts_per_leaf

    def part(self, rank: int) -> int:
        """The leaf switch of a rank's host."""
        return rank // self.cluster.host.gpus // self.hosts_per_part

    def uplinks(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """The uplinks of the rank's leaf."""
        cluster, leaf = self.cluster, self.part(rank)
        host, first = cluster.host, leaf * self.hosts_per_part
        hosts = min(self.hosts_per_part, cluster.hosts - first)
        nics = host.gpus if host.nics.per == "gpu" else host.nics.count
        rate = hosts * nics * host.nics.link.bytes_per_s / cluster.network.oversubscription * cluster.payload_share
        rate *= cluster.speed_at(LeafPart(leaf))
        return (self.link(f"leaf{leaf}.uplinks", direction, link_class="uplink", host=first, per_s=rate),)
