"""A cluster's GPUs, NICs and switches as capacities, and the path between two GPUs; who uses them is left to others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scenarios.hardware import Cluster, Nics
from scenarios.trace import LinkRow
from sim.sharing import Capacity

# Directions of a host's bridge, by the kind of what is inside it.
_BRIDGES = {"nvlink": (), "pcie": ("out", "in"), "memory": ("both",)}


@dataclass(frozen=True, slots=True)
class Path:
    """From one GPU to another: the links crossed, and how long the first byte takes."""

    links: tuple[Capacity, ...]
    latency_ns: int

    @property
    def bytes_per_ns(self) -> float:
        """The rate of its narrowest link; infinite from a GPU to itself."""
        return min((link.per_ns for link in self.links), default=float("inf"))


@dataclass(frozen=True, slots=True)
class _Link:
    """A capacity as the report shows it."""

    capacity: Capacity
    link_class: str
    direction: str
    host: int


class Fabric:
    """Every capacity of a cluster, one object for each thing of which there is one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._links: dict[str, _Link] = {}
        self._paths: dict[tuple[int, int], Path] = {}
        self._connections: dict[tuple[int, int], Path] = {}
        ranks = range(cluster.world_size)
        self.arithmetic = [Capacity(f"gpu{rank}.arithmetic", 1.0) for rank in ranks]
        self.memory = [Capacity(f"gpu{rank}.memory", cluster.host.gpu.memory_bytes_per_s) for rank in ranks]

    def host(self, rank: int) -> int:
        """The host of a global rank."""
        return rank // self.cluster.host.gpus

    def path(self, source: int, target: int) -> Path:
        """The way from one global rank to another; empty from a rank to itself."""
        key = (source, target)
        if key not in self._paths:
            self._paths[key] = self._find_path(source, target)
        return self._paths[key]

    def connection(self, source: int, target: int) -> Path:
        """The way of one TCP connection, which carries no more than its window a round trip, however wide the links."""
        key = (source, target)
        if key not in self._connections:
            self._connections[key] = self._find_connection(source, target)
        return self._connections[key]

    def rows(self) -> list[LinkRow]:
        """What every link has carried so far, the idle ones too."""
        self._make_all()
        return [
            LinkRow(
                link=link.capacity.name,
                link_class=link.link_class,
                direction=link.direction,
                host=link.host,
                bytes_carried=link.capacity.used,
                busy_ns=round(link.capacity.busy_ns),
                bytes_per_s=link.capacity.per_s,
            )
            for link in self._links.values()
        ]

    def _make_all(self) -> None:
        """Links come into being when something crosses them; a mean over links wants the others as well."""
        for rank in range(self.cluster.world_size):
            for direction in ("out", "in"):
                self._nic(rank, direction)
                self._gpu_link(rank, direction)
                if self.cluster.network.kind == "leaf_spine":
                    self._uplink(rank, direction)
        for host in range(self.cluster.hosts):
            for direction in _BRIDGES[self.cluster.host.inside.kind]:
                self._shared(host, direction)

    def _find_path(self, source: int, target: int) -> Path:
        if source == target:
            return Path((), 0)
        host, nics, network = self.cluster.host, self.cluster.host.nics, self.cluster.network
        if self.host(source) == self.host(target):
            return Path(tuple(self._inside(source, target)), host.inside.link.latency_ns)
        crossed = [*self._bridge(source, "out"), self._nic(source, "out")]
        switches = 1
        if network.kind == "leaf_spine" and self._leaf(source) != self._leaf(target):
            crossed += [self._uplink(source, "out"), self._uplink(target, "in")]
            switches = 3
        crossed += [self._nic(target, "in"), *self._bridge(target, "in")]
        return Path(tuple(crossed), 2 * nics.link.latency_ns + switches * network.latency_ns)

    def _find_connection(self, source: int, target: int) -> Path:
        path, nics = self.path(source, target), self.cluster.host.nics
        if self.host(source) == self.host(target):
            return path
        rates = [rate for rate in (nics.connection_bytes_per_s, _windows_per_s(nics, path.latency_ns)) if rate]
        if not rates:
            return path
        return Path((*path.links, Capacity(f"connection {source}-{target}", min(rates))), path.latency_ns)

    def _inside(self, source: int, target: int) -> Iterable[Capacity]:
        kind = self.cluster.host.inside.kind
        yield self._gpu_link(source, "out")
        if kind == "memory":
            yield self._shared(self.host(source), "both")
        elif kind == "pcie":
            yield self._shared(self.host(source), "out")
            yield self._shared(self.host(source), "in")
        yield self._gpu_link(target, "in")

    def _bridge(self, rank: int, direction: str) -> Iterable[Capacity]:
        """With PCIe, a GPU reaches its NIC over its own lanes and the host's bridge."""
        if self.cluster.host.inside.kind == "pcie":
            yield self._gpu_link(rank, direction)
            yield self._shared(self.host(rank), direction)

    def _gpu_link(self, rank: int, direction: str) -> Capacity:
        inside = self.cluster.host.inside
        return self._link(f"gpu{rank}", inside.kind, direction, self.host(rank), inside.link.bytes_per_s)

    def _shared(self, host: int, direction: str) -> Capacity:
        inside = self.cluster.host.inside
        assert inside.bridge_bytes_per_s is not None, f"{inside.kind} has a bridge"
        return self._link(f"host{host}.bridge", inside.kind, direction, host, inside.bridge_bytes_per_s)

    def _nic(self, rank: int, direction: str) -> Capacity:
        nics, local = self.cluster.host.nics, rank % self.cluster.host.gpus
        number = local if nics.per == "gpu" else local % nics.count
        host = self.host(rank)
        rate = nics.link.bytes_per_s * self.cluster.payload_share
        return self._link(f"host{host}.nic{number}", "nic", direction, host, rate, self._burst_bytes)

    @property
    def _burst_bytes(self) -> float:
        """Of payload, on every link of the network."""
        return self.cluster.host.nics.link.burst_bytes * self.cluster.payload_share

    def _leaf(self, rank: int) -> int:
        hosts_per_leaf = self.cluster.network.hosts_per_leaf
        assert hosts_per_leaf is not None, "leaf_spine has hosts_per_leaf"
        return self.host(rank) // hosts_per_leaf

    def _uplink(self, rank: int, direction: str) -> Capacity:
        network, host = self.cluster.network, self.cluster.host
        leaf, hosts_per_leaf = self._leaf(rank), network.hosts_per_leaf or 1
        first = leaf * hosts_per_leaf
        hosts = min(hosts_per_leaf, self.cluster.hosts - first)
        nics = host.gpus if host.nics.per == "gpu" else host.nics.count
        rate = hosts * nics * host.nics.link.bytes_per_s / network.oversubscription * self.cluster.payload_share
        return self._link(f"leaf{leaf}.uplinks", "uplink", direction, first, rate, self._burst_bytes)

    def _link(
        self, owner: str, link_class: str, direction: str, host: int, per_s: float, burst: float = 0.0
    ) -> Capacity:
        name = f"{owner}.{direction}"
        if name not in self._links:
            capacity = Capacity(name, per_s, has_queue=link_class in ("nic", "uplink"), burst=burst)
            self._links[name] = _Link(capacity, link_class, direction, host)
        return self._links[name].capacity


def _windows_per_s(nics: Nics, latency_ns: int) -> float | None:
    """Bytes/s of a connection that waits for an acknowledgement after each window."""
    if nics.window_bytes is None or not latency_ns:
        return None
    return nics.window_bytes / (2 * latency_ns / 1e9)
