"""What a collective loads on links, and its members; what it consists of is left to the other modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.engine.capacity import Capacity
from sim.nccl.tuning import Shape

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Carried:
    """What one collective loads on links, once it has begun after `latency_ns`.

    `flows`: transfers on each link. `touched`: bytes that each member sends, receives or passes on. `largest`: from
    which global rank to which one of another host the largest transfer is, and its bytes; None if there is none.
    `between` [hosts, hosts], of those that are played: what one of the first gives to all others like the second;
    `inside` [hosts]: what goes from GPU to GPU inside each; of nothing they are 0.
    """

    latency_ns: int = 0
    formula_ns: int = -1
    uses: dict[Capacity, float] = field(default_factory=dict)
    flows: dict[Capacity, float] = field(default_factory=dict)
    touched: list[float] = field(default_factory=list)
    largest: tuple[int, int, float] | None = None
    between: Array = field(default_factory=lambda: np.zeros(()))
    inside: Array = field(default_factory=lambda: np.zeros(()))

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
class Members:
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
