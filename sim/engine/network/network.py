"""Finds the path between two GPUs of a cluster, from the links inside hosts and those between them."""

from __future__ import annotations

from collections.abc import Iterable

from scenarios.config.faults import LeafPart, NicPart
from scenarios.config.hardware import Cluster
from sim.engine.capacity import Capacity
from sim.engine.network.between import BETWEEN
from sim.engine.network.inside import BOTH_WAYS, INSIDE
from sim.engine.network.links import Links, Path


class ClusterNetwork:
    """The links of a cluster, and which of them lie between two GPUs.

    A domain is the GPUs that reach each other without a NIC: those of a host, or of several that NVLinks join.
    """

    def __init__(self, cluster: Cluster, *, has_host_lanes: bool = False) -> None:
        """Create the topologies inside and between hosts; `has_host_lanes` as for `Inside`."""
        self.cluster, self.links = cluster, Links()
        self._gpus = cluster.host.gpus
        self._inside = INSIDE[cluster.host.inside.kind](cluster, self.links, has_host_lanes=has_host_lanes)
        self.between = BETWEEN[cluster.network.kind](cluster, self.links)
        self.hosts_per_domain = self._inside.hosts_per_domain
        self.gpus_per_domain = self.hosts_per_domain * self._gpus
        self._paths: dict[tuple[int, int, int | None], Path] = {}

    def host(self, rank: int) -> int:
        """Return the host of a global rank."""
        return rank // self._gpus

    def gpu(self, rank: int) -> int:
        """Return the number of a global rank's GPU within its host."""
        return rank % self._gpus

    def domain(self, rank: int) -> int:
        """Return the domain of a global rank."""
        return rank // self.gpus_per_domain

    def place(self, rank: int) -> int:
        """Return the number of a global rank's GPU within its domain."""
        return rank % self.gpus_per_domain

    def path(self, source: int, target: int, via: int | None = None) -> Path:
        """Return the path from one global rank to another; it is empty from a rank to itself.

        `via`: a third rank of the source's domain that forwards the bytes.
        """
        key = (source, target, via)
        if key not in self._paths:
            self._paths[key] = (
                self._find(source, target) if via is None else self.path(source, via).then(self.path(via, target))
            )
        return self._paths[key]

    def socket_path(self, source: int, target: int) -> Path:
        """Return the path of TCP between two global ranks: between hosts always by NIC."""
        # By host, not by domain: between hosts that NVLinks join, sockets still go by NIC.
        if self.host(source) == self.host(target):
            return self.path(source, target)
        return self._across(source, target)

    def leaving(self, rank: int, gpu: int) -> tuple[Capacity, ...]:
        """Return the links from a rank to the network for bytes to GPU number `gpu` of another domain."""
        exit_rank = self._exit(rank, gpu % self._gpus)
        detour = () if exit_rank == rank else self._inside.links_between(rank, exit_rank)
        return (*detour, *self._inside.to_nic(exit_rank, "out"), self.nic(exit_rank, "out"))

    def arriving(self, rank: int) -> tuple[Capacity, ...]:
        """Return the links from the network to a rank, for bytes from any other host."""
        return (self.nic(rank, "in"), *self._inside.to_nic(rank, "in"))

    def to_host(self, rank: int, direction: str) -> Path:
        """Return the path between a GPU and its host's memory; "in" is towards the GPU.

        Raises:
            ProgramError: the cluster has no rate for this path.
        """
        return Path(self._inside.to_host(rank, direction), 0)

    def links_of(self, part: NicPart | LeafPart) -> list[Capacity]:
        """Return the links of a part in both directions."""
        if isinstance(part, NicPart):
            return [self._link_of(part, direction) for direction in BOTH_WAYS]
        first = part.leaf * (self.between.hosts_per_part or 0) * self._gpus
        return [link for direction in BOTH_WAYS for link in self.between.uplinks(first, direction)]

    def make_all(self, hosts: Iterable[int]) -> None:
        """Create all links of these hosts, and the uplinks that they use: a mean over links includes idle ones."""
        hosts = list(hosts)
        for rank in (host * self._gpus + gpu for host in hosts for gpu in range(self._gpus)):
            for direction in BOTH_WAYS:
                self.nic(rank, direction)
                self._inside.make_gpu_links(rank, direction)
                self.between.uplinks(rank, direction)
            self._inside.make_pairs(rank)
        for host in hosts:
            self._inside.make_shared(host)

    def _find(self, source: int, target: int) -> Path:
        if source == target:
            return Path((), 0)
        if self.domain(source) == self.domain(target):
            return Path(self._inside.links_between(source, target), self._latency_inside_ns)
        return self._across(source, target)

    def _across(self, source: int, target: int) -> Path:
        exit_rank = self._exit(source, self.gpu(target))
        between = self.between.links_between(exit_rank, target)
        links = (*self.leaving(source, self.gpu(target)), *between, *self.arriving(target))
        latency_ns = 2 * self.cluster.host.nics.link.latency_ns + self.between.latency_ns(exit_rank, target)
        return Path(links, latency_ns + (0 if exit_rank == source else self._latency_inside_ns))

    @property
    def _latency_inside_ns(self) -> int:
        return self.cluster.host.inside.link.latency_ns

    def _exit(self, rank: int, gpu: int) -> int:
        """Return the rank on this rank's host whose NIC sends bytes for GPU number `gpu` of another host."""
        return rank - self.gpu(rank) + gpu if self.between.by_rail else rank

    def nic(self, rank: int, direction: str) -> Capacity:
        """Return a rank's network interface in one direction, "out" or "in"."""
        nics, local = self.cluster.host.nics, self.gpu(rank)
        return self._link_of(NicPart(self.host(rank), local if nics.per == "gpu" else local % nics.count), direction)

    def _link_of(self, nic: NicPart, direction: str) -> Capacity:
        return self.between.link_of(nic, f"host{nic.host}.nic{nic.nic}", direction, link_class="nic", host=nic.host)
