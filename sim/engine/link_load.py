"""A collective as one activity: the bytes that it puts on every link, and its weight in the links' fair shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sim.engine.capacity import Capacity
from sim.engine.flow_bundle import Array
from sim.engine.network import Path, Routes


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes on every link, the weight (flows per byte on the bottleneck link), and the longest path latency in ns.

    The weight makes the aggregate's share of the bottleneck link equal to the sum of its flows' fair shares.
    """

    uses: Mapping[Capacity, float]
    weight: float
    latency_ns: int


def load(ranks: tuple[int, ...], pair_bytes: Iterable[tuple[int, int, float]], way: Callable[[int, int], Path]) -> Load:
    """Sum transfers (source, target, bytes) between group ranks; `way` is the path from one global rank to another."""
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


def load_of_routes(routes: Routes, sizes: Array) -> Load:
    """Sum transfers that stand in arrays, of `sizes` [transfers] bytes; without their latency."""
    capacities, loads, flows = routes.capacities, routes.loads(sizes), routes.transfers()
    busiest = max(range(len(capacities)), key=lambda place: loads[place] / capacities[place].per_s)
    return Load(
        dict(zip(capacities, loads.tolist(), strict=True)), float(flows[busiest]) / max(float(loads[busiest]), 1.0), 0
    )
