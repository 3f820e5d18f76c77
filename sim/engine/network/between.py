"""Topologies between hosts: the links between their NICs."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.config.faults import LeafPart, NicPart
from scenarios.config.hardware import Cluster
from scenarios.config.interconnect import NetworkKind
from sim.engine.capacity import Capacity
from sim.engine.network.links import Links

# Switches between two NICs of one part of the network, and of two parts.
_ONE_SWITCH, _OVER_THE_SPINE = 1, 3


class Between:
    """The network between NICs. NICs of one part share a switch; between parts, bytes cross the uplinks of both.

    This base class is one ideal switch: one part and no uplinks.
    """

    # True if a NIC reaches only NICs of its own number: then bytes leave by the NIC of the target's number.
    by_rail = False
    # Hosts of one part, if a part is hosts that share uplinks.
    hosts_per_part: int | None = None

    def __init__(self, cluster: Cluster, links: Links) -> None:
        self.cluster, self.links = cluster, links

    def part(self, rank: int) -> int:
        """Return the part of the network that a rank's NIC is attached to."""
        return 0

    def uplinks(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the uplinks for bytes that leave the part of a rank's NIC ("out") or enter it ("in")."""
        return ()

    def links_between(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Return the links between the NICs of two ranks of different hosts."""
        if self.part(source) == self.part(target):
            return ()
        return (*self.uplinks(source, "out"), *self.uplinks(target, "in"))

    def latency_ns(self, source: int, target: int) -> int:
        """Return the latency of all switches between the NICs of two ranks, in ns."""
        switches = _ONE_SWITCH if self.part(source) == self.part(target) else _OVER_THE_SPINE
        return switches * self.cluster.network.latency_ns

    def link_of(self, part: NicPart | LeafPart, owner: str, direction: str, *, link_class: str, host: int) -> Capacity:
        """Return the link of a part, which may have faults; its rate is that of payload."""
        per_s, pace = self.cluster.bytes_per_s(part) * self.cluster.payload_share, self.cluster.pace(part)
        burst = self.cluster.host.nics.link.burst_bytes * self.cluster.payload_share
        return self.links.link(
            owner, direction, link_class=link_class, host=host, per_s=per_s, has_queue=True, burst=burst, pace=pace
        )


class RailOnly(Between):
    """A rail-only network: NIC j of every host is attached to rail switch j, and nothing joins the rails.

    Bytes for a GPU of another number go over NVLink to the sender's own GPU of that number first, as in W. Wang et al.,
    "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion Parameters" (arXiv 2307.12169).
    """

    by_rail = True

    def part(self, rank: int) -> int:
        """Return the rail of a rank's NIC."""
        return rank % self.cluster.host.gpus


class LeafSpine(Between):
    """A leaf-spine network: leaf switches of `hosts_per_leaf` hosts, joined by uplinks that may be oversubscribed.

    All cables from one leaf to the spines are one link in each direction.
    """

    def __init__(self, cluster: Cluster, links: Links) -> None:
        super().__init__(cluster, links)
        assert cluster.network.hosts_per_leaf is not None, "leaf_spine has hosts_per_leaf"
        self.hosts_per_part: int = cluster.network.hosts_per_leaf

    def part(self, rank: int) -> int:
        """Return the leaf switch of a rank's host."""
        return rank // self.cluster.host.gpus // self.hosts_per_part

    def uplinks(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the uplinks of the rank's leaf."""
        leaf = LeafPart(self.part(rank))
        owner, first = f"leaf{leaf.leaf}.uplinks", leaf.leaf * self.hosts_per_part
        return (self.link_of(leaf, owner, direction, link_class="uplink", host=first),)


# A topology is registered here, by the `kind` that a scenario names.
BETWEEN: Mapping[NetworkKind, type[Between]] = {"non_blocking": Between, "leaf_spine": LeafSpine, "rail_only": RailOnly}
