"""GPUs behind NVSwitches, of one host or of several: every pair at the full rate of its two GPUs."""

from __future__ import annotations

from sim.engine.capacity import Capacity
from sim.engine.network.inside import Inside


class NvlinkSwitch(Inside):
    """Each GPU has one link to the switch and one from it."""

    @property
    def hosts_per_domain(self) -> int:
        """Hosts whose GPUs the switch joins: several in an NVL72."""
        return self.cluster.hosts_per_domain

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Up to the switch and down again."""
        return (self.gpu_link(source, "out"), self.gpu_link(target, "in"))
