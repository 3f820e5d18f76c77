"""The load on the uplinks of leaf switches, with one simulated leaf for each class of leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scenarios.config.faults import LeafPart, Pace
from scenarios.config.host_classes import HostClasses
from sim.engine.capacity import Capacity
from sim.engine.flow_bundle import Array
from sim.engine.network import ClusterNetwork
from sim.nccl.folded.link_load import Carried
from sim.nccl.folded.pipelines import TREES, TransferLoad, degrees_of, edges


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaf switches by class: leaves of a class have equally many hosts of each host class, and equally fast
    uplinks.

    `first` and `counts` [leaf classes]: the first leaf and the number of leaves; `kinds` [leaf classes, host classes]:
    hosts on such a leaf; `sorts` [leaves]: the class of each leaf; `totals` [host classes]: hosts in all. Empty where
    the network has no uplinks.
    """

    network: ClusterNetwork
    first: Array
    counts: Array
    kinds: Array
    sorts: Array
    totals: Array
    hosts_per_leaf: int
    gpus: int

    @staticmethod
    def of(network: ClusterNetwork, classes: HostClasses) -> Leaves:
        """Return all leaves of the cluster; a host here is NCCL's node, an NVLink domain."""
        per_leaf, in_domain = network.between.hosts_per_part, network.hosts_per_domain
        classes = classes.by_domain(in_domain)
        if per_leaf is None:
            none = np.zeros(0, np.int64)
            return Leaves(network, none, none, np.zeros((0, len(classes.representatives))), none, none, 1, classes.gpus)
        per_leaf //= in_domain
        kinds = classes.per_leaf(per_leaf)
        numbers: dict[Pace, int] = {}
        paces = [network.cluster.pace(LeafPart(leaf)) for leaf in range(len(kinds))]
        numbered = np.array([[numbers.setdefault(pace, len(numbers))] for pace in paces])
        _, first, sorts, counts = np.unique(
            np.hstack([numbered, kinds]), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        of_each, totals = kinds[first].astype(np.float64), np.array(classes.counts, float)
        return Leaves(network, first, counts, of_each, sorts.reshape(-1), totals, per_leaf, classes.gpus)

    def link_counts(self) -> dict[str, int]:
        """Return how many uplinks each simulated one represents, by name."""
        pairs = zip(self.first.tolist(), self.counts.tolist(), strict=True)
        return {link.name: count for leaf, count in pairs for way in self._uplinks(leaf) for link in way}

    def exchange(self, carried: Carried, hosts: Array, across: Array) -> None:
        """Load the uplinks; `across` [members, members]: bytes from each rank to each that a member represents."""
        if not len(self.first):
            return
        of_leaf = self.kinds[:, hosts]
        totals = self.totals[hosts]
        for size_bytes, is_out in ((across, True), (across.T, False)):
            inside = ((of_leaf @ size_bytes) * of_leaf).sum(axis=1)
            passing = of_leaf @ (size_bytes @ totals) - inside
            is_any = (size_bytes > 0).astype(np.float64)
            flows = of_leaf @ (is_any @ totals) - ((of_leaf @ is_any) * of_leaf).sum(axis=1)
            self._add(carried, passing, flows, is_out)

    def pipeline(self, carried: Carried, algorithm: str, of_host: TransferLoad, local: int) -> None:
        """Load the uplinks; `of_host` is the load that leaves the busiest host, of which `local` ranks take part."""
        if not len(self.first) or not of_host.size_bytes:
            return
        hosts = self.network.cluster.hosts // self.network.hosts_per_domain
        crossing = _crossing(algorithm, hosts, self.hosts_per_leaf, local)
        # The busiest leaf of a class stands for all of it: the collective waits for the slowest.
        most = np.zeros(len(self.first))
        np.maximum.at(most, self.sorts, crossing)
        for is_out in (True, False):
            self._add(carried, most * of_host.size_bytes, most * of_host.transfers, is_out)

    def _add(self, carried: Carried, size_bytes: Array, flows: Array, is_out: bool) -> None:
        for leaf, each, count in zip(self.first.tolist(), size_bytes.tolist(), flows.tolist(), strict=True):
            if count >= 0.5:  # a smaller count is the rounding error of a difference
                carried.add(self._uplinks(leaf)[0 if is_out else 1], each, count)

    def _uplinks(self, leaf: int) -> tuple[tuple[Capacity, ...], tuple[Capacity, ...]]:
        rank = leaf * self.hosts_per_leaf * self.gpus
        between = self.network.between
        return between.uplinks(rank, "out"), between.uplinks(rank, "in")


@lru_cache(maxsize=64)
def _crossing(algorithm: str, hosts: int, hosts_per_leaf: int, local: int) -> Array:
    """Return the bytes that leave each leaf, over those that leave the busiest host; as many enter it."""
    leaves = -(-hosts // hosts_per_leaf)
    sizes = np.minimum(hosts - hosts_per_leaf * np.arange(leaves), hosts_per_leaf)
    if algorithm == "pat":
        return _stepping(local * sizes, hosts * local) / _stepping(np.array([local]), hosts * local)
    if algorithm not in TREES:  # round a ring the last host of a leaf sends to the first of the next
        return (sizes < hosts).astype(np.float64)
    crossing = np.zeros(leaves)
    for child, parent in edges(hosts):
        ends = child // hosts_per_leaf, parent // hosts_per_leaf
        is_across = ends[0] != ends[1]
        np.add.at(crossing, np.concatenate([ends[0][is_across], ends[1][is_across]]), 1)
    return np.asarray(crossing / degrees_of(hosts).max())


def _stepping(sizes: Array, ranks: int) -> Array:
    """Return the bytes that PAT sends out of blocks of `sizes` consecutive ranks, as shares of the buffer."""
    total, distance = np.zeros(len(sizes)), 1
    while distance < ranks:
        leaving = sizes - np.maximum(0, sizes - distance) - np.maximum(0, distance + sizes - ranks)
        total += min(distance, ranks - distance) / ranks * leaving
        distance *= 2
    return total
