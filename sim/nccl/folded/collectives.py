"""Models NCCL collectives on a folded cluster."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from scenarios.config.host_classes import HostClasses
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from sim.engine.capacity import Capacity
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import Array
from sim.nccl import plan as nccl
from sim.nccl import rings_and_trees as nccl_paths
from sim.nccl.costs import NcclCosts
from sim.nccl.folded.exchange import Transfers
from sim.nccl.folded.leaf_uplinks import Leaves
from sim.nccl.folded.link_load import Carried, Members
from sim.nccl.folded.pipelines import TREES, PipelineLoads, degrees_of, largest_across, shares
from sim.nccl.tuning import overhead, p2p_latency_ns, topology

# Hosts on which rings and trees are laid out instead of on all: from eight on, trees have hosts with two children.
_DRAWN_HOSTS = 8

_IDLE_SECONDS = (nccl_paths.idle_seconds, nccl_paths.pcie_seconds)


class FoldedNccl:
    """A model of NCCL's collectives on a folded cluster, with one simulated host per host class."""

    def __init__(self, fabric: Fabric, costs: NcclCosts, classes: HostClasses) -> None:
        self._network, self._costs = fabric.network, costs
        self._classes = classes.by_domain(fabric.network.hosts_per_domain)
        self._members_of: dict[str, Members] = {}
        self._exchanges: dict[tuple[str, int, bytes], tuple[Carried, Transfers]] = {}
        self._shares: dict[tuple[Hashable, ...], Array] = {}
        self._leaves = Leaves.of(fabric.network, classes)

    def channels(self, group: Group) -> int:
        """Return the thread blocks of an operation of the group on each GPU."""
        return topology(self._members(group).shape, self._costs).channels

    def load_of(self, calls: Sequence[Call]) -> Carried:
        """Return the load of the members' calls, in group order, on links."""
        first, members = calls[0], self._members(calls[0].group)
        if members.shape.ranks == 1:
            return Carried()
        if not first.expected_send:
            return self._pipeline(members, first)
        sends = np.array([call.expected_send for call in calls])
        key = first.group.name, first.element_size, blake2b(sends.tobytes()).digest()
        if key not in self._exchanges:  # each step repeats its calls
            self._exchanges[key] = self._exchange(members, sends, first.element_size)
        return self._exchanges[key][0]

    def hold_again(self) -> Iterator[tuple[Capacity, float]]:
        """Find the time in isolation of each exchange anew, as links have other speeds now.

        Returns:
            Capacities with a new speed each, which also exchanges under way take.
        """
        for carried, rows in self._exchanges.values():
            if carried.uses:
                speed = carried.hold(rows.seconds())
                if carried.own is not None:
                    yield carried.own, speed

    def _members(self, group: Group) -> Members:
        if group.name in self._members_of:
            return self._members_of[group.name]
        ranks = np.array(group.ranks)
        # Representatives are in ascending order, so a search gives each member's host class.
        hosts = np.searchsorted(self._classes.representatives, ranks // self._classes.gpus)
        gpus, counts = ranks % self._classes.gpus, np.array(group.counts)
        by_host = nccl_paths.members_by_host(hosts.tolist())
        every = sum(int(counts[places[0]]) for places in by_host)
        shape = nccl_paths.shape_of(by_host, self._costs, gpus.tolist(), every)
        members = Members(ranks, hosts, gpus, counts, by_host, replace(shape, ranks=group.size))
        self._members_of[group.name] = members
        return members

    def _exchange(self, members: Members, sends: Array, element_size: int) -> tuple[Carried, Transfers]:
        """Return the load of an exchange, and its transfers; `sends` [members, members]: bytes from each rank to each
        that a member represents.
        """
        costs, same = self._costs, members.is_one_host
        inside = same & ~np.eye(len(sends), dtype=bool)
        # Peers on other hosts: those among the second member for one rank of the first, and vice versa.
        to, come = members.counts - same, members.counts[:, None] - same
        is_sent = sends > 0
        rows = Transfers(self._network, members, self._classes.gpus)
        if not ((to + inside) * is_sent).any():
            return Carried(), rows
        # With less than an element on average most messages are empty, and NCCL sends no empty message.
        likely = np.minimum(sends / element_size, 1.0)
        most = math.ceil(max(((to + inside) * likely).sum(1).max(), ((come + inside) * likely).sum(0).max()))
        largest_bytes, crosses = float(sends[to + inside > 0].max()), bool((to * is_sent).any())
        on_links = nccl.p2p_link_bytes(sends)
        across = on_links * overhead(False, costs)
        rows.cross(to, come, across, costs)
        to_peers = on_links * overhead(True, costs, int((inside * is_sent).sum(1).max()))
        rows.stay(inside * is_sent, to_peers, costs)
        own_bytes, largest = float(sends.diagonal().max()), math.ceil(largest_bytes)
        latency_ns = p2p_latency_ns(largest, most, members.shape, costs, crosses=crosses, own_bytes=own_bytes)
        carried = Carried(
            latency_ns=round(latency_ns),
            touched=rows.touched.tolist(),
            largest=self._largest(members, np.where(to > 0, across, 0.0)),
        )
        rows.load(carried)
        hosts, to_self = self._hosts_of(members), inside * to_peers
        same_host = np.equal.outer(hosts, hosts)
        carried.between, carried.inside = self._nothing()
        carried.inside = np.bincount(hosts, (to_self * same_host).sum(axis=1), len(carried.inside))
        np.add.at(carried.between, (hosts[:, None], hosts), to * across + to_self * ~same_host)
        carried.hold(rows.seconds())
        self._leaves.exchange(carried, members.hosts, across)
        return carried, rows

    def _nothing(self) -> tuple[Array, Array]:
        """Return zero bytes between hosts, [hosts, hosts], and inside them, [hosts]."""
        count = len(self._classes.representatives) * self._network.hosts_per_domain
        return np.zeros((count, count)), np.zeros(count)

    def _hosts_of(self, members: Members) -> Array:
        """Return each member's place among the simulated hosts; a host in `Members` is a whole NVLink domain."""
        trays = self._network.hosts_per_domain
        return np.asarray(members.hosts * trays + members.gpus // (self._classes.gpus // trays))

    def _largest(self, members: Members, across: Array) -> tuple[int, int, float] | None:
        """Return source, target and bytes of the largest transfer between hosts, from [members, members] bytes."""
        source, target = np.unravel_index(int(across.argmax()), across.shape)
        size_bytes = float(across[source, target])
        if not size_bytes:
            return None
        return int(members.ranks[source]), self._elsewhere(members, int(source), int(target)), size_bytes

    def _elsewhere(self, members: Members, source: int, target: int) -> int:
        """Return a rank that the second member represents, on another host than the first."""
        rank = int(members.ranks[target])
        if members.hosts[source] != members.hosts[target]:
            return rank
        others = np.flatnonzero(self._classes.class_of_host == members.hosts[target])
        return int(others[others != rank // self._classes.gpus][0]) * self._classes.gpus + int(members.gpus[target])

    def _pipeline(self, members: Members, call: Call) -> Carried:
        """Return the load of a ring or tree on a few hosts: each host has the load of the busiest host, except for its
        own part in trees.

        All hosts wait for the slowest, so the time in isolation is that of the busiest host.
        """
        local = members.by_host[0]
        gpus, shape = [int(members.gpus[place]) for place in local], members.shape
        # Laid out on few hosts, but with the shape of all: the choice and the time are the whole group's.
        drawn = min(_DRAWN_HOSTS, shape.hosts)
        placed = [list(range(host * len(local), (host + 1) * len(local))) for host in range(drawn)]
        call = replace(call, root=min(call.root, 0))  # laid out at the first host, wherever the root is
        plan = nccl.pipeline(call, nccl.GroupPlacement(placed, gpus * drawn, shape), self._costs)
        # -1, as 0 is NCCL's "no figure", which a span stores as -1.
        carried = Carried(formula_ns=round(plan.predicted_ns) or -1, touched=[0.0] * len(members.ranks))
        carried.between, carried.inside = self._nothing()
        trays, held_s = self._network.hosts_per_domain, 0.0
        for phase in plan.phases:
            sent = self._sent_shares(members, phase.algorithm, towards_owner=plan.function == "reduce_scatter")
            carried.latency_ns += phase.latency_ns
            loads = PipelineLoads.of(phase, gpus)
            parts = self._parts(phase.algorithm, shape.hosts)
            for by_host in members.by_host:
                self._load_host(carried, members, by_host, loads, part=float(parts[members.hosts[by_host[0]]]))
            # Rings and trees go from a GPU to one of that number or the next, so from a tray to the corresponding one.
            carried.between += np.kron(sent * loads.of_host.size_bytes, np.eye(trays) / trays)
            self._leaves.pipeline(carried, phase.algorithm, loads.of_host, len(gpus))
            drawn_bytes = {(source, target): size_bytes for source, target, size_bytes in phase.transfers}
            idle = [each(drawn_bytes, placed, self._costs, gpus * drawn) for each in _IDLE_SECONDS]
            held_s += max(phase.least_s, *idle)
            if shape.hosts > 1:
                far = int(np.flatnonzero(members.hosts != members.hosts[0])[:1].sum())
                carried.largest = int(members.ranks[0]), self._elsewhere(members, 0, far), largest_across(phase, local)
        if held_s:
            carried.hold(held_s)
        return carried

    def _sent_shares(self, members: Members, algorithm: str, *, towards_owner: bool) -> Array:
        """Return the bytes from hosts of each class to others, over those of the busiest host; 0 without a member."""
        key = (*members.hosts.tolist(), algorithm, towards_owner)
        if key not in self._shares:
            kinds = self._classes.class_of_host[np.isin(self._classes.class_of_host, members.hosts)]
            counts = np.array(self._classes.counts)
            self._shares[key] = shares(algorithm, kinds, counts, towards_owner=towards_owner)
        return self._shares[key]

    def _parts(self, algorithm: str, hosts: int) -> Array:
        """Return the bytes that a host of each class sends on average, over the busiest host's."""
        if algorithm not in TREES or hosts == 1:
            return np.ones(len(self._classes.representatives))
        degrees = degrees_of(hosts)
        return np.asarray(np.bincount(self._classes.class_of_host, degrees / degrees.max()) / self._classes.counts)

    def _load_host(
        self, carried: Carried, members: Members, by_host: Sequence[int], loads: PipelineLoads, *, part: float
    ) -> None:
        ranks = {int(members.gpus[place]): int(members.ranks[place]) for place in by_host}
        places = {int(members.gpus[place]): place for place in by_host}
        hosts = self._hosts_of(members)
        for (source, target, via), load in loads.inside.items():
            here, there = int(hosts[places[source]]), int(hosts[places[target]])
            if here == there:
                carried.inside[here] += load.size_bytes
            else:
                carried.between[here, there] += load.size_bytes
            path = self._network.path(ranks[source], ranks[target], None if via is None else ranks[via])
            carried.add(path.links, *load)
            for gpu in (source, target) if via is None else (source, via, via, target):
                carried.touched[places[gpu]] += load.size_bytes
        for (source, target), load in loads.relayed.items():
            path = self._network.path(ranks[source], ranks[target])
            carried.add(path.links, part * load.size_bytes, part * load.transfers)
            for gpu in (source, target):
                carried.touched[places[gpu]] += part * load.size_bytes
        beyond = [(gpu, load, self._network.leaving(ranks[gpu], gpu)) for gpu, load in loads.leaving.items()]
        beyond += [(gpu, load, self._network.arriving(ranks[gpu])) for gpu, load in loads.arriving.items()]
        for gpu, load, links in beyond:
            carried.add(links, part * load.size_bytes, part * load.transfers)
            carried.touched[places[gpu]] += part * load.size_bytes
