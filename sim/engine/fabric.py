"""Every capacity of a simulated cluster: its network's links, and each GPU's arithmetic and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from scenarios.config.hardware import Cluster
from scenarios.seam.trace import LinkRow, LoadRow
from sim.engine.capacity import Capacity
from sim.engine.network import Network, Path


class _Made(dict[int, Capacity]):
    """Capacities by global rank, made when first used."""

    def __init__(self, make: Callable[[int], Capacity]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, rank: int) -> Capacity:
        self[rank] = made = self._make(rank)
        return made


class Fabric:
    """The capacities of a cluster, one object for each thing of which there is one."""

    def __init__(self, cluster: Cluster, hosts: Sequence[int] | None = None, *, has_host_lanes: bool = False) -> None:
        """`hosts`: those whose links `rows` lists, beside the uplinks; None: all.

        `has_host_lanes`: kernels use the host's memory, so what crosses a GPU's lanes to it on the way to a NIC shares
        them with copies; otherwise lanes are left out unless they are narrower than the NIC.
        """
        self.cluster = cluster
        self.network = Network(cluster, has_host_lanes=has_host_lanes)
        self.to_host = self.network.to_host
        self.path, self.host, self.gpu = self.network.path, self.network.host, self.network.gpu
        self._hosts = range(cluster.hosts) if hosts is None else hosts
        self._connections: dict[tuple[int, int], Path] = {}
        memory_per_s = cluster.host.gpu.memory_bytes_per_s
        self.arithmetic = _Made(lambda rank: Capacity(f"gpu{rank}.arithmetic", 1.0))
        self.memory = _Made(lambda rank: Capacity(f"gpu{rank}.memory", memory_per_s))

    def connection(self, source: int, target: int) -> Path:
        """The path of one TCP connection between global ranks, limited to its window per round trip."""
        key = (source, target)
        if key not in self._connections:
            self._connections[key] = self._find_connection(source, target)
        return self._connections[key]

    def rows(self) -> list[LinkRow]:
        """What every link of the hosts has carried so far, the idle ones too, and what uplinks have."""
        self.network.make_all(self._hosts)
        return self.network.links.rows(frozenset(self._hosts))

    def loads(self, counts: Mapping[str, int], now_ns: int) -> list[LoadRow]:
        """When links carried their bytes; `counts`: by name, how many links each row represents.

        `now_ns` is the end of the run.
        """
        return self.network.links.loads(counts, now_ns)

    def _find_connection(self, source: int, target: int) -> Path:
        path, nics = self.network.socket_path(source, target), self.cluster.host.nics
        if self.host(source) == self.host(target):
            return path
        rates = [] if nics.connection_bytes_per_s is None else [nics.connection_bytes_per_s]
        if nics.window_bytes is not None and path.latency_ns:  # it waits for an acknowledgement after each window
            rates.append(nics.window_bytes / (2 * path.latency_ns / 1e9))
        if not rates:
            return path
        return Path((*path.links, Capacity(f"connection {source}-{target}", min(rates))), path.latency_ns)
