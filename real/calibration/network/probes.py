"""Micro-benchmarks of the network and of the hosts' side of it, as a program.

Every repetition of a probe is a step, so that the same code reads real and simulated recordings.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from real.calibration.network.path import PathEnd
from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

# First repetitions of each probe that are dropped: connections, buffers and caches are new.
WARM_UP = 3
_WORD = 4
# Bytes of the message that shows the rate, in multiples of the bulk.
LONG = 4
# Time after which a shaped link's bucket is full again.
_PAUSE_S = 0.005
# Time after which an idle core sleeps, too.
_NAP_S = 0.001
# Time after which a waiting thread sleeps.
_LATE_S = 0.004
_BULK_S = 0.08
_IDLE_PAUSES = 200
VERBS = 200
_LEAST_BULK, _MOST_BULK = 1 << 18, 1 << 25
SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10)


@dataclass(frozen=True, slots=True)
class Probe:
    """A micro-benchmark of `repeats` steps, warm-up included."""

    name: str
    size_bytes: int
    repeats: int


def calls_timed(size_bytes: int) -> int:
    """Return the messages that a repetition of the "cpu" probe sends; without a size, the barriers that it calls."""
    return 1 if size_bytes else 100


def bulk_bytes(cluster: Cluster) -> int:
    """Return the bytes that a NIC of the cluster sends in about a tenth of a second."""
    wanted = int(cluster.host.nics.link.bytes_per_s * _BULK_S)
    return min(max(1 << wanted.bit_length() - 1, _LEAST_BULK), _MOST_BULK)


def schedule(cluster: Cluster, most: int | None = None) -> list[Probe]:
    """Return all probes in order; a recording's steps are numbered through them.

    `most` limits repetitions besides the warm-up, where nothing varies.
    """
    bulk = bulk_bytes(cluster)
    probes = [Probe("idle", 0, WARM_UP + 3), Probe("wake", 0, 1000)]
    probes += [Probe("path", 0, WARM_UP + 5), Probe("verbs", 0, WARM_UP + 10)]
    # Three times: threads stay for a while on the core where the system put them, which makes barriers quick or slow.
    barriers = [Probe("barrier", 0, 120), Probe("late barrier", 0, 40)]
    probes += [Probe("ping", _WORD, 300), *barriers]
    probes += [Probe("message", size, 25) for size in SIZES if size < bulk]
    probes += [Probe("message", bulk // 4, 12), Probe("message", bulk, 24), Probe("both", bulk, 33), *barriers]
    probes += [Probe("message", LONG * bulk, WARM_UP + 5)]
    probes += [Probe("loaded ping", bulk, 25), Probe("cpu", 0, 13), Probe("cpu", bulk, 63), *barriers]
    if cluster.host.gpus > 1:
        probes += [Probe("inside ping", _WORD, 200), Probe("inside message", _MOST_BULK // 4, 12)]
    if most is None:
        return probes
    return [replace(probe, repeats=min(probe.repeats, WARM_UP + most)) for probe in probes]


class NetworkProbes(Program):
    """A program in which rank 0 and the first rank of another host probe, while the others wait."""

    def __init__(self, scenario: Scenario, most: int | None = None) -> None:
        self._cluster = scenario.cluster
        self._schedule = schedule(scenario.cluster, most)

    async def __call__(self, rank: Rank) -> None:
        gpus = self._cluster.host.gpus
        far = gpus if self._cluster.hosts > 1 else None
        pairs = {
            name: _Pair(rank, 0, peer, self._cluster)
            for name, peer in (("far", far), ("inside", 1 if gpus > 1 else None))
            if peer is not None
        }
        step = 0
        for probe in self._schedule:
            pair = pairs["inside" if probe.name.startswith("inside") else "far"]
            for _ in range(probe.repeats):
                if pair.is_member:
                    await pair.play(probe, step)
                step += 1
            await rank.barrier(label="next probe")


class _Pair:
    """A pair of ranks that probe the path between them."""

    def __init__(self, rank: Rank, first: int, second: int, cluster: Cluster) -> None:
        self._rank = rank
        # A second group has connections of its own: bulk data in it does not queue before the first group's messages.
        self._group, self._aside = rank.new_group([first, second]), rank.new_group([first, second])
        self.is_member = rank.rank in (first, second)
        self._leads = rank.rank == first
        self._peer = second if self._leads else first
        gpu = cluster.host.gpu
        self._peak_flops_per_s = gpu.flops_per_s["float32"] * gpu.efficiency.get("default", 1.0)
        self._nothing = Kernel(kind="pause", launches=0)
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._end: PathEnd | None = None
        self._partner = _Partner() if self.is_member and rank.device.type != "meta" else None

    async def play(self, probe: Probe, step: int) -> None:
        """Run one repetition of a probe."""
        kinds: dict[str, Callable[[int], Awaitable[None]]] = {
            "idle": self._idle,
            "wake": self._wake,
            "path": self._path,
            "verbs": self._verbs,
            "ping": self._ping,
            "barrier": self._barrier,
            "late barrier": self._barrier,
            "message": self._message,
            "both": self._both,
            "loaded ping": self._loaded_ping,
            "cpu": self._cpu,
        }
        await self._rank.barrier(self._group, label="ready")
        if probe.name == "wake":
            await self._pause(_NAP_S)
        if probe.name == "late barrier" and self._leads:
            await self._pause(_LATE_S)
        if probe.size_bytes > _WORD:
            await self._pause(_PAUSE_S)
            await self._rank.barrier(self._group, label="ready")
        with self._rank.step(step):
            await kinds[probe.name.removeprefix("inside ")](probe.size_bytes)

    async def _idle(self, _: int) -> None:
        """Measure the cores that other processes use on this machine."""
        busy_s, begin_s = machine_busy_s(), time.monotonic()
        for _ in range(_IDLE_PAUSES if self._partner is not None else 1):  # a simulation has no others
            await self._pause(_PAUSE_S)
        self._rank.record("busy_cores", (machine_busy_s() - busy_s) / max(time.monotonic() - begin_s, _PAUSE_S))

    async def _wake(self, _: int) -> None:
        """Exchange a byte between two threads of a process: half of a round trip is one wake-up."""
        if self._partner is not None:
            self._rank.record("wake_s", self._partner.round_trip_s() / 2)

    async def _path(self, _: int) -> None:
        """Send a word there and back on a separate connection, on which no thread sleeps."""
        if self._partner is None:
            return
        if self._end is None:
            self._end = PathEnd()
            address = torch.zeros(5, dtype=torch.int64, device=self._rank.device)
            if self._leads:
                host, port = self._end.listen()
                address.copy_(torch.tensor([*socket.inet_aton(host), port]))
                await self._rank.send(address, self._peer, self._group, label="address")
            else:
                await self._rank.recv(address, self._peer, self._group, label="address")
            *host_bytes, port = address.tolist()
            self._end.meet((socket.inet_ntoa(bytes(host_bytes)), port))
        self._rank.record("path_s", self._end.one_way_s(leads=self._leads))  # the connection ends with the process

    async def _verbs(self, _: int) -> None:
        """Compute nothing, many times: the time is the verb's."""
        for _ in range(VERBS):
            await self._rank.compute(self._nothing, int, label="nothing")

    async def _ping(self, size_bytes: int, label: str = "ping") -> None:
        """Send there and back; both receives are posted before."""
        coming = self._rank.recv(self._tensor("in", size_bytes), self._peer, self._group, label=label)
        if not self._leads:
            await coming
        leaving = self._rank.send(self._tensor("out", size_bytes), self._peer, self._group, label=label)
        if self._leads:
            await coming
        await leaving

    async def _barrier(self, _: int) -> None:
        await self._rank.barrier(self._group, label="barrier")

    async def _message(self, size_bytes: int) -> None:
        """Send one way, and a word back."""
        if self._leads:
            back = self._rank.recv(self._tensor("in", _WORD), self._peer, self._group, label="message")
            leaving = self._rank.send(self._tensor("out", size_bytes), self._peer, self._group, label="message")
            await leaving
            await back
        else:
            await self._rank.recv(self._tensor("in", size_bytes), self._peer, self._group, label="message")
            await self._rank.send(self._tensor("out", _WORD), self._peer, self._group, label="message")

    async def _both(self, size_bytes: int) -> None:
        """Send both ways at once; both ranks know before that receives are posted, so that no notice waits
        behind data.
        """
        coming = self._rank.recv(self._tensor("in", size_bytes), self._peer, self._group, label="both")
        await self._rank.barrier(self._aside, label="both posted")
        leaving = self._rank.send(self._tensor("out", size_bytes), self._peer, self._group, label="both")
        await coming
        await leaving

    async def _loaded_ping(self, size_bytes: int) -> None:
        """Ping while the other connection of the pair fills the leader's interface."""
        outward = self._tensor("bulk", size_bytes)
        if self._leads:
            bulk: Work[Any] = self._rank.send(outward, self._peer, self._aside, label="bulk")
        else:
            bulk = self._rank.recv(outward, self._peer, self._aside, label="bulk")
        await self._pause(_PAUSE_S)
        await self._ping(_WORD, label="loaded ping")
        await bulk

    async def _cpu(self, size_bytes: int) -> None:
        """Record core seconds of calls: of this process, of gloo's threads, and of the whole machine, which counts in
        ticks.
        """
        process_s, others_s, machine_s = time.process_time(), others_s_so_far(), machine_busy_s()
        for _ in range(calls_timed(size_bytes)):
            await (self._message(size_bytes) if size_bytes else self._rank.barrier(self._group, label="timed"))
        self._rank.record("cpu_others_s", others_s_so_far() - others_s)
        self._rank.record("cpu_process_s", time.process_time() - process_s)
        self._rank.record("cpu_machine_s", machine_busy_s() - machine_s)

    async def _pause(self, for_s: float) -> None:
        """Sleep on a real rank; in the simulator the kernel's cost is the pause."""
        kernel = Kernel(kind="pause", flops=for_s * self._peak_flops_per_s)
        await self._rank.compute(kernel, time.sleep, 0.0 if self._rank.device.type == "meta" else for_s, label="pause")

    def _tensor(self, name: str, size_bytes: int) -> Tensor:
        key = (name, size_bytes)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(size_bytes // _WORD, device=self._rank.device)
        return self._buffers[key]


class _Partner:
    """A thread that answers."""

    def __init__(self) -> None:
        self._asked, self._ask = os.pipe()
        self._answered, self._answer = os.pipe()
        threading.Thread(target=self._serve, daemon=True, name="answers wake probes").start()

    def round_trip_s(self) -> float:
        """Wake the thread and be woken by it; return the time of the round trip in s."""
        begin_ns = time.perf_counter_ns()
        os.write(self._ask, b"?")
        os.read(self._answered, 1)
        return (time.perf_counter_ns() - begin_ns) / 1e9

    def _serve(self) -> None:
        while os.read(self._asked, 1):
            os.write(self._answer, b"!")


def others_s_so_far() -> float:
    """Return core seconds of this process's threads without the calling thread."""
    return time.process_time() - time.thread_time()


def machine_busy_s() -> float:
    """Return the busy time of this machine in core seconds; 0 where there is no /proc/stat(5)."""
    try:
        user, nice, system, _, _, irq, softirq, *_ = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        )
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq) / 100  # in USER_HZ, which is 100 on all that Linux runs on
