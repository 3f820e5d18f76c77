"""A network's links as capacities, created when first crossed, and their rows in a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scenarios.config.faults import NOMINAL, Pace
from scenarios.seam.trace import LinkRow, LoadRow
from sim.engine.capacity import Capacity, Loads


@dataclass(frozen=True, slots=True)
class Path:
    """The links from one GPU to another, in order, and the latency of the first byte in ns."""

    links: tuple[Capacity, ...]
    latency_ns: int

    @property
    def bytes_per_ns(self) -> float:
        """Rate of the narrowest link, in bytes/ns; infinite from a GPU to itself."""
        return min((link.per_ns for link in self.links), default=float("inf"))

    def then(self, onward: Path) -> Path:
        """Return this path followed by another."""
        return Path((*self.links, *onward.links), self.latency_ns + onward.latency_ns)


@dataclass(frozen=True, slots=True)
class _ShownLink:
    """A link's capacity, with its class, direction and host for a report's table of links."""

    capacity: Capacity
    link_class: str
    direction: str
    host: int


class Links:
    """The links of a cluster by name, one capacity for each."""

    def __init__(self) -> None:
        self._links: dict[str, _ShownLink] = {}
        self._loads = Loads()

    def link(
        self,
        owner: str,
        direction: str,
        *,
        link_class: str,
        host: int,
        per_s: float,
        has_queue: bool = False,
        burst: float = 0.0,
        pace: Pace = NOMINAL,
    ) -> Capacity:
        """Return the link `owner`.`direction`.

        Args:
            owner: what the link belongs to.
            direction: its direction.
            link_class: its class, in reports.
            host: its host, in reports.
            per_s: bytes/s at nominal speed.
            has_queue: as for `Capacity`.
            burst: as for `Capacity`.
            pace: as for `Capacity`.
        """
        name = f"{owner}.{direction}"
        if name not in self._links:
            capacity = Capacity(name, per_s, has_queue=has_queue, burst=burst, pace=pace)
            capacity.loads = self._loads.of_link()
            self._links[name] = _ShownLink(capacity, link_class, direction, host)
        return self._links[name].capacity

    def rows(self, hosts: Collection[int], until_ns: int) -> list[LinkRow]:
        """Return the usage until now, `until_ns`, of every link of these hosts, and of every uplink."""
        return [
            LinkRow(
                link=link.capacity.name,
                link_class=link.link_class,
                direction=link.direction,
                host=link.host,
                bytes_carried=link.capacity.used,
                busy_ns=round(link.capacity.busy_ns),
                bytes_per_s=link.capacity.whole_per_s * link.capacity.pace.mean(until_ns),
            )
            for link in self._links.values()
            if link.host in hosts or link.link_class == "uplink"
        ]

    def loads(self, counts: Mapping[str, int], now_ns: int) -> list[LoadRow]:
        """Return the busy periods of links until `now_ns`, the end of the run; `counts`: multiplicity of links, by
        name.
        """
        rows = []
        for name, count in counts.items():
            link = self._links[name]
            link.capacity.end_period(now_ns)
            periods = link.capacity.loads.periods if link.capacity.loads is not None else []
            rows += [LoadRow(name, link.direction, *period, count) for period in periods]
        return rows
