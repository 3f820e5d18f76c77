"""The load of one collective of a folded cluster on links, and the simulated ranks that take part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.engine.capacity import Capacity
from sim.engine.flow_bundle import Array
from sim.engine.link_load import Load
from sim.nccl.costs import GroupShape


@dataclass(slots=True)
class Carried(Load):
    """The load of one collective on links, which begins after `latency_ns`.

    `touched`: bytes that each member sends, receives or forwards. `largest`: source and target (global ranks, on
    different hosts) of the largest transfer, and its bytes; None if there is none. `between` [hosts, hosts], of
    simulated hosts: bytes that one host of the first class sends to all others of the second; `inside` [hosts]: bytes
    between GPUs inside.
    """

    formula_ns: int = -1
    touched: list[float] = field(default_factory=list)
    largest: tuple[int, int, float] | None = None
    between: Array = field(default_factory=lambda: np.zeros(()))
    inside: Array = field(default_factory=lambda: np.zeros(()))
    own: Capacity | None = None

    def add(self, links: Sequence[Capacity], size_bytes: float, flows: float) -> None:
        """Add `flows` transfers of `size_bytes` together to each of these links."""
        for link in links:
            self.uses[link] = self.uses.get(link, 0.0) + size_bytes
            self.flows[link] = self.flows.get(link, 0.0) + flows

    def hold(self, alone_s: float) -> float:
        """Make the transfers take at least `alone_s` on idle links, as they may not fill their bottleneck link.

        If they are held already, return the speed of `own` with which those under way take so long, too; else 1.
        """
        links_s = max(used / link.per_s for link, used in self.uses.items() if link is not self.own)
        if self.own is not None:
            return self.uses[self.own] / max(alone_s, links_s)
        # A capacity of the collective's own, full for this time: other collectives are not slowed by it.
        if alone_s > links_s:
            self.own = Capacity("exchange", 1.0)
            self.uses[self.own] = alone_s
        return 1.0


@dataclass(frozen=True, slots=True)
class Members:
    """A group's members: global ranks, hosts (places among the simulated), GPU numbers, and the ranks that each
    represents.

    `by_host`: the members of each simulated host; `shape` is that of the whole group.
    """

    ranks: Array
    hosts: Array
    gpus: Array
    counts: Array
    by_host: Sequence[Sequence[int]]
    shape: GroupShape

    @property
    def is_one_host(self) -> Array:
        """True for pairs that share a host, [members, members]."""
        return np.equal.outer(self.hosts, self.hosts)

    def of_host(self, member: int) -> list[int]:
        """Return the members on this member's host."""
        return np.flatnonzero(self.hosts == self.hosts[member]).tolist()
