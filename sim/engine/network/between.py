"""The base of topologies between hosts: one ideal switch, to which all NICs are attached."""

from __future__ import annotations

from scenarios.config.hardware import Cluster
from sim.engine.capacity import Capacity
from sim.engine.network.links import LinkClass, Links

# Switches on the way between two NICs of one part of the network, and of two.
_ONE_SWITCH, _OVER_THE_SPINE = 1, 3


class Between:
    """What joins the NICs. NICs of one part share a switch; between parts, bytes cross the uplinks of both.

    This one has one part and no uplinks.
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
        """Of all switches between the NICs of two ranks."""
        switches = _ONE_SWITCH if self.part(source) == self.part(target) else _OVER_THE_SPINE
        return switches * self.cluster.network.latency_ns

    def link(self, owner: str, direction: str, *, link_class: str, host: int, per_s: float) -> Capacity:
        """Return a link of the network; `per_s` is its rate for payload, in bytes/s."""
        burst = self.cluster.host.nics.link.burst_bytes * self.cluster.payload_share
        made = LinkClass(link_class, has_queue=True)
        return self.links.link(owner, direction, link_class=made, host=host, per_s=per_s, burst=burst)
