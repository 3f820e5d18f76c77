"""The base of topologies inside a host: the links between GPUs that reach each other without a NIC."""

from __future__ import annotations

from abc import ABC, abstractmethod

from scenarios.config.hardware import Cluster
from sim.engine.capacity import Capacity
from sim.engine.network.links import LinkClass, Links

BOTH_WAYS = ("out", "in")


class Inside(ABC):
    """The links between the GPUs of one host."""

    # Directions of what all GPUs of a host share, and what reports call it; none where nothing is shared.
    shared_directions: tuple[str, ...] = ()
    shared_class = ""

    def __init__(self, cluster: Cluster, links: Links) -> None:
        self.cluster, self.links = cluster, links
        self.hardware, self.gpus = cluster.host.inside, cluster.host.gpus

    @property
    def hosts_per_domain(self) -> int:
        """How many hosts these links join, unless a topology says otherwise."""
        return 1

    @abstractmethod
    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """The links from one global rank to another of its domain."""

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """The links between a GPU and its NIC that others use too; "out" is towards the NIC."""
        return ()

    def make_gpu_links(self, rank: int, direction: str) -> None:
        """Make the links of one GPU in one direction, so that the report lists them when idle."""
        self.gpu_link(rank, direction)

    def make_pairs(self, rank: int) -> None:
        """Make the links from this GPU to single others."""
        return

    def make_shared(self, host: int) -> None:
        """Make what all GPUs of a host share."""
        if self.hardware.bridge_bytes_per_s is not None:
            for direction in self.shared_directions:
                self.shared(host, direction)

    def gpu_link(self, rank: int, direction: str) -> Capacity:
        """All that a GPU sends to others of its domain, or receives from them."""
        link_class, host = LinkClass(self.hardware.kind), rank // self.gpus
        return self.links.link(
            f"gpu{rank}", direction, link_class=link_class, host=host, per_s=self.hardware.link.bytes_per_s
        )

    def shared(self, host: int, direction: str) -> Capacity:
        """The bridge or memory that the GPUs of a host share."""
        per_s = self.hardware.bridge_bytes_per_s
        assert per_s is not None, f"{self.hardware.kind} has a bridge"
        return self.links.link(
            f"host{host}.bridge", direction, link_class=LinkClass(self.shared_class), host=host, per_s=per_s
        )
