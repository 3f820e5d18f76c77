"""Collectives that begin when everyone has entered: NCCL's phases, and either library as loads on links.

"links" plays a collective as one activity with its load on every link, so that time and memory grow with ranks and
links; "flows" plays each transfer that is not part of one pipeline. What is sent is left to `collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from scenarios.hardware import Cluster
from sim.cluster import Path
from sim.collectives import gloo, nccl
from sim.collectives.nccl_tuning import NcclCosts
from sim.collectives.schedule import HEADER_BYTES, Totals
from sim.cores import Thread
from sim.machine import Machine
from sim.meeting import Meeting
from sim.process import Signal, all_of
from sim.sharing import Capacity
from sim.wire import local, local_kernel


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes on every link, the flows on the busiest, and the longest latency on the way."""

    uses: Mapping[Capacity, float]
    weight: float
    latency_ns: int


def load(ranks: tuple[int, ...], pair_bytes: Iterable[tuple[int, int, float]], way: Callable[[int, int], Path]) -> Load:
    """Of transfers (source, target, bytes) between group ranks; `way` is from one global rank to another.

    Weighted so that it gets of its busiest link what its flows would get there each for itself.
    """
    uses: dict[Capacity, float] = {}
    flows: dict[Capacity, int] = {}
    latency_ns = 0
    for source, target, size_bytes in pair_bytes:
        path = way(ranks[source], ranks[target])
        latency_ns = max(latency_ns, path.latency_ns)
        for link in path.links:
            uses[link] = uses.get(link, 0.0) + size_bytes
            flows[link] = flows.get(link, 0) + 1
    if not uses:
        return Load({}, 1.0, latency_ns)
    busiest = max(uses, key=lambda link: uses[link] / link.per_s)
    return Load(uses, flows[busiest] / max(uses[busiest], 1.0), latency_ns)


def costs_of(cluster: Cluster) -> NcclCosts:
    """What NCCL's own formula wants to know of a cluster."""
    host = cluster.host
    return NcclCosts(
        intra_bytes_per_s=host.inside.link.bytes_per_s,
        inter_bytes_per_s=host.nics.link.bytes_per_s,
        nic_latency_ns=host.nics.link.latency_ns,
        hosts=cluster.hosts,
        ranks_per_host=host.gpus,
        compute_capability=host.gpu.compute_capability,
        nvlink=host.inside.kind == "nvlink",
        nics_per_host=None if host.nics.per == "gpu" else host.nics.count,
        network_latency_ns=cluster.network.latency_ns,
        payload_share=cluster.payload_share,
        efficiency=cluster.nccl_efficiency,
    )


# A byte that comes over a link is written to memory and read from it again, one that leaves is read: of each half.
_TOUCHES = 1.5

# One-way latencies until a ring is full: a notice and a message each for reduce-scatter and all-gather.
_RING_FILL = 4
_RINGS = frozenset({"all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"})


