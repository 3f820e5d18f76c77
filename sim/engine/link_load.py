"""A collective as one activity: the bytes that it puts on every link, and its weight in the links' fair shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sim.engine.capacity import Capacity
from sim.engine.flow_bundle import Array
from sim.engine.network import Path, Routes


@dataclass(slots=True)
class Load:
    """Bytes (`uses`) and transfers (`flows`) on every link; `latency_ns` passes before it begins."""

    uses: dict[Capacity, float] = field(default_factory=dict)
    flows: dict[Capacity, float] = field(default_factory=dict)
    latency_ns: int = 0

    @property
    def weight(self) -> float:
        """Flows per byte on the bottleneck link.

        With it the aggregate's share of the bottleneck link equals the sum of its flows' fair shares.
        """
        if not self.flows:
            return 1.0
        busiest = max(self.flows, key=lambda link: self.uses[link] / link.per_s)
        return self.flows[busiest] / max(self.uses[busiest], 1.0)


def load(ranks: tuple[int, ...], pair_bytes: Iterable[tuple[int, int, float]], way: Callable[[int, int], Path]) -> Load:
    """Sum transfers (source, target, bytes) between group ranks; `way` is the path from one global rank to another.

    The latency is that of the longest path.
    """
    summed = Load()
    uses, flows = summed.uses, summed.flows
    for source, target, size_bytes in pair_bytes:
        path = way(ranks[source], ranks[target])
        summed.latency_ns = max(summed.latency_ns, path.latency_ns)
        for link in path.links:
            uses[link] = uses.get(link, 0.0) + size_bytes
            flows[link] = flows.get(link, 0) + 1
    return summed


def load_of_routes(routes: Routes, sizes: Array) -> Load:
    """Sum transfers that stand in arrays, of `sizes` [transfers] bytes; without their latency."""
    uses = dict(zip(routes.capacities, routes.loads(sizes).tolist(), strict=True))
    return Load(uses, dict(zip(routes.capacities, routes.transfers().tolist(), strict=True)))
