"""NCCL's collectives among members that stand for several ranks each, as loads on the links of those that are played.

Links of a host that is played carry what those of each host carry that it stands for; uplinks carry the whole. What is
sent is left to `collectives`, which hosts are alike to `scenarios.alike`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import blake2b
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scenarios.alike import Alike
from scenarios.calls import Call
from scenarios.rank import Group
from sim.cluster import Fabric
from sim.collectives import nccl, nccl_paths
from sim.collectives.nccl_tuning import NcclCosts, Shape, overhead, p2p_latency_ns, topology
from sim.sharing import Capacity

Array = npt.NDArray[Any]


@cache
def alone() -> ModuleType:
    """The compiled code, which is loaded when it is needed first: numba takes a while."""
    from sim import alone as compiled  # noqa: PLC0415

    return compiled


# Hosts on which rings and trees are drawn in place of all: from eight on trees have hosts with both children.
_DRAWN_HOSTS = 8
_TREES = ("tree", "nvls_tree")
# What counts as no later, and how many levels are looked at before that is left to compiled code.
_NO_LATER, _MOST_LEVELS = 1e-4, 100


@dataclass(slots=True)
class Carried:
    """What one collective loads on links, once it has begun after `latency_ns`.

    `flows`: transfers on each link. `touched`: bytes that each member sends, receives or passes on. `largest`: from
    which global rank to which one of another host the largest transfer is, and its bytes; None if there is none.
    """

    latency_ns: int = 0
    formula_ns: int = -1
    uses: dict[Capacity, float] = field(default_factory=dict)
    flows: dict[Capacity, float] = field(default_factory=dict)
    touched: list[float] = field(default_factory=list)
    largest: tuple[int, int, float] | None = None

    def add(self, links: Sequence[Capacity], size_bytes: float, flows: float) -> None:
        """So many transfers with so many bytes together cross these."""
        for link in links:
            self.uses[link] = self.uses.get(link, 0.0) + size_bytes
            self.flows[link] = self.flows.get(link, 0.0) + flows

    def hold(self, alone_s: float) -> None:
        """By itself it takes at least so long: its transfers do not always fill its busiest link."""
        if alone_s > max(used / link.per_s for link, used in self.uses.items()):
            self.uses[Capacity("exchange", 1.0)] = alone_s

    @property
    def weight(self) -> float:
        """With which it gets of its busiest link what its transfers would get there each for itself."""
        if not self.uses:
            return 1.0
        busiest = max(self.flows, key=lambda link: self.uses[link] / link.per_s)
        return self.flows[busiest] / max(self.uses[busiest], 1.0)


@dataclass(frozen=True, slots=True)
class _Members:
    """Of a group, by member: global rank, which host of those played, which GPU of it, how many ranks it stands for.

    `by_host`: the members of each host that is played; `shape` is that of the whole group.
    """

    ranks: Array
    hosts: Array
    gpus: Array
    counts: Array
    by_host: Sequence[Sequence[int]]
    shape: Shape

    @property
    def is_one_host(self) -> Array:
        """Of each pair, [members, members]."""
        return np.equal.outer(self.hosts, self.hosts)

    def of_host(self, member: int) -> list[int]:
        """The members of one's host."""
        return np.flatnonzero(self.hosts == self.hosts[member]).tolist()


