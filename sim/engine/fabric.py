"""Every capacity of a simulated cluster: its network's links, and each GPU's arithmetic and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from scenarios.config.faults import NOMINAL, GpuPart, Pace, Part
from scenarios.config.hardware import Cluster
from scenarios.seam.trace import LinkRow, LoadRow
from sim.engine.capacity import Capacity
from sim.engine.network import ClusterNetwork, Path


class _Made(dict[int, Capacity]):
    """Capacities by global rank, created at first use."""

    def __init__(self, make: Callable[[int], Capacity]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, rank: int) -> Capacity:
        self[rank] = capacity = self._make(rank)
        return capacity


class Fabric:
    """The capacities of a cluster, one object for each link, and for the arithmetic and the memory of each GPU."""

    def __init__(self, cluster: Cluster, hosts: Sequence[int] | None = None, *, has_host_lanes: bool = False) -> None:
        """Create the network; `rows` lists the links of `hosts` (None: of all) and the uplinks.

        `has_host_lanes`: kernels use the host's memory, so traffic between a GPU and a NIC shares the GPU's lanes with
        copies; otherwise lanes are left out unless they are narrower than the NIC.
        """
        self.cluster = cluster
        self.network = ClusterNetwork(cluster, has_host_lanes=has_host_lanes)
        self.to_host = self.network.to_host
        self.path, self.host, self.gpu = self.network.path, self.network.host, self.network.gpu
        self._hosts = range(cluster.hosts) if hosts is None else hosts
        self._connections: dict[tuple[int, int], Path] = {}
        memory_per_s = cluster.host.gpu.memory_bytes_per_s
        self.arithmetic = _Made(lambda rank: Capacity(f"gpu{rank}.arithmetic", 1.0, pace=self._pace(rank)))
        self.memory = _Made(lambda rank: Capacity(f"gpu{rank}.memory", memory_per_s, pace=self._pace(rank)))

    def _pace(self, rank: int) -> Pace:
        """Return the speed of a rank's GPU over time."""
        return self.cluster.pace(GpuPart(self.host(rank), self.gpu(rank))) if self.cluster.faults else NOMINAL

    def capacities_of(self, part: Part) -> list[Capacity]:
        """Return the capacities that a fault of a part slows."""
        if not isinstance(part, GpuPart):
            return self.network.links_of(part)
        rank = part.host * self.cluster.host.gpus + part.gpu
        return [self.arithmetic[rank], self.memory[rank]]

    def connection(self, source: int, target: int) -> Path:
        """Return the path of one TCP connection between global ranks, limited to one window per round trip."""
        key = (source, target)
        if key not in self._connections:
            self._connections[key] = self._find_connection(source, target)
        return self._connections[key]

    def rows(self, until_ns: int = 0) -> list[LinkRow]:
        """Return the usage until now, `until_ns`, of every link of the hosts, idle ones included, and of the uplinks in
        use.
        """
        self.network.make_all(self._hosts)
        return self.network.links.rows(frozenset(self._hosts), until_ns)

    def loads(self, counts: Mapping[str, int], now_ns: int) -> list[LoadRow]:
        """Return the busy periods of links until `now_ns`, the end of the run; `counts`: multiplicity of each link, by
        name.
        """
        return self.network.links.loads(counts, now_ns)

    def _find_connection(self, source: int, target: int) -> Path:
        path, nics = self.network.socket_path(source, target), self.cluster.host.nics
        if self.host(source) == self.host(target):
            return path
        # A connection's limit is a capacity of its own: its messages share it, and other connections do not.
        rates = [] if nics.connection_bytes_per_s is None else [nics.connection_bytes_per_s]
        if nics.window_bytes is not None and path.latency_ns:  # it waits for an acknowledgement after each window
            rates.append(nics.window_bytes / (2 * path.latency_ns / 1e9))
        if not rates:
            return path
        return Path((*path.links, Capacity(f"connection {source}-{target}", min(rates))), path.latency_ns)
