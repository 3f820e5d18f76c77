"""A cluster's GPUs, NICs and switches as capacities, and the path between two GPUs; who uses them is left to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scenarios.config.faults import LeafPart, NicPart
from scenarios.config.hardware import Cluster, Nics
from scenarios.seam.trace import LinkRow, LoadRow
from sim.engine.capacity import Capacity
from sim.engine.link_usage import Loads
from sim.engine.slow_start import SlowStart

# Directions of a host's bridge, by the kind of what is inside it.
_BRIDGES = {"nvlink": (), "nvlink_mesh": ("out", "in"), "pcie": ("out", "in"), "memory": ("both",)}
# What reports call those: on a mesh a bridge is what joins GPUs without NVLinks to each other.
_BRIDGE_CLASSES = {"nvlink_mesh": "pcie", "pcie": "pcie", "memory": "memory"}


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


class _Made(dict[int, Capacity]):
    """By global rank, made when first asked for."""

    def __init__(self, make: Callable[[int], Capacity]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, rank: int) -> Capacity:
        self[rank] = made = self._make(rank)
        return made


class Fabric:
    """Every capacity of a cluster, one object for each thing of which there is one."""

    def __init__(self, cluster: Cluster, hosts: Sequence[int] | None = None) -> None:
        """`hosts`: those whose links `rows` lists, beside the uplinks; None: all."""
        self.cluster = cluster
        self._hosts = range(cluster.hosts) if hosts is None else hosts
        self._links: dict[str, _Link] = {}
        self._loads = Loads()
        self._paths: dict[tuple[int, int, int | None], Path] = {}
        self._connections: dict[tuple[int, int], Path] = {}
        memory_per_s = cluster.host.gpu.memory_bytes_per_s
        self.arithmetic = _Made(lambda rank: Capacity(f"gpu{rank}.arithmetic", 1.0))
        self.memory = _Made(lambda rank: Capacity(f"gpu{rank}.memory", memory_per_s))

    def host(self, rank: int) -> int:
        """The host of a global rank."""
        return rank // self.cluster.host.gpus

    def gpu(self, rank: int) -> int:
        """Which GPU of its host a global rank is."""
        return rank % self.cluster.host.gpus

    def path(self, source: int, target: int, via: int | None = None) -> Path:
        """The way from one global rank to another, over a third of the source's host if that passes it on.

        Empty from a rank to itself.
        """
        key = (source, target, via)
        if key not in self._paths:
            self._paths[key] = self._find_path(source, target) if via is None else self._relayed(source, via, target)
        return self._paths[key]

    def connection(self, source: int, target: int) -> Path:
        """The way of one TCP connection, which carries no more than its window a round trip, however wide the links."""
        key = (source, target)
        if key not in self._connections:
            self._connections[key] = self._find_connection(source, target)
        return self._connections[key]

    def rows(self) -> list[LinkRow]:
        """What every link of the hosts has carried so far, the idle ones too, and what uplinks have."""
        self._make_all()
        hosts = frozenset(self._hosts)
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
            if link.host in hosts or link.link_class == "uplink"
        ]

    def loads(self, counts: Mapping[str, int], now_ns: int) -> list[LoadRow]:
        """When links carried what they have carried so far, for which `counts` has how many are like each, by name.

        `now_ns` is the end of the run.
        """
        rows = []
        for name, count in counts.items():
            link = self._links[name]
            link.capacity.end_period(now_ns)
            periods = link.capacity.loads.periods if link.capacity.loads is not None else []
            rows += [LoadRow(name, link.direction, *period, count) for period in periods]
        return rows

    def _make_all(self) -> None:
        """Links come into being when something crosses them; a mean over links wants the others as well."""
        gpus = self.cluster.host.gpus
        for rank in (host * gpus + gpu for host in self._hosts for gpu in range(gpus)):
            for direction in ("out", "in"):
                self._nic(rank, direction)
                if self.cluster.host.inside.kind != "nvlink_mesh":
                    self._gpu_link(rank, direction)
                if self.cluster.network.kind == "leaf_spine":
                    self.uplink(rank, direction)
            if self.cluster.host.inside.kind == "nvlink_mesh":
                self._make_mesh(rank)
        if self.cluster.host.inside.bridge_bytes_per_s is not None:
            for host in self._hosts:
                for direction in _BRIDGES[self.cluster.host.inside.kind]:
                    self._shared(host, direction)

    def _make_mesh(self, rank: int) -> None:
        first = self.host(rank) * self.cluster.host.gpus
        for peer in range(first, first + self.cluster.host.gpus):
            if self._nvlinks(rank, peer):
                self._mesh_link(rank, peer)

    def _find_path(self, source: int, target: int) -> Path:
        if source == target:
            return Path((), 0)
        host, nics, network = self.cluster.host, self.cluster.host.nics, self.cluster.network
        if self.host(source) == self.host(target):
            return Path(tuple(self._inside(source, target)), host.inside.link.latency_ns)
        is_up = network.kind == "leaf_spine" and self.leaf(source) != self.leaf(target)
        uplinks = [self.uplink(source, "out"), self.uplink(target, "in")] if is_up else []
        crossed = (*self.leaving(source), *uplinks, *self.arriving(target))
        return Path(crossed, 2 * nics.link.latency_ns + (3 if is_up else 1) * network.latency_ns)

    def leaving(self, rank: int) -> tuple[Capacity, ...]:
        """What all that a rank sends to other hosts crosses before it is on the network."""
        return (*self._bridge(rank, "out"), self._nic(rank, "out"))

    def arriving(self, rank: int) -> tuple[Capacity, ...]:
        """What all that comes to it from other hosts crosses behind the network."""
        return (self._nic(rank, "in"), *self._bridge(rank, "in"))

    def _relayed(self, source: int, via: int, target: int) -> Path:
        near, far = self.path(source, via), self.path(via, target)
        return Path((*near.links, *far.links), near.latency_ns + far.latency_ns)

    def slow_start(self, source: int, target: int, connections: int = 1) -> SlowStart | None:
        """Of one TCP connection between two hosts, or of several together; None where there is none."""
        initial_bytes = self.cluster.host.nics.initial_window_bytes
        if initial_bytes is None or self.host(source) == self.host(target):
            return None
        path = self.connection(source, target) if connections == 1 else self.path(source, target)
        return SlowStart(connections * initial_bytes, 2 * path.latency_ns, path.bytes_per_ns)

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
        if kind == "nvlink_mesh":
            yield from self._across_mesh(source, target)
            return
        yield self._gpu_link(source, "out")
        if kind == "memory":
            yield self._shared(self.host(source), "both")
        elif kind == "pcie":
            yield self._shared(self.host(source), "out")
            yield self._shared(self.host(source), "in")
        yield self._gpu_link(target, "in")

    def _across_mesh(self, source: int, target: int) -> Iterable[Capacity]:
        if self._nvlinks(source, target):
            yield self._mesh_link(source, target)
        else:
            yield self._shared(self.host(source), "out")
            yield self._shared(self.host(source), "in")

    def _nvlinks(self, source: int, target: int) -> int:
        """How many lead from one GPU to another of its host."""
        return self.cluster.host.inside.links[self.gpu(source)][self.gpu(target)]

    def _mesh_link(self, source: int, target: int) -> Capacity:
        """All NVLinks from one GPU to another; out of the one is into the other."""
        rate = self._nvlinks(source, target) * self.cluster.host.inside.link.bytes_per_s
        return self._link(f"gpu{source}.nvlink{self.gpu(target)}", "nvlink", "out", self.host(source), rate)

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
        link_class = _BRIDGE_CLASSES[inside.kind]
        return self._link(f"host{host}.bridge", link_class, direction, host, inside.bridge_bytes_per_s)

    def _nic(self, rank: int, direction: str) -> Capacity:
        nics, local = self.cluster.host.nics, self.gpu(rank)
        number = local if nics.per == "gpu" else local % nics.count
        host = self.host(rank)
        rate = nics.link.bytes_per_s * self.cluster.payload_share * self.cluster.speed_at(NicPart(host, number))
        return self._link(f"host{host}.nic{number}", "nic", direction, host, rate, self._burst_bytes)

    @property
    def _burst_bytes(self) -> float:
        """Of payload, on every link of the network."""
        return self.cluster.host.nics.link.burst_bytes * self.cluster.payload_share

    def leaf(self, rank: int) -> int:
        """The leaf switch of a rank's host."""
        hosts_per_leaf = self.cluster.network.hosts_per_leaf
        assert hosts_per_leaf is not None, "leaf_spine has hosts_per_leaf"
        return self.host(rank) // hosts_per_leaf

    def uplink(self, rank: int, direction: str) -> Capacity:
        """All cables of that leaf to the spines: what leaves it and what enters it from there."""
        network, host = self.cluster.network, self.cluster.host
        leaf, hosts_per_leaf = self.leaf(rank), network.hosts_per_leaf or 1
        first = leaf * hosts_per_leaf
        hosts = min(hosts_per_leaf, self.cluster.hosts - first)
        nics = host.gpus if host.nics.per == "gpu" else host.nics.count
        rate = hosts * nics * host.nics.link.bytes_per_s / network.oversubscription * self.cluster.payload_share
        rate *= self.cluster.speed_at(LeafPart(leaf))
        return self._link(f"leaf{leaf}.uplinks", "uplink", direction, first, rate, self._burst_bytes)

    def _link(
        self, owner: str, link_class: str, direction: str, host: int, per_s: float, burst: float = 0.0
    ) -> Capacity:
        name = f"{owner}.{direction}"
        if name not in self._links:
            capacity = Capacity(name, per_s, has_queue=link_class in ("nic", "uplink"), burst=burst)
            capacity.loads = self._loads.of_link()
            self._links[name] = _Link(capacity, link_class, direction, host)
        return self._links[name].capacity


def _windows_per_s(nics: Nics, latency_ns: int) -> float | None:
    """Bytes/s of a connection that waits for an acknowledgement after each window."""
    if nics.window_bytes is None or not latency_ns:
        return None
    return nics.window_bytes / (2 * latency_ns / 1e9)