class _Rows:
    """Transfers of an exchange, a row for those from one member's ranks to another's.

    `touched` [members]: bytes that each sends, receives or passes on.
    """

    def __init__(self, fabric: Fabric, members: _Members, gpus: int) -> None:
        self._fabric, self._members, self._gpus = fabric, members, gpus
        self._numbers: dict[Capacity, int] = {}
        self._crossed: list[Array] = []
        self._counts: list[Array] = []
        self._sizes: list[Array] = []
        self.touched = np.zeros(len(members.ranks))

    def cross(self, to: Array, come: Array, size_bytes: Array, costs: NcclCosts) -> None:
        """Between hosts, all [members, members]: `to` so many ranks of the second from one of the first, `come` from
        so many of the first to one of the second.
        """
        members, fabric = self._members, self._fabric
        sources, targets = np.nonzero((to > 0) & (size_bytes > 0))
        relays, leaving = self._ways_out(costs)
        arriving = self._table([fabric.arriving(rank) for rank in members.ranks.tolist()])
        out, back = leaving[sources, members.gpus[targets]], arriving[targets]
        sent, received = to[sources, targets], come[sources, targets]
        sizes = size_bytes[sources, targets]
        counts = [np.repeat(sent[:, None], out.shape[1], 1), np.repeat(received[:, None], back.shape[1], 1)]
        self._add(np.concatenate([out, back], 1), np.concatenate(counts, 1), sizes)
        np.add.at(self.touched, sources, sent * sizes)
        np.add.at(self.touched, targets, received * sizes)
        via = relays[sources, members.gpus[targets]]
        np.add.at(self.touched, via[via >= 0], (2 * sent * sizes)[via >= 0])

    def stay(self, is_sent: Array, size_bytes: Array, costs: NcclCosts) -> None:
        """Inside hosts, all [members, members]."""
        members, mesh = self._members, costs.mesh
        sources, targets = np.nonzero(is_sent)
        links = []
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            host = {int(members.gpus[one]): one for one in members.of_host(source)}
            near, far = int(members.gpus[source]), int(members.gpus[target])
            via = None if mesh is None else mesh.relay(near, far, list(host))
            relay = None if via is None else int(members.ranks[host[via]])
            links.append(self._fabric.path(int(members.ranks[source]), int(members.ranks[target]), relay).links)
            for one in (source, target) if via is None else (source, host[via], host[via], target):
                self.touched[one] += size_bytes[source, target]
        crossed = self._table(links)
        self._add(crossed, np.ones(crossed.shape), size_bytes[sources, targets])

    def load(self, carried: Carried) -> None:
        """Put all on their links."""
        for crossed, counts, sizes in zip(self._crossed, self._counts, self._sizes, strict=True):
            is_link = crossed >= 0
            numbers, size = crossed[is_link], len(self._numbers)
            loads = np.bincount(numbers, (counts * sizes[:, None])[is_link], size)
            flows = np.bincount(numbers, counts[is_link], size)
            for link, used, count in zip(self._numbers, loads.tolist(), flows.tolist(), strict=True):
                if count:
                    carried.add((link,), used, count)

    def seconds(self) -> float:
        """Alone, were there no leafs."""
        width = max(one.shape[1] for one in self._crossed)
        crossed, counts = (
            np.concatenate([np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=-1) for one in each])
            for each in (self._crossed, self._counts)
        )
        sizes, per_s = np.concatenate(self._sizes), np.array([link.per_s for link in self._numbers])
        is_link = crossed >= 0
        needed_s = np.bincount(crossed[is_link], (counts * sizes[:, None])[is_link], per_s.size) / per_s
        # At the rates at which all begin, the last may be through when the busiest link has carried all: then none is
        # ever held up. Only else are they ended one by one.
        rates = _first_rates(crossed, counts, per_s)
        if rates is not None and (sizes / rates).max() <= needed_s.max() * (1 + _NO_LATER):
            return 0.0
        return float(alone().seconds(crossed, counts.astype(np.float64), sizes, per_s))

    def _ways_out(self, costs: NcclCosts) -> tuple[Array, Array]:
        """Of each member, for each GPU of another host: the member that passes it on, or -1; the links."""
        members, fabric = self._members, self._fabric
        relays = np.full((len(members.ranks), self._gpus), -1)
        links = []
        for place, rank in enumerate(members.ranks.tolist()):
            host = {int(members.gpus[one]): one for one in members.of_host(place)}
            for gpu in range(self._gpus):
                via = host.get(gpu)
                if via is None or not nccl_paths.has_rail(int(members.gpus[place]), gpu, costs):
                    links.append(fabric.leaving(rank))
                    continue
                relay = int(members.ranks[via])
                relays[place, gpu] = via
                links.append((*fabric.path(rank, relay).links, *fabric.leaving(relay)))
        table = self._table(links)
        return relays, table.reshape(len(members.ranks), self._gpus, table.shape[1])

    def _table(self, links: Sequence[Sequence[Capacity]]) -> Array:
        """A row each, of numbers; -1 is none."""
        table = np.full((len(links), max(map(len, links), default=0)), -1)
        for row, crossed in zip(table, links, strict=True):
            row[: len(crossed)] = [self._numbers.setdefault(link, len(self._numbers)) for link in crossed]
        return table

    def _add(self, crossed: Array, counts: Array, sizes: Array) -> None:
        self._crossed.append(crossed)
        self._counts.append(counts)
        self._sizes.append(sizes)


