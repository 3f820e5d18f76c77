"""Topologies between hosts: what joins their NICs."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.config.faults import LeafPart
from scenarios.config.hardware import Cluster
from scenarios.config.interconnect import NetworkKind
from sim.engine.capacity import Capacity
from sim.engine.network.links import Links

# Switches on the way between two NICs of one part of the network, and of two.
_ONE_SWITCH, _OVER_THE_SPINE = 1, 3


class Between:
    """What joins the NICs. NICs of one part share a switch; between parts, bytes cross the uplinks of both.

    This one is one ideal switch: one part and no uplinks.
    """

    # Whether a NIC reaches only NICs of the same number: then bytes leave by the NIC of the target's number.
    by_rail = False
    # Hosts of one part, where parts are hosts that share uplinks.
    hosts_per_part: int | None = None

    def __init__(self, cluster: Cluster, links: Links) -> None:
        self.cluster, self.links = cluster, links

    def part(self, rank: int) -> int:
        """The part of the network to which a rank's NIC is attached."""
        return 0

    def uplinks(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """What bytes cross that leave the part of a rank's NIC ("out") or enter it ("in")."""
        return ()

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """The links between the NICs of two ranks of different hosts."""
        if self.part(source) == self.part(target):
            return ()
        return (*self.uplinks(source, "out"), *self.uplinks(target, "in"))

    def latency_ns(self, source: int, target: int) -> int:
        """The latency of all switches between the NICs of two ranks, in ns."""
        switches = _ONE_SWITCH if self.part(source) == self.part(target) else _OVER_THE_SPINE
        return switches * self.cluster.network.latency_ns

    def link(self, owner: str, direction: str, *, link_class: str, host: int, per_s: float) -> Capacity:
        """Return a link of the network; `per_s` is its rate for payload, in bytes/s."""
        burst = self.cluster.host.nics.link.burst_bytes * self.cluster.payload_share
        return self.links.link(
            owner, direction, link_class=link_class, host=host, per_s=per_s, has_queue=True, burst=burst
        )


class RailOnly(Between):
    """Rail-only: NIC j of every host is attached to rail switch j, and nothing joins the rails.

    What is for a GPU of another number goes over NVLink to the sender's own GPU of that number first, as in W. Wang et
    al., "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion Parameters" (arXiv 2307.12169).
    """

    by_rail = True

    def part(self, rank: int) -> int:
        """The rail of a rank's NIC."""
        return rank % self.cluster.host.gpus


class LeafSpine(Between):
    """Leaf switches of some hosts each, joined by spines over uplinks that may be oversubscribed.

    All cables from one leaf to the spines are one link in each direction.
    """

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


# A topology is registered here, by the `kind` that a scenario names.
BETWEEN: Mapping[NetworkKind, type[Between]] = {"non_blocking": Between, "leaf_spine": LeafSpine, "rail_only": RailOnly}
