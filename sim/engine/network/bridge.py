"""GPUs of a host that share a PCI Express bridge, or ranks that exchange through the host's memory."""

from __future__ import annotations

from sim.engine.capacity import Capacity
from sim.engine.network.inside import BOTH_WAYS, Inside


class Pcie(Inside):
    """Each GPU has its own lanes; all that leaves or enters a GPU crosses the bridge, on its way to a NIC too."""

    shared_directions, shared_class = BOTH_WAYS, "pcie"

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Over the source's lanes to the bridge, and over the target's from it."""
        up = self.to_nic(source, "out")
        return (*up, self.shared(source // self.gpus, "in"), self.gpu_link(target, "in"))

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """The GPU's own lanes and the bridge, in this order."""
        return (self.gpu_link(rank, direction), self.shared(rank // self.gpus, direction))


class Memory(Inside):
    """Ranks copy through memory that all of a host share, both ways together."""

    shared_directions, shared_class = ("both",), "memory"

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Into memory and out of it."""
        return (self.gpu_link(source, "out"), self.shared(source // self.gpus, "both"), self.gpu_link(target, "in"))
