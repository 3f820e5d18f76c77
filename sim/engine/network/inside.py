"""Topologies inside a host: the links between GPUs that reach each other without a NIC."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from scenarios.config.hardware import Cluster
from scenarios.seam.errors import ProgramError
from sim.engine.capacity import Capacity
from sim.engine.network.links import Links

BOTH_WAYS = ("out", "in")


class InsideLinks(ABC):
    """The links between the GPUs of one host."""

    # Directions of the link that all GPUs of a host share, and its class in reports; none where nothing is shared.
    shared_directions: tuple[str, ...] = ()
    shared_class = ""

    def __init__(self, cluster: Cluster, links: Links, *, has_host_lanes: bool = False) -> None:
        """Create the topology; `has_host_lanes`: bytes to a NIC share the GPU's lanes to host memory with copies.

        Without copies the lanes are left out, as they would not slow a NIC, unless they are narrower than the NIC.
        """
        self.cluster, self.links = cluster, links
        self.hardware, self.gpus = cluster.host.inside, cluster.host.gpus
        self.has_host_lanes = has_host_lanes or cluster.narrow_lanes_bytes_per_s is not None

    @property
    def hosts_per_domain(self) -> int:
        """Number of hosts whose GPUs these links join."""
        return 1

    @abstractmethod
    def links_between(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Return the links from one global rank to another of its domain."""

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the links between a GPU and its NIC that carry other traffic too; "out" is towards the NIC."""
        return (self.host_lanes(rank, direction),) if self.has_host_lanes else ()

    def to_host(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the links between a GPU and its host's memory; "out" is towards memory.

        GPUs behind one PCI Express switch have lanes of their own to the switch and share the lanes behind it, which
        bytes to a NIC at that switch do not cross.
        """
        lanes, each = self.host_lanes(rank, direction), self.hardware.gpus_per_host_link
        if each == 1:
            return (lanes,)
        host, gpu = divmod(rank, self.gpus)
        owner = f"host{host}.switch{gpu // each}"
        return lanes, self.links.link(owner, direction, link_class="host", host=host, per_s=lanes.whole_per_s)

    def host_lanes(self, rank: int, direction: str) -> Capacity:
        """Return a GPU's own lanes towards its host's memory and its NIC.

        Raises:
            ProgramError: the cluster has no rate for these lanes.
        """
        per_s = self.hardware.host_bytes_per_s
        if per_s is None:
            raise ProgramError(f"cluster.inside.host_rate: missing; GPU {rank} has work in its host's memory")
        host = rank // self.gpus
        return self.links.link(f"gpu{rank}.host", direction, link_class="host", host=host, per_s=per_s)

    def make_gpu_links(self, rank: int, direction: str) -> None:
        """Create the links of one GPU in one direction, so that the report lists them when idle."""
        self.gpu_link(rank, direction)
        if self.has_host_lanes:
            self.to_host(rank, direction)

    def make_pairs(self, rank: int) -> None:
        """Create the links from this GPU to single peers."""
        return

    def make_shared(self, host: int) -> None:
        """Create the links that all GPUs of a host share."""
        if self.hardware.bridge_bytes_per_s is not None:
            for direction in self.shared_directions:
                self.shared_link(host, direction)

    def gpu_link(self, rank: int, direction: str) -> Capacity:
        """Return the link for all that a GPU sends to its domain ("out") or receives from it ("in")."""
        kind, host, per_s = self.hardware.kind, rank // self.gpus, self.hardware.link.bytes_per_s
        return self.links.link(f"gpu{rank}", direction, link_class=kind, host=host, per_s=per_s)

    def shared_link(self, host: int, direction: str) -> Capacity:
        """Return the bridge or memory that the GPUs of a host share."""
        per_s = self.hardware.bridge_bytes_per_s
        assert per_s is not None, f"{self.hardware.kind} has a bridge"
        return self.links.link(f"host{host}.bridge", direction, link_class=self.shared_class, host=host, per_s=per_s)


class NvlinkSwitch(InsideLinks):
    """A group of NVSwitches, of one host or of several: each GPU has one link to them and one from them, of its full
    rate.
    """

    @property
    def hosts_per_domain(self) -> int:
        """Number of hosts whose GPUs the switches join: several in an NVL72."""
        return self.cluster.hosts_per_domain

    def links_between(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Return the link up to the switches and the link down to the target."""
        return (self.gpu_link(source, "out"), self.gpu_link(target, "in"))


class NvlinkMesh(InsideLinks):
    """A mesh of NVLinks between some pairs; other pairs share the host's PCI Express bridge.

    The NVLinks of a pair are one link in each direction; the source's "out" is the target's "in".
    """

    shared_directions, shared_class = BOTH_WAYS, "pcie"

    def links_between(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Return the pair's own NVLinks, or the bridge if it has none."""
        if self._nvlinks(source, target):
            return (self._pair(source, target),)
        host = source // self.gpus
        return (self.shared_link(host, "out"), self.shared_link(host, "in"))

    def make_gpu_links(self, rank: int, direction: str) -> None:
        """Create host lanes only: a GPU has links to single peers, not to a switch."""
        if self.has_host_lanes:
            self.to_host(rank, direction)

    def make_pairs(self, rank: int) -> None:
        """Create the NVLinks from this GPU to its peers."""
        first = rank - rank % self.gpus
        for peer in range(first, first + self.gpus):
            if self._nvlinks(rank, peer):
                self._pair(rank, peer)

    def _nvlinks(self, source: int, target: int) -> int:
        """Return the number of NVLinks from one GPU to another of its host."""
        return self.hardware.links[source % self.gpus][target % self.gpus]

    def _pair(self, source: int, target: int) -> Capacity:
        per_s = self._nvlinks(source, target) * self.hardware.link.bytes_per_s
        owner, host = f"gpu{source}.nvlink{target % self.gpus}", source // self.gpus
        return self.links.link(owner, "out", link_class="nvlink", host=host, per_s=per_s)


class Pcie(InsideLinks):
    """A PCI Express tree: each GPU has its own lanes, and all its traffic, also to a NIC, crosses the host's bridge."""

    shared_directions, shared_class = BOTH_WAYS, "pcie"

    def links_between(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Return the source's lanes, the bridge and the target's lanes."""
        up = self.to_nic(source, "out")
        return (*up, self.shared_link(source // self.gpus, "in"), self.gpu_link(target, "in"))

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the GPU's own lanes and the bridge, in this order."""
        return (self.gpu_link(rank, direction), self.shared_link(rank // self.gpus, direction))

    def to_host(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the GPU's own lanes and the bridge: the host's memory lies behind the bridge, too."""
        return self.to_nic(rank, direction)


class SharedMemory(InsideLinks):
    """A memory that all ranks of a host share, in both directions together, and copy through."""

    shared_directions, shared_class = ("both",), "memory"

    def links_between(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Return the links into memory and out of it."""
        return (
            self.gpu_link(source, "out"),
            self.shared_link(source // self.gpus, "both"),
            self.gpu_link(target, "in"),
        )

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return no links: the path between memory and a NIC is not shared."""
        return ()

    def to_host(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Return the links between the rank and memory."""
        return (self.gpu_link(rank, direction), self.shared_link(rank // self.gpus, "both"))


# A topology is registered here, by the `kind` that a scenario names.
INSIDE: Mapping[str, type[InsideLinks]] = {
    "nvlink": NvlinkSwitch,
    "nvlink_mesh": NvlinkMesh,
    "pcie": Pcie,
    "memory": SharedMemory,
}
