"""GPUs of a host with NVLinks between some pairs and no switch; other pairs share the host's PCI Express bridge."""

from __future__ import annotations

from sim.engine.capacity import Capacity
from sim.engine.network.inside import BOTH_WAYS, Inside
from sim.engine.network.links import LinkClass


class NvlinkMesh(Inside):
    """The NVLinks of each pair are one link in each direction; out of the one GPU is into the other."""

    shared_directions, shared_class = BOTH_WAYS, "pcie"

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """The pair's own NVLinks, or the bridge."""
        if self._nvlinks(source, target):
            return (self._pair(source, target),)
        host = source // self.gpus
        return (self.shared(host, "out"), self.shared(host, "in"))

    def make_gpu_links(self, rank: int, direction: str) -> None:
        """Make nothing: a GPU has links to single others only."""

    def make_pairs(self, rank: int) -> None:
        """Make the NVLinks from this GPU to others."""
        first = rank - rank % self.gpus
        for peer in range(first, first + self.gpus):
            if self._nvlinks(rank, peer):
                self._pair(rank, peer)

    def _nvlinks(self, source: int, target: int) -> int:
        """How many lead from one GPU to another of its host."""
        return self.hardware.links[source % self.gpus][target % self.gpus]

    def _pair(self, source: int, target: int) -> Capacity:
        per_s = self._nvlinks(source, target) * self.hardware.link.bytes_per_s
        owner, host = f"gpu{source}.nvlink{target % self.gpus}", source // self.gpus
        return self.links.link(owner, "out", link_class=LinkClass("nvlink"), host=host, per_s=per_s)
