"""Dragonfly: groups of hosts around one switch each, every two groups joined by a link of their own.

Paths are minimal ones, as in J. Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology" (ISCA 2008).
"""

from __future__ import annotations

from sim.engine.capacity import Capacity
from sim.engine.network.leaf_spine import LeafSpine


class Dragonfly(LeafSpine):
    """A group's rate to other groups is divided evenly among the links to each."""

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """The link from one group to the other."""
        here, there = self.part(source), self.part(target)
        if here == there:
            return ()
        cluster, nics = self.cluster, self.cluster.host.nics
        groups = -(-cluster.hosts // self.hosts_per_part)
        count = cluster.host.gpus if nics.per == "gpu" else nics.count
        rate = self.hosts_per_part * count * nics.link.bytes_per_s * cluster.payload_share
        rate /= cluster.network.oversubscription * (groups - 1)
        owner, first = f"group{here}.to{there}", here * self.hosts_per_part
        return (self.link(owner, "out", link_class="uplink", host=first, per_s=rate),)