class GlooLinks:
    """A gloo collective as one activity with its bytes on every link, beside its sums and copies on CPUs.

    A broadcast is one for each edge of its tree: nothing is sent on before it is there.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __call__(self, meeting: Meeting, member: int, thread: Thread | None = None) -> None:
        """It begins when the last member has entered, and ends for all at once."""
        if not meeting.everyone.done:
            return
        if meeting.calls[0].op == "broadcast":
            self._pass_on(meeting, 0)
            return
        totals = gloo.totals(meeting.in_order)
        pairs = ((source, target, float(count)) for (source, target), count in totals.pair_bytes.items())
        carried = load(meeting.group.ranks, pairs, self._machine.fabric.connection)
        latency_ns = max(totals.latency_steps, default=0) * carried.latency_ns
        # A ring has two messages in flight: but for the first round, one travels while the other is on the wire.
        first_ns = min(latency_ns, _RING_FILL * carried.latency_ns) if meeting.calls[0].op in _RINGS else latency_ns
        parts = [self._machine.sleep(latency_ns), *self._local(totals, meeting.group.ranks)]
        wire: Signal[None] = Signal()
        self._machine.sleep(first_ns).then(
            lambda: self._machine.begin(carried.uses, weight=carried.weight).then(wire.fire)
        )
        all_of([*parts, wire], meeting.finish_all)

    def _pass_on(self, meeting: Meeting, place: int) -> None:
        """The member at `place`, counted from the root, has it: it sends it on, and is through when that has left."""
        size, root = meeting.group.size, meeting.calls[0].root
        member = (place + root) % size
        size_bytes = meeting.calls[member].bytes_in + meeting.calls[member].bytes_out + HEADER_BYTES
        children = gloo.broadcast_children(place, size)
        left = len(children)

        def sent(child: int, latency_ns: int) -> None:
            nonlocal left
            left -= 1
            self._machine.sleep(latency_ns).then(lambda: self._pass_on(meeting, child))
            if not left:
                meeting.finish(member)

        for child in children:
            to = meeting.group.ranks[(child + root) % size]
            path = self._machine.fabric.connection(meeting.group.ranks[member], to)
            self._machine.carry(path, size_bytes).then(partial(sent, child, path.latency_ns))
        if not children:
            meeting.finish(member)

    def _local(self, totals: Totals, ranks: tuple[int, ...]) -> list[Signal[None]]:
        work = zip(ranks, totals.reduce_bytes, totals.copy_bytes, strict=True)
        return [local(self._machine, rank, local_kernel(reduced, copied)) for rank, reduced, copied in work]


class NcclPhases:
    """NCCL's phases, one after the other, from when the last member has entered.

    A coupled phase (a pipelined ring or tree) is one activity at either fidelity. In "flows" each transfer of an
    uncoupled one is its own, and a member is through with the last phase when its own transfers are.

    A channel is a thread block that keeps a multiprocessor from kernels from when its rank has entered, also while it
    waits for others; and what goes over a GPU's links is read and written in its memory before kernels get their share.
    """

    def __init__(self, machine: Machine, *, flows: bool) -> None:
        self._machine = machine
        self._flows = flows
        self._costs = costs_of(machine.fabric.cluster)
        self._multiprocessors = machine.fabric.cluster.host.gpu.multiprocessors
        self._channels: dict[str, int] = {}

    def __call__(self, meeting: Meeting, member: int, thread: Thread | None = None) -> None:
        """The last to come sets it going."""
        self._take_multiprocessors(meeting, member)
        if meeting.everyone.done:
            hosts = tuple(self._machine.fabric.host(rank) for rank in meeting.group.ranks)
            self._play(meeting, list(nccl.plan(meeting.in_order, hosts, self._costs).phases))

    def _play(self, meeting: Meeting, phases: list[nccl.Phase]) -> None:
        if not phases:
            meeting.finish_all()
            return
        phase, *rest = phases
        delay = self._machine.sleep(phase.latency_ns)
        if self._flows and not phase.coupled:
            delay.then(lambda: self._each(meeting, phase, rest))
        else:
            delay.then(lambda: self._whole(meeting, phase).then(lambda: self._play(meeting, rest)))

    def _take_multiprocessors(self, meeting: Meeting, member: int) -> None:
        fabric, group = self._machine.fabric, meeting.group
        if self._multiprocessors is None or group.size == 1:
            return
        if group.name not in self._channels:
            self._channels[group.name] = nccl.channels([fabric.host(rank) for rank in group.ranks], self._costs)
        share = self._channels[group.name] / self._multiprocessors
        meeting.through[member].then(self._machine.occupy(fabric.arithmetic[group.ranks[member]], share))

    def _take_memory(self, meeting: Meeting, phase: nccl.Phase, carried: Load) -> Callable[[], None]:
        """At the rate of the phase by itself, until what is returned is called."""
        fabric, ranks = self._machine.fabric, meeting.group.ranks
        alone_s = max((used / link.per_s for link, used in carried.uses.items()), default=0.0)
        if not alone_s:
            return _nothing
        passing: dict[int, float] = {}
        for source, target, size_bytes in phase.transfers:
            for member in (source, target):
                passing[member] = passing.get(member, 0.0) + size_bytes
        taken = [
            self._machine.occupy(fabric.memory[ranks[member]], _TOUCHES * size_bytes / alone_s)
            for member, size_bytes in passing.items()
        ]

        def give_all_back() -> None:
            for give_back in taken:
                give_back()

        return give_all_back

    def _whole(self, meeting: Meeting, phase: nccl.Phase) -> Signal[None]:
        carried = load(meeting.group.ranks, phase.transfers, self._machine.fabric.path)
        over = self._machine.begin(carried.uses, weight=carried.weight)
        if self._multiprocessors is not None:
            over.then(self._take_memory(meeting, phase, carried))
        return over

    def _each(self, meeting: Meeting, phase: nccl.Phase, rest: list[nccl.Phase]) -> None:
        left = [0] * meeting.group.size
        for source, target, _ in phase.transfers:
            left[source] += 1
            left[target] += 1
        open_members = sum(1 for count in left if count)

        def ended(member: int) -> None:
            nonlocal open_members
            left[member] -= 1
            if left[member] == 0:
                open_members -= 1
                if not rest:
                    meeting.finish(member)
                elif open_members == 0:
                    self._play(meeting, rest)
                if open_members == 0:
                    give_back()

        ranks = meeting.group.ranks
        give_back = _nothing
        if self._multiprocessors is not None:
            give_back = self._take_memory(meeting, phase, load(ranks, phase.transfers, self._machine.fabric.path))
        idle = [member for member, count in enumerate(left) if not count]
        for source, target, size_bytes in phase.transfers:
            signal = self._machine.begin(
                dict.fromkeys(self._machine.fabric.path(ranks[source], ranks[target]).links, 1.0), size_bytes
            )
            signal.then(partial(ended, source))
            signal.then(partial(ended, target))
        if not rest:
            for member in idle:
                meeting.finish(member)
        elif not phase.transfers:
            self._play(meeting, rest)


def _nothing() -> None:
    pass
