"""gloo as the simulator's library: flows of messages, or loads on links for large groups at fidelity "links"."""

from __future__ import annotations

from functools import partial

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from sim.clock import Signal, all_of
from sim.engine.link_load import load
from sim.engine.machine import Machine
from sim.engine.network import Path
from sim.engine.slow_start import SlowStarts
from sim.gloo.algorithms import broadcast_children, rings, totals
from sim.gloo.flows import GlooFlows, local, local_kernel
from sim.gloo.reduction import in_rings
from sim.gloo.script import HEADER_BYTES
from sim.hosts.cores import HostCores, Thread
from sim.library import Library, Transport
from sim.rank.rendezvous import Rendezvous

# torch's ProcessGroupGloo serves a group's collectives with two threads.
_LANES = 2

# Largest group for which "links" simulates each message. A ring of n ranks is 12 n * n messages and notices: a training
# step of 64 ranks takes 11 s to simulate, with loads on links 3 s (docs/explanation/large_worlds.md).
MOST_RANKS = 64


# One-way latencies until a ring is full: a notice and a message each for reduce-scatter and all-gather.
_RING_FILL = 4


class GlooLinks:
    """A transport of collectives as single activities with their bytes on every link, next to their sums and copies on
    CPUs.

    A broadcast is an activity for each edge of its tree: a member forwards the buffer only when it has all of it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._slow_starts = SlowStarts(machine, 1)

    def __call__(self, rendezvous: Rendezvous, member: int, thread: Thread | None = None) -> None:
        """Run the collective when the last member has entered, and finish all members together."""
        if not rendezvous.is_complete:
            return
        if rendezvous.calls[0].op == "broadcast":
            self._pass_on(rendezvous, 0)
            return
        sums = totals(rendezvous.in_order)
        pairs = [(source, target, float(count)) for (source, target), count in sums.pair_bytes.items()]
        self._machine.traffic.add_all(rendezvous.group.ranks, pairs)
        carried = load(rendezvous.group.ranks, pairs, self._machine.fabric.connection)
        lost_ns = self._slow_starts.lost_ns(rendezvous.group, pairs)
        latency_ns = max(sums.latency_steps, default=0) * carried.latency_ns
        # A ring has two messages in flight: but for the first round, one travels while the other is on the wire.
        count = rings(rendezvous.calls[0])
        first_ns = min(latency_ns, count * _RING_FILL * carried.latency_ns) if count else latency_ns
        work = zip(rendezvous.group.ranks, sums.reduce_bytes, sums.copy_bytes, strict=True)
        parts = [self._machine.sleep(latency_ns)]
        parts += [local(self._machine, rank, local_kernel(reduced, copied)) for rank, reduced, copied in work]
        # Latency, bytes and local work each have a part: they overlap, and the longest one decides.
        wire: Signal[None] = Signal()
        self._machine.sleep(first_ns + lost_ns).then(
            lambda: self._machine.begin(carried.uses, weight=carried.weight).then(wire.fire)
        )
        all_of([*parts, wire], rendezvous.finish_all)

    def _pass_on(self, rendezvous: Rendezvous, place: int) -> None:
        """Forward the broadcast from the member at `place`, counted from the root; it finishes when all its sends have
        left.
        """
        size, root = rendezvous.group.size, rendezvous.calls[0].root
        member = (place + root) % size
        size_bytes = rendezvous.calls[member].bytes_in + rendezvous.calls[member].bytes_out + HEADER_BYTES
        children = broadcast_children(place, size)
        # The member finishes when its last send has left, not when it arrives.
        left = len(children)

        def send_on(child: int, latency_ns: int) -> None:
            nonlocal left
            left -= 1
            self._machine.sleep(latency_ns).then(lambda: self._pass_on(rendezvous, child))
            if not left:
                rendezvous.finish(member)

        def carry(child: int, path: Path) -> None:
            self._machine.carry(path, size_bytes).then(partial(send_on, child, path.latency_ns))

        for child in children:
            ends = rendezvous.group.ranks[member], rendezvous.group.ranks[(child + root) % size]
            self._machine.traffic.add(*ends, size_bytes)
            path = self._machine.fabric.connection(*ends)
            lost_ns = self._slow_starts.lost_ns(rendezvous.group, [(member, (child + root) % size, size_bytes)])
            self._machine.sleep(lost_ns).then(partial(carry, child, path))
        if not children:
            rendezvous.finish(member)


def _transport(scenario: Scenario, machine: Machine, classes: HostClasses | None) -> Transport:
    cluster = scenario.cluster
    threads = None if cluster.tcp is None else HostCores(machine.clock, cluster, cluster.tcp, machine.draw)
    flows = GlooFlows(machine, threads)
    if scenario.run.fidelity == "flows":
        return Transport(flows, threads)
    links = GlooLinks(machine)

    def play(rendezvous: Rendezvous, member: int, thread: Thread | None) -> None:
        # Small groups are simulated exactly at both fidelities.
        (flows if rendezvous.group.size <= MOST_RANKS else links)(rendezvous, member, thread)

    return Transport(play, threads)


LIBRARY = Library(_LANES, in_rings, _transport)