def _first_rates(crossed: Array, counts: Array, per_s: Array) -> Array | None:
    """Max-min fair ones while all are under way, [rows]; None where capacities are full at too many levels."""
    is_link, rates = crossed >= 0, np.zeros(len(crossed))
    left, is_growing = per_s.astype(np.float64), np.ones(len(crossed), np.bool_)
    for _ in range(_MOST_LEVELS):
        under_way = is_link & is_growing[:, None]
        growth = np.bincount(crossed[under_way], counts[under_way], per_s.size)
        levels = np.divide(left, growth, out=np.full(per_s.size, np.inf), where=growth > 0)
        level = levels.min()
        stops = is_growing & (under_way & (levels <= level * (1 + 1e-9))[crossed]).any(axis=1)
        rates[stops] = level
        is_growing &= ~stops
        if not is_growing.any():
            return rates
        taken = is_link & stops[:, None]
        left = np.maximum(left - level * np.bincount(crossed[taken], counts[taken], per_s.size), 0.0)
    return None


class AlikeNccl:
    """Of one cluster."""

    def __init__(self, fabric: Fabric, costs: NcclCosts, alike: Alike) -> None:
        self._fabric, self._costs, self._alike = fabric, costs, alike
        self._found: dict[str, _Members] = {}
        self._exchanges: dict[tuple[str, int, bytes], Carried] = {}
        self._leafs = _Leafs.of(fabric, alike)

    def channels(self, group: Group) -> int:
        """How many thread blocks an operation of the group has on each GPU."""
        return topology(self._members(group).shape, self._costs).channels

    def carried(self, calls: Sequence[Call]) -> Carried:
        """By calls of all members, in group order, which fit each other."""
        first, members = calls[0], self._members(calls[0].group)
        if members.shape.ranks == 1:
            return Carried()
        if not first.expected_send:
            return self._pipeline(members, first)
        sends = np.array([call.expected_send for call in calls])
        key = first.group.name, first.element_size, blake2b(sends.tobytes()).digest()
        if key not in self._exchanges:  # a program calls the same again each step
            self._exchanges[key] = self._exchange(members, sends, first.element_size)
        return self._exchanges[key]

    def _members(self, group: Group) -> _Members:
        found = self._found.get(group.name)
        if found is None:
            found = self._found[group.name] = self._find(group)
        return found

    def _find(self, group: Group) -> _Members:
        costs, ranks = self._costs, np.array(group.ranks)
        hosts = np.searchsorted(self._alike.hosts, ranks // self._alike.gpus)
        gpus, counts = ranks % self._alike.gpus, np.array(group.counts)
        by_host = nccl_paths.members_by_host(hosts.tolist())
        every = sum(int(counts[members[0]]) for members in by_host)
        shape = nccl_paths.shape_of(by_host, costs, gpus.tolist(), every)
        return _Members(ranks, hosts, gpus, counts, by_host, replace(shape, ranks=group.size))

    def _exchange(self, members: _Members, sends: Array, element_size: int) -> Carried:
        """`sends` [members, members]: bytes from each rank to each that the other member stands for."""
        costs, same = self._costs, members.is_one_host
        inside = same & ~np.eye(len(sends), dtype=bool)
        # Peers beyond its own host, of one rank of the first for the second, and the other way round.
        to, come = members.counts - same, members.counts[:, None] - same
        is_sent = sends > 0
        if not ((to + inside) * is_sent).any():
            return Carried()
        # Of less than an element on average, most messages are empty, and NCCL sends none of these.
        likely = np.minimum(sends / element_size, 1.0)
        most = math.ceil(max(((to + inside) * likely).sum(1).max(), ((come + inside) * likely).sum(0).max()))
        largest_bytes, crosses = float(sends[to + inside > 0].max()), bool((to * is_sent).any())
        rows = _Rows(self._fabric, members, self._alike.gpus)
        on_links = nccl.p2p_link_bytes(sends)
        across = on_links * overhead(False, costs)
        rows.cross(to, come, across, costs)
        rows.stay(inside * is_sent, on_links * overhead(True, costs), costs)
        carried = Carried(
            latency_ns=round(p2p_latency_ns(math.ceil(largest_bytes), most, crosses, members.shape, costs)),
            touched=rows.touched.tolist(),
            largest=self._largest(members, np.where(to > 0, across, 0.0)),
        )
        rows.load(carried)
        carried.hold(rows.seconds())
        self._leafs.exchange(carried, self._fabric, members.hosts, across)
        return carried

    def _largest(self, members: _Members, across: Array) -> tuple[int, int, float] | None:
        """Of transfers between hosts, [members, members]."""
        source, target = np.unravel_index(int(across.argmax()), across.shape)
        size_bytes = float(across[source, target])
        if not size_bytes:
            return None
        return int(members.ranks[source]), self._elsewhere(members, int(source), int(target)), size_bytes

    def _elsewhere(self, members: _Members, source: int, target: int) -> int:
        """A rank that the second member stands for, not on the first one's host."""
        rank = int(members.ranks[target])
        if members.hosts[source] != members.hosts[target]:
            return rank
        others = np.flatnonzero(self._alike.kinds == members.hosts[target])
        return int(others[others != rank // self._alike.gpus][0]) * self._alike.gpus + int(members.gpus[target])

    def _pipeline(self, members: _Members, call: Call) -> Carried:
        """A ring or tree, drawn on a few hosts: each host is loaded as the busiest of them, but for its part in trees.

        All hosts wait for the slowest, so that by itself it takes what the busiest host takes.
        """
        local = members.by_host[0]
        gpus, shape = [int(members.gpus[place]) for place in local], members.shape
        drawn = min(_DRAWN_HOSTS, shape.hosts)
        placed = [list(range(host * len(local), (host + 1) * len(local))) for host in range(drawn)]
        call = replace(call, root=min(call.root, 0))  # the first of those that are drawn, wherever it is
        plan = nccl.pipeline(call, nccl.Placed(placed, gpus * drawn, shape), self._costs)
        carried = Carried(formula_ns=round(plan.predicted_ns) or -1, touched=[0.0] * len(members.ranks))
        for phase in plan.phases:
            carried.latency_ns += phase.latency_ns
            loads = _Drawn.of(phase, gpus)
            parts = self._parts(plan.algorithm, shape.hosts)
            for by_host in members.by_host:
                self._load_host(carried, members, by_host, loads, float(parts[members.hosts[by_host[0]]]))
            self._leafs.pipeline(carried, self._fabric, plan.algorithm, loads.of_host, len(gpus))
            drawn_bytes = {(source, target): size_bytes for source, target, size_bytes in phase.transfers}
            carried.hold(nccl_paths.idle_seconds(drawn_bytes, placed, self._costs, gpus * drawn))
            if shape.hosts > 1:
                far = int(np.flatnonzero(members.hosts != members.hosts[0])[:1].sum())
                carried.largest = int(members.ranks[0]), self._elsewhere(members, 0, far), _largest_across(phase, local)
        return carried

    def _parts(self, algorithm: str, hosts: int) -> Array:
        """What hosts of each kind send to others on average, in what the busiest host does."""
        if algorithm not in _TREES or hosts == 1:
            return np.ones(len(self._alike.hosts))
        degrees = _degrees(hosts)
        return np.asarray(np.bincount(self._alike.kinds, degrees / degrees.max()) / self._alike.counts)

    def _load_host(
        self, carried: Carried, members: _Members, by_host: Sequence[int], loads: _Drawn, part: float
    ) -> None:
        ranks = {int(members.gpus[place]): int(members.ranks[place]) for place in by_host}
        places = {int(members.gpus[place]): place for place in by_host}
        for (source, target, via), load in loads.inside.items():
            path = self._fabric.path(ranks[source], ranks[target], None if via is None else ranks[via])
            carried.add(path.links, *load)
            for gpu in (source, target) if via is None else (source, via, via, target):
                carried.touched[places[gpu]] += load.size_bytes
        for beyond, links in ((loads.leaving, self._fabric.leaving), (loads.arriving, self._fabric.arriving)):
            for gpu, load in beyond.items():
                carried.add(links(ranks[gpu]), part * load.size_bytes, part * load.transfers)
                carried.touched[places[gpu]] += part * load.size_bytes


def _largest_across(phase: nccl.Phase, local: Sequence[int]) -> float:
    """Of transfers between hosts of so many ranks each."""
    across = (size for source, target, size in phase.transfers if source // len(local) != target // len(local))
    return max(across, default=0.0)


def uplink_counts(fabric: Fabric, alike: Alike) -> dict[str, int]:
    """How many uplinks are like each that is played, by its name."""
    return _Leafs.of(fabric, alike).link_counts(fabric)


class _Load(NamedTuple):
    """Of some transfers together."""

    size_bytes: float = 0.0
    transfers: float = 0.0

    def and_one(self, size_bytes: float) -> _Load:
        """With another transfer."""
        return _Load(self.size_bytes + size_bytes, self.transfers + 1)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The most that a pipeline loads on any host: between GPUs (source, target, relay), out of each and into each."""

    inside: dict[tuple[int, int, int | None], _Load]
    leaving: dict[int, _Load]
    arriving: dict[int, _Load]

    @staticmethod
    def of(phase: nccl.Phase, gpus: Sequence[int]) -> _Drawn:
        """`gpus`: of a host, in the order of its group ranks."""
        each: dict[tuple[str, Any], dict[int, _Load]] = {}

        def add(kind: str, place: Any, host: int, size_bytes: float) -> None:
            loads = each.setdefault((kind, place), {})
            loads[host] = loads.get(host, _Load()).and_one(size_bytes)

        for source, target, size_bytes in phase.transfers:
            (here, near), (there, far) = divmod(source, len(gpus)), divmod(target, len(gpus))
            if here == there:
                via = phase.relays.get((source, target))
                relay = None if via is None else gpus[via % len(gpus)]
                add("inside", (gpus[near], gpus[far], relay), here, size_bytes)
            else:
                add("leaving", gpus[near], here, size_bytes)
                add("arriving", gpus[far], there, size_bytes)
        most = {key: max(loads.values()) for key, loads in each.items()}
        return _Drawn(*({place: most[kind, place] for kind, place in most if kind == name} for name in _KINDS))

    @property
    def of_host(self) -> _Load:
        """Out of a whole host; as much comes in."""
        return _Load(*map(sum, zip(*self.leaving.values(), strict=True))) if self.leaving else _Load()


_KINDS = ("inside", "leaving", "arriving")


@dataclass(frozen=True, slots=True)
class _Leafs:
    """Leaf switches by sort, of which each has as many hosts of each kind, `kinds` [sorts, kinds], and is as quick.

    `first` and `counts` are of each sort, `sorts` [leafs] says which is which, `totals` [kinds] how many hosts
    are of each. None where the network has no leafs.
    """

    first: Array
    counts: Array
    kinds: Array
    sorts: Array
    totals: Array
    hosts_per_leaf: int
    gpus: int

    @staticmethod
    def of(fabric: Fabric, alike: Alike) -> _Leafs:
        """All leafs of the cluster."""
        cluster, per_leaf = fabric.cluster, fabric.cluster.network.hosts_per_leaf
        if cluster.network.kind != "leaf_spine" or per_leaf is None:
            none = np.zeros(0, np.int64)
            return _Leafs(none, none, np.zeros((0, len(alike.hosts))), none, none, 1, alike.gpus)
        kinds = alike.per_leaf(per_leaf)
        speeds = np.array([[cluster.leaf_speed(leaf)] for leaf in range(len(kinds))])
        _, first, sorts, counts = np.unique(
            np.hstack([speeds, kinds]), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        of_each = kinds[first].astype(np.float64)
        return _Leafs(first, counts, of_each, sorts.reshape(-1), np.array(alike.counts, float), per_leaf, alike.gpus)

    def link_counts(self, fabric: Fabric) -> dict[str, int]:
        """By the names of uplinks."""
        pairs = zip(self.first.tolist(), self.counts.tolist(), strict=True)
        return {link.name: count for leaf, count in pairs for link in self._uplinks(fabric, leaf)}

    def exchange(self, carried: Carried, fabric: Fabric, hosts: Array, across: Array) -> None:
        """`across` [members, members]: from each rank to each that a member stands for; `hosts`: of members."""
        if not len(self.first):
            return
        of_leaf = self.kinds[:, hosts]
        totals = self.totals[hosts]
        for size_bytes, is_out in ((across, True), (across.T, False)):
            inside = ((of_leaf @ size_bytes) * of_leaf).sum(axis=1)
            passing = of_leaf @ (size_bytes @ totals) - inside
            is_any = (size_bytes > 0).astype(np.float64)
            flows = of_leaf @ (is_any @ totals) - ((of_leaf @ is_any) * of_leaf).sum(axis=1)
            self._add(carried, fabric, passing, flows, is_out)

    def pipeline(self, carried: Carried, fabric: Fabric, algorithm: str, of_host: _Load, local: int) -> None:
        """`of_host`: out of the busiest host, of which `local` ranks take part."""
        if not len(self.first) or not of_host.size_bytes:
            return
        crossing = _crossing(algorithm, fabric.cluster.hosts, self.hosts_per_leaf, local)
        most = np.zeros(len(self.first))
        np.maximum.at(most, self.sorts, crossing)
        for is_out in (True, False):
            self._add(carried, fabric, most * of_host.size_bytes, most * of_host.transfers, is_out)

    def _add(self, carried: Carried, fabric: Fabric, size_bytes: Array, flows: Array, is_out: bool) -> None:
        for leaf, each, count in zip(self.first.tolist(), size_bytes.tolist(), flows.tolist(), strict=True):
            if count >= 0.5:  # what is left of a difference is nothing
                carried.add([self._uplinks(fabric, leaf)[0 if is_out else 1]], each, count)

    def _uplinks(self, fabric: Fabric, leaf: int) -> tuple[Capacity, Capacity]:
        rank = leaf * self.hosts_per_leaf * self.gpus
        return fabric.uplink(rank, "out"), fabric.uplink(rank, "in")


@lru_cache(maxsize=64)
def _crossing(algorithm: str, hosts: int, hosts_per_leaf: int, local: int) -> Array:
    """What leaves each leaf, in what leaves the busiest host; as much enters it."""
    leafs = -(-hosts // hosts_per_leaf)
    sizes = np.minimum(hosts - hosts_per_leaf * np.arange(leafs), hosts_per_leaf)
    if algorithm == "pat":
        return _stepping(local * sizes, hosts * local) / _stepping(np.array([local]), hosts * local)
    if algorithm not in _TREES:  # round a ring the last host of a leaf sends to the first of the next
        return (sizes < hosts).astype(np.float64)
    crossing = np.zeros(leafs)
    for child, parent in _edges(hosts):
        ends = child // hosts_per_leaf, parent // hosts_per_leaf
        is_across = ends[0] != ends[1]
        np.add.at(crossing, np.concatenate([ends[0][is_across], ends[1][is_across]]), 1)
    return np.asarray(crossing / _degrees(hosts).max())


@lru_cache(maxsize=64)
def _degrees(hosts: int) -> Array:
    """How many edges of both trees each host has."""
    degrees = np.zeros(hosts)
    for edges in _edges(hosts):
        np.add.at(degrees, np.concatenate(edges), 1)
    return degrees


def _edges(hosts: int) -> Iterator[tuple[Array, Array]]:
    """Children and their parents, of each tree."""
    for parents in map(np.array, nccl_paths.trees(hosts)):
        child = np.flatnonzero(parents >= 0)
        yield child, parents[child]


def _stepping(sizes: Array, ranks: int) -> Array:
    """What PAT sends out of so many ranks in a row, in shares of the buffer: as `nccl_paths.pat_loads` does it."""
    total, distance = np.zeros(len(sizes)), 1
    while distance < ranks:
        leaving = sizes - np.maximum(0, sizes - distance) - np.maximum(0, distance + sizes - ranks)
        total += min(distance, ranks - distance) / ranks * leaving
        distance *= 2
    return total
