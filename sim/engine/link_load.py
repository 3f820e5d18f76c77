"""A collective as one activity: its bytes on every link, and its weight in the links' fair shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sim.engine.capacity import Capacity
from sim.engine.flow_bundle import Array
from sim.engine.network import Path, Routes


@dataclass(slots=True)
class Load:
    """The bytes (`uses`) and the number of transfers (`flows`) on every link; `latency_ns` passes before the load
    begins.
    """

    uses: dict[Capacity, float] = field(default_factory=dict)
    flows: dict[Capacity, float] = field(default_factory=dict)
    latency_ns: int = 0

    @property
    def weight(self) -> float:
        """Flows per byte on the bottleneck link.

        With this weight the aggregate's share of the bottleneck link equals the sum of its flows' fair shares.
        """
        if not self.flows:
            return 1.0
        busiest = max(self.flows, key=lambda link: self.uses[link] / link.per_s)
        return self.flows[busiest] / max(self.uses[busiest], 1.0)


def load(
    ranks: tuple[int, ...], pair_bytes: Iterable[tuple[int, int, float]], path_of: Callable[[int, int], Path]
) -> Load:
    """Sum transfers (source, target, bytes) between group ranks; the latency is that of the longest path.

    Args:
        ranks: global ranks of the group.
        pair_bytes: transfers between group ranks.
        path_of: returns the path from one global rank to another.
    """
    summed = Load()
    uses, flows = summed.uses, summed.flows
    for source, target, size_bytes in pair_bytes:
        path = path_of(ranks[source], ranks[target])
        summed.latency_ns = max(summed.latency_ns, path.latency_ns)
        for link in path.links:
            uses[link] = uses.get(link, 0.0) + size_bytes
            flows[link] = flows.get(link, 0) + 1
    return summed


def load_of_routes(routes: Routes, sizes: Array) -> Load:
    """Sum transfers in arrays, of `sizes` [transfers] bytes; the latency stays 0."""
    uses = dict(zip(routes.capacities, routes.loads(sizes).tolist(), strict=True))
    return Load(uses, dict(zip(routes.capacities, routes.transfers().tolist(), strict=True)))
