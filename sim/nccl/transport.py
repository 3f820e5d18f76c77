"""Simulates NCCL's collectives on links: phases, which begin when every member has entered.

"flows" simulates each transfer that is not part of one pipeline; "links" does so where they are not too many, and any
other collective as one activity with its load on every link, so that time and memory grow with ranks and links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from scenarios.config.host_classes import HostClasses
from scenarios.do_nothing import do_nothing
from sim.clock import Signal
from sim.engine.capacity import Capacity
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import MERGED_SHARE, MOST_SINGLE, Array, Bundle
from sim.engine.link_load import Load, load, load_of_routes
from sim.engine.machine import Machine
from sim.engine.network import Path, Routes, routes
from sim.engine.slow_start import SlowStarts
from sim.hosts.cores import Thread
from sim.nccl import plan as nccl
from sim.nccl.costs import NcclCosts, costs_of
from sim.nccl.folded import FoldedNccl
from sim.nccl.memory import Connections, buffer_bytes
from sim.rank.rendezvous import Rendezvous

# Memory accesses per byte on a GPU's links: an incoming byte is written and read, an outgoing one read; half of each.
_TOUCHES = 1.5

# How "links" simulates an exchange: up to MOST_EXACT transfers (64 ranks) as single flows, as "flows" does; up to
# MOST_MERGED (1,024 ranks) too, but with ends merged within ten times as much; above as one load on links.
MOST_EXACT, MOST_MERGED = 64 * 63, 1024 * 1023
COARSE_SHARE = 10 * MERGED_SHARE


class NcclPhases:
    """A transport of NCCL's phases, one after the other, once the last member has entered.

    A coupled phase (a pipelined ring or tree) is one activity at either fidelity. In "flows", and in "links" where they
    are not too many, each transfer of an uncoupled phase is its own activity, and a member finishes the last phase when
    its own transfers have ended.

    A channel is a thread block that keeps a multiprocessor from kernels as soon as its rank has entered, also during
    the straggler wait; and bytes on a GPU's links are read and written in its memory before kernels get their share.
    """

    def __init__(self, machine: Machine, *, flows: bool, classes: HostClasses | None = None) -> None:
        """Create a transport; `classes`: host classes of which only representatives are simulated (None: every host
        is).
        """
        self._machine = machine
        self._flows = flows
        self._costs = costs_of(machine.fabric.cluster)
        self._folded = None if classes is None else FoldedNccl(machine.fabric, self._costs, classes)
        machine.changed.append(self._hold_again)
        self._multiprocessors = machine.fabric.cluster.host.gpu.multiprocessors
        self._connected: dict[str, Connections] = {}
        # Windows matter between NVLink domains only: inside one, NCCL uses no sockets.
        self._slow_starts = SlowStarts(machine, machine.fabric.cluster.nccl_sockets, over_nvlink=True)

    def __call__(self, rendezvous: Rendezvous, member: int, thread: Thread | None = None) -> None:
        """Enter a member; the last one starts the collective."""
        if rendezvous.group.size > 1:
            self._connect(rendezvous, member)
            self._take_multiprocessors(rendezvous, member)
        if rendezvous.is_complete and rendezvous.group.counts:
            self._play_folded(rendezvous)
        elif rendezvous.is_complete:
            plan = nccl.plan(rendezvous.in_order, *self._places(rendezvous.group.ranks))
            if plan.predicted_ns:
                rendezvous.formula_ns = round(plan.predicted_ns)
            self._play(rendezvous, list(plan.phases))

    def _play_folded(self, rendezvous: Rendezvous) -> None:
        """Run a collective of members that represent several ranks each as one activity, as in "links"."""
        assert self._folded is not None, "only in a folded cluster members represent others"
        carried = self._folded.load_of(rendezvous.in_order)
        rendezvous.formula_ns = carried.formula_ns
        lost_ns = self._slow_starts.lost_between_ns(rendezvous.group, *carried.largest) if carried.largest else 0
        self._machine.traffic.add_folded(carried.between, carried.inside)

        def begin() -> None:
            over = self._machine.begin(carried.uses, weight=carried.weight)
            if self._multiprocessors is not None:
                passing = dict(enumerate(carried.touched))
                over.then(self._take_memory(rendezvous, passing, carried.uses))
            over.then(rendezvous.finish_all)

        self._machine.sleep(carried.latency_ns + lost_ns).then(begin)

    def _hold_again(self) -> None:
        for capacity, speed in () if self._folded is None else self._folded.hold_again():
            self._machine.set_speed(capacity, speed)

    def _places(self, ranks: tuple[int, ...]) -> tuple[list[int], NcclCosts, list[int]]:
        """Return each rank's node (one for hosts joined by NVLink), the costs, and each rank's GPU in its node."""
        network = self._machine.fabric.network
        return [network.domain(rank) for rank in ranks], self._costs, [network.place(rank) for rank in ranks]

    def _path_of(self, ranks: tuple[int, ...], phase: nccl.Phase) -> Callable[[int, int], Path]:
        """Return a function from two global ranks to the path between them, over their relay if there is one."""
        relays = {(ranks[source], ranks[target]): ranks[via] for (source, target), via in phase.relays.items()}
        fabric = self._machine.fabric
        return lambda source, target: fabric.path(source, target, relays.get((source, target)))

    def _play(self, rendezvous: Rendezvous, phases: list[nccl.Phase]) -> None:
        if not phases:
            rendezvous.finish_all()
            return
        phase, *rest = phases
        delay = self._machine.sleep(phase.latency_ns + self._slow_starts.lost_ns(rendezvous.group, phase.transfers))
        merged_share = self._merged_share(phase)
        if merged_share is None:
            delay.then(lambda: self._whole(rendezvous, phase).then(lambda: self._play(rendezvous, rest)))
        else:
            delay.then(lambda: self._each(rendezvous, phase, rest, merged_share))

    def _merged_share(self, phase: nccl.Phase) -> float | None:
        """Return the share within which ends of transfers in arrays are merged; None: the phase is one activity."""
        if phase.coupled:
            return None
        if self._flows or len(phase.transfers) <= MOST_EXACT:
            return MERGED_SHARE
        return COARSE_SHARE if len(phase.transfers) <= MOST_MERGED else None

    def buffer_bytes(self) -> dict[int, int]:
        """Return the memory of the communicators used so far, in bytes by rank."""
        return buffer_bytes(self._connected, self._machine.fabric.network)

    def _connect(self, rendezvous: Rendezvous, member: int) -> None:
        group, op = rendezvous.group, rendezvous.calls[member].op
        if group.name not in self._connected:
            folded = self._folded if group.counts else None
            found = nccl.channels(*self._places(group.ranks)) if folded is None else folded.channels(group)
            self._connected[group.name] = Connections(group, found)
        self._connected[group.name].note(exchanges=op in nccl.GROUPED)

    def _take_multiprocessors(self, rendezvous: Rendezvous, member: int) -> None:
        fabric, group = self._machine.fabric, rendezvous.group
        if self._multiprocessors is None:
            return
        share = self._connected[group.name].channels / self._multiprocessors
        # `occupy` takes the share now, at the entry; the signal only calls the function that it returned.
        rendezvous.through[member].then(self._machine.occupy(fabric.arithmetic[group.ranks[member]], share))

    def _take_memory_of(
        self, rendezvous: Rendezvous, phase: nccl.Phase, carried: Load, many: Many | None
    ) -> Callable[[], None]:
        members = len(rendezvous.group.ranks)
        passing = _passing(phase) if many is None else dict(enumerate(many.touched_bytes(members).tolist()))
        return self._take_memory(rendezvous, passing, carried.uses)

    def _take_memory(
        self, rendezvous: Rendezvous, passing: Mapping[int, float], uses: Mapping[Capacity, float]
    ) -> Callable[[], None]:
        """Reserve memory bandwidth for bytes that pass members, at their rate in isolation; the returned function
        releases it.
        """
        fabric, ranks = self._machine.fabric, rendezvous.group.ranks
        alone_s = max((used / link.per_s for link, used in uses.items()), default=0.0)
        if not alone_s:
            return do_nothing
        releases = [
            self._machine.occupy(fabric.memory[ranks[member]], _TOUCHES * size_bytes / alone_s)
            for member, size_bytes in passing.items()
            if size_bytes
        ]

        def release_all() -> None:
            for release in releases:
                release()

        return release_all

    def _many(self, ranks: tuple[int, ...], phase: nccl.Phase) -> Many | None:
        """Return the transfers of an uncoupled phase as arrays, if there are more than `MOST_SINGLE`."""
        if phase.coupled or len(phase.transfers) <= MOST_SINGLE:
            return None
        return Many.of(self._machine.fabric, ranks, phase)

    def _count(self, ranks: tuple[int, ...], phase: nccl.Phase, many: Many | None) -> None:
        """Count the bytes between hosts."""
        if many is None:
            self._machine.traffic.add_all(ranks, phase.transfers)
        else:
            self._machine.traffic.add_many(ranks, many.sources, many.targets, many.sizes)

    def _load(self, ranks: tuple[int, ...], phase: nccl.Phase, many: Many | None) -> Load:
        if many is None:
            return load(ranks, phase.transfers, self._path_of(ranks, phase))
        return load_of_routes(many.routes, many.sizes)

    def _whole(self, rendezvous: Rendezvous, phase: nccl.Phase) -> Signal[None]:
        ranks = rendezvous.group.ranks
        many = self._many(ranks, phase)
        self._count(ranks, phase, many)
        carried = self._load(ranks, phase, many)
        # A capacity that nothing else uses: a pipeline takes at least so long, however free the links are.
        if phase.least_s:
            carried.uses[Capacity("pipeline", 1.0)] = phase.least_s
        over = self._machine.begin(carried.uses, weight=carried.weight)
        if self._multiprocessors is not None:
            over.then(self._take_memory_of(rendezvous, phase, carried, many))
        return over

    def _each(self, rendezvous: Rendezvous, phase: nccl.Phase, rest: list[nccl.Phase], merged_share: float) -> None:
        ranks, size = rendezvous.group.ranks, rendezvous.group.size
        many = self._many(ranks, phase)
        self._count(ranks, phase, many)
        if many is None:
            ends = [member for source, target, _ in phase.transfers for member in (source, target)]
            left = np.bincount(np.array(ends, np.int64), minlength=size)
        else:
            left = many.of_members(size)
        release: Callable[[], None] = do_nothing
        open_members = sum(1 for count in left if count)
        if self._multiprocessors is not None:
            release = self._take_memory_of(rendezvous, phase, self._load(ranks, phase, many), many)

        def through(member: int) -> None:
            nonlocal open_members
            open_members -= 1
            if not rest:
                rendezvous.finish(member)
            elif open_members == 0:
                self._play(rendezvous, rest)
            if open_members == 0:
                release()

        # Found before transfers begin, because those that end at once count `left` down.
        idle = [member for member, count in enumerate(left) if not count]
        if many is None:
            self._begin_each(ranks, phase, left, through)
        else:
            self._begin_many(many, left, through, merged_share)
        if not rest:
            for member in idle:
                rendezvous.finish(member)
        elif not phase.transfers:
            self._play(rendezvous, rest)

    def _begin_each(
        self, ranks: tuple[int, ...], phase: nccl.Phase, left: Array, through: Callable[[int], None]
    ) -> None:
        def end(member: int) -> None:
            left[member] -= 1
            if left[member] == 0:
                through(member)

        path_of = self._path_of(ranks, phase)
        for source, target, size_bytes in phase.transfers:
            links = path_of(ranks[source], ranks[target]).links
            signal = self._machine.begin(dict.fromkeys(links, 1.0), size_bytes)
            # Both ends: a member is through a phase when all that it sends and receives has passed.
            signal.then(partial(end, source))
            signal.then(partial(end, target))

    def _begin_many(self, many: Many, left: Array, through: Callable[[int], None], merged_share: float) -> None:
        def end(rows: Array) -> None:
            flows = many.of_members(left.size, rows)
            np.subtract(left, flows, out=left)
            for member in np.flatnonzero((flows > 0) & (left == 0)).tolist():
                through(member)

        self._machine.begin_all(
            Bundle(many.routes.capacities, many.routes.crossed, many.sizes, end, merged_share=merged_share)
        )


@dataclass(frozen=True, slots=True)
class Many:
    """The transfers of a phase as arrays [transfers]: group ranks (relay -1: none), bytes, and links."""

    sources: Array
    targets: Array
    relays: Array
    sizes: Array
    routes: Routes

    @staticmethod
    def of(fabric: Fabric, ranks: Sequence[int], phase: nccl.Phase) -> Many:
        """Return a phase's transfers as arrays; `ranks` are the global ranks of the group."""
        count = len(phase.transfers)
        sources, targets, sizes = (
            np.fromiter((transfer[column] for transfer in phase.transfers), dtype, count)
            for column, dtype in ((0, np.int32), (1, np.int32), (2, np.float64))
        )
        relays = np.full(count, -1, np.int32)
        if phase.relays:
            via = phase.relays.get
            relays = np.fromiter((via((source, target), -1) for source, target, _ in phase.transfers), np.int32, count)
        world = np.array([*ranks, -1], np.int32)  # index -1, no relay, is the extra last entry
        found = routes(fabric.network, world[sources], world[targets], world[relays])
        return Many(sources, targets, relays, sizes, found)

    def touched_bytes(self, members: int) -> Array:
        """Return the bytes that each of `members` members sends, receives or forwards; forwarded bytes count twice."""
        touched = np.zeros(members)
        for touching, times in ((self.sources, 1), (self.targets, 1), (self.relays, 2)):
            is_one = touching >= 0
            touched += times * np.bincount(touching[is_one], self.sizes[is_one], members)
        return touched

    def of_members(self, members: int, rows: Array | None = None) -> Array:
        """Return how many of the transfers, or of `rows`, each of `members` members sends or receives."""
        of = slice(None) if rows is None else rows
        return np.bincount(self.sources[of], minlength=members) + np.bincount(self.targets[of], minlength=members)


def _passing(phase: nccl.Phase) -> dict[int, float]:
    """Return the bytes that members send, receive or forward; forwarded bytes count twice."""
    passing: dict[int, float] = {}
    for source, target, size_bytes in phase.transfers:
        via = phase.relays.get((source, target))
        for member in (source, target) if via is None else (source, via, via, target):
            passing[member] = passing.get(member, 0.0) + size_bytes
    return passing
