"""Collectives that begin when everyone has entered: NCCL's phases, and either library as loads on links.

"flows" plays each transfer that is not part of one pipeline; "links" does so where they are not too many, and plays
any other collective as one activity with its load on every link, so that time and memory grow with ranks and links.
What is sent is left to `collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from scenarios.config.hardware import Cluster, Inside
from scenarios.config.host_classes import Alike
from scenarios.seam.rank import Group
from sim.clock import Signal, all_of
from sim.engine.fabric import Path
from sim.engine.flow_bundle import MERGED_SHARE, MOST_SINGLE, Array, Bundle
from sim.engine.machine import Machine
from sim.engine.max_min import Capacity
from sim.engine.slow_start import SlowStart
from sim.gloo import algorithms as gloo
from sim.gloo.flows import local, local_kernel
from sim.gloo.script import HEADER_BYTES, Totals
from sim.hosts.cores import Thread
from sim.nccl import plan as nccl
from sim.nccl.flow_arrays import Many
from sim.nccl.folded import AlikeNccl
from sim.nccl.model.mesh import Mesh
from sim.nccl.tuning import NcclCosts
from sim.rank.rendezvous import Meeting


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


def load_of_many(many: Many) -> Load:
    """The same of many transfers, without their latency."""
    capacities, loads, flows = many.routes.capacities, many.routes.loads(many.sizes), many.routes.transfers()
    busiest = max(range(len(capacities)), key=lambda place: loads[place] / capacities[place].per_s)
    return Load(
        dict(zip(capacities, loads.tolist(), strict=True)), float(flows[busiest]) / max(float(loads[busiest]), 1.0), 0
    )


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
        nvlink=host.inside.kind in ("nvlink", "nvlink_mesh"),
        nics_per_host=None if host.nics.per == "gpu" else host.nics.count,
        network_latency_ns=cluster.network.latency_ns,
        payload_share=cluster.payload_share,
        efficiency=cluster.nccl_efficiency,
        start_ns=cluster.nccl_start_ns,
        floor_ns=cluster.nccl_floor_ns,
        p2p_share=cluster.nccl_p2p_share,
        mesh=_mesh(host.inside),
    )


def _mesh(inside: Inside) -> Mesh | None:
    if inside.kind != "nvlink_mesh":
        return None
    return Mesh(
        links=inside.links, link_bytes_per_s=inside.link.bytes_per_s, bridge_bytes_per_s=inside.bridge_bytes_per_s
    )


# A byte that comes over a link is written to memory and read from it again, one that leaves is read: of each half.
_TOUCHES = 1.5

# One-way latencies until a ring is full: a notice and a message each for reduce-scatter and all-gather.
_RING_FILL = 4
_RINGS = frozenset({"all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"})

# What "links" plays of an exchange: up to so many transfers (64 ranks) each for itself, as "flows" does; up to so many
# (1,024 ranks) too, but with their ends merged within ten times as much; of more what they load on links together.
MOST_EXACT, MOST_MERGED = 64 * 63, 1024 * 1023
COARSE_SHARE = 10 * MERGED_SHARE


class _SlowStarts:
    """TCP's, of the connections between the ranks of each group."""

    def __init__(self, machine: Machine, sockets: int) -> None:
        """`sockets` connections for each pair of ranks."""
        self._machine, self._sockets = machine, sockets
        self._has_any = machine.fabric.cluster.host.nics.initial_window_bytes is not None
        self._found: dict[tuple[str, int, int], SlowStart | None] = {}

    def lost_ns(self, group: Group, transfers: Iterable[tuple[int, int, float]]) -> int:
        """What (source, target, bytes) between group ranks lose that are sent now; the one that has most decides."""
        fabric, ranks = self._machine.fabric, group.ranks
        if not self._has_any:
            return 0
        across = [one for one in transfers if fabric.host(ranks[one[0]]) != fabric.host(ranks[one[1]])]
        if not across:
            return 0
        source, target, size_bytes = max(across, key=lambda one: one[2])
        return self.lost_between_ns(group, ranks[source], ranks[target], size_bytes)

    def lost_between_ns(self, group: Group, source: int, target: int, size_bytes: float) -> int:
        """The same of one transfer between global ranks."""
        key = group.name, source, target
        if key not in self._found:
            self._found[key] = self._machine.fabric.slow_start(source, target, self._sockets)
        slow_start = self._found[key]
        return 0 if slow_start is None else slow_start.lost_ns(size_bytes, self._machine.clock.now_ns)


