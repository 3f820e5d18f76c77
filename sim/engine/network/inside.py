"""Topologies inside a host: the links between GPUs that reach each other without a NIC."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from scenarios.config.hardware import Cluster
from scenarios.seam.errors import ProgramError
from sim.engine.capacity import Capacity
from sim.engine.network.links import Links

BOTH_WAYS = ("out", "in")


class Inside(ABC):
    """The links between the GPUs of one host."""

    # Directions of what all GPUs of a host share, and what reports call it; none where nothing is shared.
    shared_directions: tuple[str, ...] = ()
    shared_class = ""

    def __init__(self, cluster: Cluster, links: Links, *, has_host_lanes: bool = False) -> None:
        """`has_host_lanes`: bytes to a NIC share the GPU's lanes to the host's memory with copies.

        Without copies the lanes are no links, for they could not hold up a NIC: unless they are narrower than it.
        """
        self.cluster, self.links = cluster, links
        self.hardware, self.gpus = cluster.host.inside, cluster.host.gpus
        self.has_host_lanes = has_host_lanes or cluster.narrow_lanes_bytes_per_s is not None

    @property
    def hosts_per_domain(self) -> int:
        """How many hosts these links join, unless a topology says otherwise."""
        return 1

    @abstractmethod
    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """The links from one global rank to another of its domain."""

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """The links between a GPU and its NIC that others use too; "out" is towards the NIC."""
        return (self.host_lanes(rank, direction),) if self.has_host_lanes else ()

    def to_host(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """The links between a GPU and its host's memory; "out" is towards memory.

        GPUs behind one PCI Express switch have lanes of their own to it and share those behind it; a NIC there is
        reached without the latter.
        """
        lanes, each = self.host_lanes(rank, direction), self.hardware.gpus_per_host_link
        if each == 1:
            return (lanes,)
        host, gpu = divmod(rank, self.gpus)
        owner = f"host{host}.switch{gpu // each}"
        return lanes, self.links.link(owner, direction, link_class="host", host=host, per_s=lanes.whole_per_s)

    def host_lanes(self, rank: int, direction: str) -> Capacity:
        """A GPU's own lanes towards its host's memory and its NIC."""
        per_s = self.hardware.host_bytes_per_s
        if per_s is None:
            raise ProgramError(f"cluster.inside.host_rate: missing; GPU {rank} has work in its host's memory")
        host = rank // self.gpus
        return self.links.link(f"gpu{rank}.host", direction, link_class="host", host=host, per_s=per_s)

    def make_gpu_links(self, rank: int, direction: str) -> None:
        """Make the links of one GPU in one direction, so that the report lists them when idle."""
        self.gpu_link(rank, direction)
        if self.has_host_lanes:
            self.to_host(rank, direction)

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
        kind, host, per_s = self.hardware.kind, rank // self.gpus, self.hardware.link.bytes_per_s
        return self.links.link(f"gpu{rank}", direction, link_class=kind, host=host, per_s=per_s)

    def shared(self, host: int, direction: str) -> Capacity:
        """The bridge or memory that the GPUs of a host share."""
        per_s = self.hardware.bridge_bytes_per_s
        assert per_s is not None, f"{self.hardware.kind} has a bridge"
        return self.links.link(f"host{host}.bridge", direction, link_class=self.shared_class, host=host, per_s=per_s)


class NvlinkSwitch(Inside):
    """NVSwitches, of one host or of several: each GPU has one link to them and one from them, of its full rate."""

    @property
    def hosts_per_domain(self) -> int:
        """Hosts whose GPUs the switch joins: several in an NVL72."""
        return self.cluster.hosts_per_domain

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Up to the switch and down again."""
        return (self.gpu_link(source, "out"), self.gpu_link(target, "in"))


class NvlinkMesh(Inside):
    """NVLinks between some pairs and no switch; other pairs share the host's PCI Express bridge.

    The NVLinks of each pair are one link in each direction; out of the one GPU is into the other.
    """

    shared_directions, shared_class = BOTH_WAYS, "pcie"

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """The pair's own NVLinks, or the bridge."""
        if self._nvlinks(source, target):
            return (self._pair(source, target),)
        host = source // self.gpus
        return (self.shared(host, "out"), self.shared(host, "in"))

    def make_gpu_links(self, rank: int, direction: str) -> None:
        """Make none between GPUs: a GPU has links to single others only."""
        if self.has_host_lanes:
            self.to_host(rank, direction)

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
        return self.links.link(owner, "out", link_class="nvlink", host=host, per_s=per_s)


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

    def to_host(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """The same: the host's memory lies behind the bridge, too."""
        return self.to_nic(rank, direction)


class Memory(Inside):
    """Ranks copy through memory that all of a host share, both ways together."""

    shared_directions, shared_class = ("both",), "memory"

    def crossed(self, source: int, target: int) -> tuple[Capacity, ...]:
        """Into memory and out of it."""
        return (self.gpu_link(source, "out"), self.shared(source // self.gpus, "both"), self.gpu_link(target, "in"))

    def to_nic(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Nothing that others use."""
        return ()

    def to_host(self, rank: int, direction: str) -> tuple[Capacity, ...]:
        """Into memory, or out of it."""
        return (self.gpu_link(rank, direction), self.shared(rank // self.gpus, "both"))


# A topology is registered here, by the `kind` that a scenario names.
INSIDE: Mapping[str, type[Inside]] = {
    "nvlink": NvlinkSwitch,
    "nvlink_mesh": NvlinkMesh,
    "pcie": Pcie,
    "memory": Memory,
}
