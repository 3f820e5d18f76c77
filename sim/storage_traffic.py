"""Transfers of checkpoints during a simulated run: a flow from each host to a store, or to another host.

This module has the links and the rates of these flows, which share links with the run's messages. The bytes to write
are those of `twinstep.jobs.checkpoint`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.engine.capacity import Capacity
from sim.nccl.folded import Leaves
from sim.rank.world import World

# Pieces that a host sends during a step without messages: rates are means over whole pieces.
_PIECES = 32
# Simulated time, over that of the steps alone, after which flows end even if the run does not.
_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageWrites:
    """The targets and rates of hosts that write.

    Attributes:
        host_bytes_per_s: maximal rate of one host.
        store_bytes_per_s: rate of all hosts together to a store; None: each host writes to another host.
        by_first: whether only the first host writes.
        step_s: time of a step without writes.
    """

    host_bytes_per_s: float
    store_bytes_per_s: float | None
    by_first: bool
    step_s: float


class StorageTraffic:
    """The flows of hosts that write all the time, from the run's start until `end`.

    A host's flow is spread evenly over its NICs, and counts as one flow on each. A representative's flow loads the
    store and uplinks as all hosts of its class together. A store lies behind the uplinks; another host does not.
    """

    def __init__(self, world: World, writes: StorageWrites) -> None:
        self._machine, self._classes, self._writes = world.machine, world.classes, writes
        cluster = world.scenario.cluster
        self._nics = min(cluster.host.gpus, cluster.host.nics.count)
        simulated = cluster.hosts if world.classes is None else len(world.classes.representatives)
        every = range(1 if writes.by_first else simulated)
        store_per_s = writes.store_bytes_per_s
        self._store = None if store_per_s is None else Capacity("store", store_per_s)
        fair_per_s = (store_per_s or math.inf) / (1 if writes.by_first else cluster.hosts)
        alone_per_s = min(cluster.host_nics_bytes_per_s, writes.host_bytes_per_s, fair_per_s)
        self._piece_bytes = alone_per_s * writes.step_s / _PIECES
        self._last_ns = _LONGEST * writes.step_s * world.scenario.run.steps * 1e9
        self._is_over = False
        self._ended_ns: list[list[int]] = [[] for _ in every]
        for place in every:
            self._send(place, self._uses(place))

    def end(self) -> None:
        """End each flow after its current piece."""
        self._is_over = True

    def host_bytes_per_s(self, begin_ns: int, end_ns: int) -> float:
        """Return the mean rate of the slowest host between two times."""
        return min(self._rate(ended, begin_ns, end_ns) for ended in self._ended_ns)

    def _rate(self, ended: Sequence[int], begin_ns: int, end_ns: int) -> float:
        first, last = bisect_left(ended, begin_ns), bisect_right(ended, end_ns) - 1
        if last > first:  # between ends of pieces, so that no part of a piece counts
            return (last - first) * self._piece_bytes / (ended[last] - ended[first]) * 1e9
        return self._piece_bytes / (end_ns - begin_ns) * 1e9

    def _send(self, place: int, uses: Mapping[Capacity, float]) -> None:
        """Send one piece after another."""
        if self._is_over or self._machine.clock.now_ns > self._last_ns:
            return

        def end() -> None:
            self._ended_ns[place].append(self._machine.clock.now_ns)
            self._send(place, uses)

        self._machine.begin(uses, self._piece_bytes, weight=self._nics).then(end)

    def _uses(self, place: int) -> dict[Capacity, float]:
        """Return what a byte of a simulated host takes of each link, of the host's rate, and of the store."""
        network, classes = self._machine.fabric.network, self._classes
        host = place if classes is None else classes.representatives[place]
        first = host * network.cluster.host.gpus
        directions = ("out", "in") if self._store is None else ("out",)
        uses = {
            network.nic(first + nic, direction): 1 / self._nics for nic in range(self._nics) for direction in directions
        }
        if self._writes.host_bytes_per_s < math.inf:
            uses[Capacity(f"host{host}.storage", self._writes.host_bytes_per_s)] = 1.0
        if self._store is not None:
            uses[self._store] = 1.0 if classes is None or self._writes.by_first else float(classes.counts[place])
            uses |= self._uplinks(place, first)
        return uses

    def _uplinks(self, place: int, first: int) -> dict[Capacity, float]:
        """Return what a byte takes of uplinks: those of its leaf, or of each simulated leaf for the hosts behind it."""
        network, classes = self._machine.fabric.network, self._classes
        per_leaf = network.between.hosts_per_part
        if classes is None or per_leaf is None or self._writes.by_first:
            return dict.fromkeys(network.between.uplinks(first, "out"), 1.0)
        leaves, found = Leaves.of(network, classes), dict[Capacity, float]()
        behind = leaves.kinds[:, place // network.hosts_per_domain]
        for leaf, hosts in zip(leaves.first.tolist(), behind.tolist(), strict=True):
            (uplinks,) = network.between.uplinks(leaf * per_leaf * network.cluster.host.gpus, "out")
            found[uplinks] = hosts
        return found
