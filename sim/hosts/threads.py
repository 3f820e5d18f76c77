"""The cores and threads of every rank's host, in a run over TCP."""

from __future__ import annotations

from random import Random

from scenarios.config.hardware import Cluster
from scenarios.config.host_costs import Tcp
from sim.clock import Clock
from sim.hosts.cores import Cores, Thread, Wakes
from sim.jitter import Varying


class Hosts:
    """Cores by host, or one machine's for all; threads by rank.

    A rank's program runs in one thread a stream, in which its verbs and, on a CPU, its kernels take their time. Each of
    its groups has one thread that serves the sockets, and gives every collective to a worker.
    """

    def __init__(self, clock: Clock, cluster: Cluster, tcp: Tcp, draw: str | None) -> None:
        self.tcp = tcp
        self._gpus = cluster.host.gpus
        machines = 1 if cluster.hosts_share_cores else cluster.hosts
        self._cores = [
            Cores(clock, cluster.host.cores, tcp.stay_share, f"cores {draw} {index}") for index in range(machines)
        ]
        self._wakes = Wakes(clock, tcp, draw)
        self._issue = Varying(tcp.issue_spread, None if draw is None else f"issue {draw}")
        self._random = Random(f"spin {draw}")
        self._programs: dict[tuple[int, str], Thread] = {}
        self._loops: dict[tuple[int, str], Thread] = {}

    def program(self, rank: int, stream: str) -> Thread:
        """The thread that runs a rank's program on a stream."""
        return self._programs.setdefault((rank, stream), self._thread(rank))

    def issue_ns(self, *, is_cold: bool) -> int:
        """What the next operation costs its program before anything is sent, in ns.

        `is_cold`: its step has computed, so that the interpreter's working set has been evicted from cache.
        """
        return round(self.tcp.issue_ns * self._issue.next()) + self.tcp.cold_ns * is_cold

    def loop(self, rank: int, group: str) -> Thread:
        """The thread that serves a group's sockets on a rank."""
        key = (rank, group)
        if key not in self._loops:
            self._loops[key] = self._thread(rank, sleeps=True)
        return self._loops[key]

    def worker(self, rank: int) -> Thread:
        """One for one collective."""
        return self._thread(rank)

    def spin_ns(self, loop: Thread) -> float:
        """For how long this thread spins on the lock of somebody who posts just now; 0 if it does not."""
        if not (self.tcp.spin_share and loop.is_busy and loop.cores.has_queue(loop)):
            return 0.0
        return self._random.random() * self.tcp.spin_ns if self._random.random() < self.tcp.spin_share else 0.0

    def _thread(self, rank: int, *, sleeps: bool = False) -> Thread:
        return Thread(self._cores[rank // self._gpus % len(self._cores)], self._wakes, sleeps=sleeps)
