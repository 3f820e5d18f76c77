"""Models a gloo collective as one load on links, beside the sums and copies of the ranks' CPUs."""

from __future__ import annotations

from functools import partial

from sim.clock import Signal, all_of
from sim.engine.link_load import load
from sim.engine.machine import Machine
from sim.engine.network import Path
from sim.engine.slow_starts import SlowStarts
from sim.gloo import algorithms as gloo
from sim.gloo.flows import local, local_kernel
from sim.gloo.script import HEADER_BYTES, Totals
from sim.hosts.cores import Thread
from sim.rank.rendezvous import Rendezvous

# One-way latencies until a ring is full: a notice and a message each for reduce-scatter and all-gather.
_RING_FILL = 4


class GlooLinks:
    """A gloo collective as one activity with its bytes on every link, beside its sums and copies on CPUs.

    A broadcast is one for each edge of its tree: nothing is sent on before it is there.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._slow_starts = SlowStarts(machine, 1)

    def __call__(self, rendezvous: Rendezvous, member: int, thread: Thread | None = None) -> None:
        """It begins when the last member has entered, and ends for all at once."""
        if not rendezvous.is_complete:
            return
        if rendezvous.calls[0].op == "broadcast":
            self._pass_on(rendezvous, 0)
            return
        totals = gloo.totals(rendezvous.in_order)
        pairs = [(source, target, float(count)) for (source, target), count in totals.pair_bytes.items()]
        self._machine.traffic.add_all(rendezvous.group.ranks, pairs)
        carried = load(rendezvous.group.ranks, pairs, self._machine.fabric.connection)
        lost_ns = self._slow_starts.lost_ns(rendezvous.group, pairs)
        latency_ns = max(totals.latency_steps, default=0) * carried.latency_ns
        # A ring has two messages in flight: but for the first round, one travels while the other is on the wire.
        first_ns = (
            min(latency_ns, _RING_FILL * carried.latency_ns) if rendezvous.calls[0].op in gloo.RINGS else latency_ns
        )
        parts = [self._machine.sleep(latency_ns), *self._local(totals, rendezvous.group.ranks)]
        wire: Signal[None] = Signal()
        self._machine.sleep(first_ns + lost_ns).then(
            lambda: self._machine.begin(carried.uses, weight=carried.weight).then(wire.fire)
        )
        all_of([*parts, wire], rendezvous.finish_all)

    def _pass_on(self, rendezvous: Rendezvous, place: int) -> None:
        """The member at `place`, counted from the root, has it: it sends it on, and is through when that has left."""
        size, root = rendezvous.group.size, rendezvous.calls[0].root
        member = (place + root) % size
        size_bytes = rendezvous.calls[member].bytes_in + rendezvous.calls[member].bytes_out + HEADER_BYTES
        children = gloo.broadcast_children(place, size)
        left = len(children)

        def sent(child: int, latency_ns: int) -> None:
            nonlocal left
            left -= 1
            self._machine.sleep(latency_ns).then(lambda: self._pass_on(rendezvous, child))
            if not left:
                rendezvous.finish(member)

        def carry(child: int, path: Path) -> None:
            self._machine.carry(path, size_bytes).then(partial(sent, child, path.latency_ns))

        for child in children:
            ends = rendezvous.group.ranks[member], rendezvous.group.ranks[(child + root) % size]
            self._machine.traffic.add(*ends, size_bytes)
            path = self._machine.fabric.connection(*ends)
            lost_ns = self._slow_starts.lost_ns(rendezvous.group, [(member, (child + root) % size, size_bytes)])
            self._machine.sleep(lost_ns).then(partial(carry, child, path))
        if not children:
            rendezvous.finish(member)

    def _local(self, totals: Totals, ranks: tuple[int, ...]) -> list[Signal[None]]:
        work = zip(ranks, totals.reduce_bytes, totals.copy_bytes, strict=True)
        return [local(self._machine, rank, local_kernel(reduced, copied)) for rank, reduced, copied in work]
