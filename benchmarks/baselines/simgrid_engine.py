"""`python -m benchmarks.baselines.simgrid_engine`: simulates message scripts in SimGrid; `simgrid_flows` makes them.

Reads a list of problems as JSON and writes a list of simulated seconds; needs nothing but the package simgrid. A
problem has `config` (SimGrid's options), `links` (bytes/s by name), `routes` ([source, target, names of links,
seconds]), `scripts` (one a rank, of [instruction, ...]), `notice_bytes` and `header_bytes`. An instruction is ["send"
or "recv", peer, bytes, tag], ["wait_send" or "wait_recv", peer, tag], or ["work", seconds].
"""

from __future__ import annotations

import ctypes
import importlib
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Key = tuple[int, int, int]
Problem = dict[str, Any]

_SPEED = 1e9  # of a host, in flop/s: any will do, work is given in seconds
_AT_ONCE = 1e15  # bytes/s of the links that are latency alone


def main() -> None:
    """Simulate all problems, one after the other."""
    json.dump([apart(problem) for problem in json.load(sys.stdin)], sys.stdout)


def apart(problem: Problem) -> float:
    """Simulate a problem in a process of its own, as SimGrid has one engine per process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(simulate, problem).result()


def simulate(problem: Problem) -> float:
    """Simulate a problem; returns the seconds until the last rank is through.

    Raises:
        RuntimeError: some ranks wait forever.
    """
    s4u = _simgrid()
    engine = s4u.Engine(["simgrid", "--log=root.thresh:error", *(f"--cfg={option}" for option in problem["config"])])
    world = World(s4u, engine, problem)
    for rank, script in enumerate(problem["scripts"]):
        world.hosts[rank].add_actor(f"rank {rank}", Player(world, rank), script)
    engine.run()
    if len(world.ends_s) < len(world.hosts):
        raise RuntimeError(f"{len(world.hosts) - len(world.ends_s)} of {len(world.hosts)} ranks wait forever")
    return max(world.ends_s)


def _simgrid() -> Any:
    """Import the module. Its wheel holds SimGrid's library, but not the path to it, so that is loaded first."""
    module = find_spec("simgrid")
    assert module is not None, "this interpreter has SimGrid"
    assert module.origin is not None, "it is a file"
    for library in Path(module.origin).parent.glob("libsimgrid.so.*"):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return importlib.import_module("simgrid")


class World:
    """The platform, and the messages of all ranks by source, target and tag."""

    def __init__(self, s4u: Any, engine: Any, problem: Problem) -> None:
        self.s4u = s4u
        self.notice_bytes, self.header_bytes = problem["notice_bytes"], problem["header_bytes"]
        self.hosts = _platform(s4u, engine, problem)
        self.notices: dict[Key, Any] = {}
        self.ends_s: list[float] = []
        self._semaphores: dict[tuple[str, Key], Any] = {}

    def signal(self, what: str, key: Key) -> Any:
        """A semaphore that is released once: when a receive is "ready", or a message "sent"."""
        return self._semaphores.setdefault((what, key), self.s4u.Semaphore(0))

    def mailbox(self, key: Key) -> Any:
        return self.s4u.Mailbox.by_name("{} {} {}".format(*key))

    def notice(self, source: int, target: int) -> Any:
        """A small message that nobody has to fetch."""
        return self.s4u.Comm.sendto_async(self.hosts[source], self.hosts[target], self.notice_bytes)


def _platform(s4u: Any, engine: Any, problem: Problem) -> list[Any]:
    """A host for each rank, which has one core; links shared by whoever crosses them, and latency besides."""
    zone = engine.netzone_root.add_netzone_full("cluster")
    hosts = [zone.add_host(f"host of rank {rank}", _SPEED).seal() for rank in range(len(problem["scripts"]))]
    links = {name: zone.add_link(name, bytes_per_s).seal() for name, bytes_per_s in problem["links"].items()}
    delays: dict[float, Any] = {}
    for source, target, names, latency_s in problem["routes"]:
        if latency_s not in delays:
            delay = zone.add_link(f"latency {latency_s}", _AT_ONCE).set_latency(latency_s)
            delays[latency_s] = delay.set_sharing_policy(s4u.Link.SharingPolicy.FATPIPE, None).seal()
        crossed = [s4u.LinkInRoute(link) for link in (delays[latency_s], *(links[name] for name in names))]
        zone.add_route(hosts[source], hosts[target], crossed, False)
    zone.seal()
    return hosts


class Player:
    """One rank, which plays its script; a message that was posted is another actor's from then on."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank
        self._coming: dict[Key, Any] = {}

    def __call__(self, script: list[list[Any]]) -> None:
        kinds = {name: getattr(self, f"_{name}") for name in ("send", "recv", "wait_send", "wait_recv", "work")}
        for kind, *arguments in script:
            kinds[kind](*arguments)
        self._world.ends_s.append(self._world.s4u.Engine.clock)

    def _send(self, peer: int, size_bytes: int, tag: int) -> None:
        key = (self._rank, peer, tag)
        notice = self._world.notice(self._rank, peer)
        self._world.hosts[self._rank].add_actor(f"message {key}", Message(self._world, key), size_bytes, notice)

    def _recv(self, peer: int, _: int, tag: int) -> None:
        key = (peer, self._rank, tag)
        self._coming[key] = self._world.mailbox(key).get_async()
        self._world.notices[key] = self._world.notice(self._rank, peer)
        self._world.signal("ready", key).release()

    def _wait_send(self, peer: int, tag: int) -> None:
        self._world.signal("sent", (self._rank, peer, tag)).acquire()

    def _wait_recv(self, peer: int, tag: int) -> None:
        self._coming.pop((peer, self._rank, tag)).wait()

    def _work(self, seconds: float) -> None:
        self._world.s4u.this_actor.execute(seconds * _SPEED)


class Message:
    """What sends the data of one message, once it knows that the receiver is ready."""

    def __init__(self, world: World, key: Key) -> None:
        self._world, self._key = world, key

    def __call__(self, size_bytes: int, notice: Any) -> None:
        self._world.signal("ready", self._key).acquire()
        self._world.notices.pop(self._key).wait()
        self._world.mailbox(self._key).put(self._key, self._world.header_bytes + size_bytes)
        self._world.signal("sent", self._key).release()
        notice.wait()


if __name__ == "__main__":
    main()