class GlooLinks:
    """A gloo collective as one activity with its bytes on every link, beside its sums and copies on CPUs.

    A broadcast is one for each edge of its tree: nothing is sent on before it is there.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._slow_starts = _SlowStarts(machine, 1)

    def __call__(self, meeting: Meeting, member: int, thread: Thread | None = None) -> None:
        """It begins when the last member has entered, and ends for all at once."""
        if not meeting.everyone.done:
            return
        if meeting.calls[0].op == "broadcast":
            self._pass_on(meeting, 0)
            return
        totals = gloo.totals(meeting.in_order)
        pairs = [(source, target, float(count)) for (source, target), count in totals.pair_bytes.items()]
        self._machine.traffic.add_all(meeting.group.ranks, pairs)
        carried = load(meeting.group.ranks, pairs, self._machine.fabric.connection)
        lost_ns = self._slow_starts.lost_ns(meeting.group, pairs)
        latency_ns = max(totals.latency_steps, default=0) * carried.latency_ns
        # A ring has two messages in flight: but for the first round, one travels while the other is on the wire.
        first_ns = min(latency_ns, _RING_FILL * carried.latency_ns) if meeting.calls[0].op in _RINGS else latency_ns
        parts = [self._machine.sleep(latency_ns), *self._local(totals, meeting.group.ranks)]
        wire: Signal[None] = Signal()
        self._machine.sleep(first_ns + lost_ns).then(
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

        def carry(child: int, path: Path) -> None:
            self._machine.carry(path, size_bytes).then(partial(sent, child, path.latency_ns))

        for child in children:
            ends = meeting.group.ranks[member], meeting.group.ranks[(child + root) % size]
            self._machine.traffic.add(*ends, size_bytes)
            path = self._machine.fabric.connection(*ends)
            lost_ns = self._slow_starts.lost_ns(meeting.group, [(member, (child + root) % size, size_bytes)])
            self._machine.sleep(lost_ns).then(partial(carry, child, path))
        if not children:
            meeting.finish(member)

    def _local(self, totals: Totals, ranks: tuple[int, ...]) -> list[Signal[None]]:
        work = zip(ranks, totals.reduce_bytes, totals.copy_bytes, strict=True)
        return [local(self._machine, rank, local_kernel(reduced, copied)) for rank, reduced, copied in work]


class NcclPhases:
    """NCCL's phases, one after the other, from when the last member has entered.

    A coupled phase (a pipelined ring or tree) is one activity at either fidelity. In "flows", and in "links" where they
    are not too many, each transfer of an uncoupled one is its own, and a member is through with the last phase when its
    own transfers are.

    A channel is a thread block that keeps a multiprocessor from kernels from when its rank has entered, also while it
    waits for others; and what goes over a GPU's links is read and written in its memory before kernels get their share.
    """

    def __init__(self, machine: Machine, *, flows: bool, alike: Alike | None = None) -> None:
        """`alike`: the hosts that are played, if not all."""
        self._machine = machine
        self._flows = flows
        self._costs = costs_of(machine.fabric.cluster)
        self._alike = None if alike is None else AlikeNccl(machine.fabric, self._costs, alike)
        self._multiprocessors = machine.fabric.cluster.host.gpu.multiprocessors
        self._channels: dict[str, int] = {}
        self._slow_starts = _SlowStarts(machine, machine.fabric.cluster.nccl_sockets)

    def __call__(self, meeting: Meeting, member: int, thread: Thread | None = None) -> None:
        """The last to come sets it going."""
        self._take_multiprocessors(meeting, member)
        if meeting.everyone.done and meeting.group.counts:
            self._play_alike(meeting)
        elif meeting.everyone.done:
            plan = nccl.plan(meeting.in_order, *self._places(meeting.group.ranks))
            if plan.predicted_ns:
                meeting.formula_ns = round(plan.predicted_ns)
            self._play(meeting, list(plan.phases))

    def _play_alike(self, meeting: Meeting) -> None:
        """Of members that stand for several ranks each: one activity, as in "links"."""
        assert self._alike is not None, "only then members stand for others"
        carried = self._alike.carried(meeting.in_order)
        meeting.formula_ns = carried.formula_ns
        lost_ns = self._slow_starts.lost_between_ns(meeting.group, *carried.largest) if carried.largest else 0
        self._machine.traffic.add_alike(carried.between, carried.inside)

        def begin() -> None:
            over = self._machine.begin(carried.uses, weight=carried.weight)
            if self._multiprocessors is not None:
                passing = dict(enumerate(carried.touched))
                over.then(self._take_memory(meeting, passing, carried.uses))
            over.then(meeting.finish_all)

        self._machine.sleep(carried.latency_ns + lost_ns).then(begin)

    def _places(self, ranks: tuple[int, ...]) -> tuple[list[int], NcclCosts, list[int]]:
        """Each one's host, the cluster, and which GPU of its host each one is."""
        fabric = self._machine.fabric
        return [fabric.host(rank) for rank in ranks], self._costs, [fabric.gpu(rank) for rank in ranks]

    def _way(self, ranks: tuple[int, ...], phase: nccl.Phase) -> Callable[[int, int], Path]:
        """From one global rank to another, over the rank that passes it on where there is one."""
        relays = {(ranks[source], ranks[target]): ranks[via] for (source, target), via in phase.relays.items()}
        fabric = self._machine.fabric
        return lambda source, target: fabric.path(source, target, relays.get((source, target)))

    def _play(self, meeting: Meeting, phases: list[nccl.Phase]) -> None:
        if not phases:
            meeting.finish_all()
            return
        phase, *rest = phases
        delay = self._machine.sleep(phase.latency_ns + self._slow_starts.lost_ns(meeting.group, phase.transfers))
        merged_share = self._merged_share(phase)
        if merged_share is None:
            delay.then(lambda: self._whole(meeting, phase).then(lambda: self._play(meeting, rest)))
        else:
            delay.then(lambda: self._each(meeting, phase, rest, merged_share))

    def _merged_share(self, phase: nccl.Phase) -> float | None:
        """Within which ends of its transfers are merged where they stand in arrays; None: it is one activity."""
        if phase.coupled:
            return None
        if self._flows or len(phase.transfers) <= MOST_EXACT:
            return MERGED_SHARE
        return COARSE_SHARE if len(phase.transfers) <= MOST_MERGED else None

    def _take_multiprocessors(self, meeting: Meeting, member: int) -> None:
        fabric, group = self._machine.fabric, meeting.group
        if self._multiprocessors is None or group.size == 1:
            return
        if group.name not in self._channels:
            alike = self._alike if group.counts else None
            found = nccl.channels(*self._places(group.ranks)) if alike is None else alike.channels(group)
            self._channels[group.name] = found
        share = self._channels[group.name] / self._multiprocessors
        meeting.through[member].then(self._machine.occupy(fabric.arithmetic[group.ranks[member]], share))

    def _take_memory_of(
        self, meeting: Meeting, phase: nccl.Phase, carried: Load, many: Many | None
    ) -> Callable[[], None]:
        members = len(meeting.group.ranks)
        passing = _passing(phase) if many is None else dict(enumerate(many.touched(members).tolist()))
        return self._take_memory(meeting, passing, carried.uses)

    def _take_memory(
        self, meeting: Meeting, passing: Mapping[int, float], uses: Mapping[Capacity, float]
    ) -> Callable[[], None]:
        """For bytes that pass members, at the rate that they have by themselves, until what is returned is called."""
        fabric, ranks = self._machine.fabric, meeting.group.ranks
        alone_s = max((used / link.per_s for link, used in uses.items()), default=0.0)
        if not alone_s:
            return _nothing
        taken = [
            self._machine.occupy(fabric.memory[ranks[member]], _TOUCHES * size_bytes / alone_s)
            for member, size_bytes in passing.items()
            if size_bytes
        ]

        def give_all_back() -> None:
            for give_back in taken:
                give_back()

        return give_all_back

    def _many(self, ranks: tuple[int, ...], phase: nccl.Phase) -> Many | None:
        """The phase's transfers as arrays, where they are many."""
        if phase.coupled or len(phase.transfers) <= MOST_SINGLE:
            return None
        return Many.of(self._machine.fabric, ranks, phase)

    def _count(self, ranks: tuple[int, ...], phase: nccl.Phase, many: Many | None) -> None:
        """What goes from host to host."""
        if many is None:
            self._machine.traffic.add_all(ranks, phase.transfers)
        else:
            self._machine.traffic.add_many(ranks, many.sources, many.targets, many.sizes)

    def _load(self, ranks: tuple[int, ...], phase: nccl.Phase, many: Many | None) -> Load:
        return load(ranks, phase.transfers, self._way(ranks, phase)) if many is None else load_of_many(many)

    def _whole(self, meeting: Meeting, phase: nccl.Phase) -> Signal[None]:
        ranks = meeting.group.ranks
        many = self._many(ranks, phase)
        self._count(ranks, phase, many)
        carried = self._load(ranks, phase, many)
        over = self._machine.begin(carried.uses, weight=carried.weight)
        if self._multiprocessors is not None:
            over.then(self._take_memory_of(meeting, phase, carried, many))
        return over

    def _each(self, meeting: Meeting, phase: nccl.Phase, rest: list[nccl.Phase], merged_share: float) -> None:
        ranks, size = meeting.group.ranks, meeting.group.size
        many = self._many(ranks, phase)
        self._count(ranks, phase, many)
        left = np.array(_flows_of_members(phase, size)) if many is None else many.of_members(size)
        give_back = _nothing
        open_members = sum(1 for count in left if count)
        if self._multiprocessors is not None:
            give_back = self._take_memory_of(meeting, phase, self._load(ranks, phase, many), many)

        def through(member: int) -> None:
            nonlocal open_members
            open_members -= 1
            if not rest:
                meeting.finish(member)
            elif open_members == 0:
                self._play(meeting, rest)
            if open_members == 0:
                give_back()

        idle = [member for member, count in enumerate(left) if not count]
        if many is None:
            self._begin_each(ranks, phase, left, through)
        else:
            self._begin_many(many, left, through, merged_share)
        if not rest:
            for member in idle:
                meeting.finish(member)
        elif not phase.transfers:
            self._play(meeting, rest)

    def _begin_each(
        self, ranks: tuple[int, ...], phase: nccl.Phase, left: Array, through: Callable[[int], None]
    ) -> None:
        def ended(member: int) -> None:
            left[member] -= 1
            if left[member] == 0:
                through(member)

        way = self._way(ranks, phase)
        for source, target, size_bytes in phase.transfers:
            links = way(ranks[source], ranks[target]).links
            signal = self._machine.begin(dict.fromkeys(links, 1.0), size_bytes)
            signal.then(partial(ended, source))
            signal.then(partial(ended, target))

    def _begin_many(self, many: Many, left: Array, through: Callable[[int], None], merged_share: float) -> None:
        def ended(rows: Array) -> None:
            flows = many.of_members(left.size, rows)
            np.subtract(left, flows, out=left)
            for member in np.flatnonzero((flows > 0) & (left == 0)).tolist():
                through(member)

        self._machine.begin_all(Bundle(many.routes.capacities, many.routes.crossed, many.sizes, ended, merged_share))


def _flows_of_members(phase: nccl.Phase, members: int) -> list[int]:
    left = [0] * members
    for source, target, _ in phase.transfers:
        left[source] += 1
        left[target] += 1
    return left


def _passing(phase: nccl.Phase) -> dict[int, float]:
    """Bytes that members send, receive or pass on; what one passes on counts twice."""
    passing: dict[int, float] = {}
    for source, target, size_bytes in phase.transfers:
        via = phase.relays.get((source, target))
        for member in (source, target) if via is None else (source, via, via, target):
            passing[member] = passing.get(member, 0.0) + size_bytes
    return passing


def _nothing() -> None:
    pass
