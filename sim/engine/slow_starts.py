"""TCP slow start of the connections between the ranks of each group, found when first used."""

from __future__ import annotations

from collections.abc import Iterable

from scenarios.seam.group import Group
from sim.engine.machine import Machine
from sim.engine.slow_start import SlowStart


class SlowStarts:
    """The congestion windows of each group's connections, one state for each pair of ranks."""

    def __init__(self, machine: Machine, sockets: int, *, over_nvlink: bool = False) -> None:
        """`sockets` connections for each pair of ranks; `over_nvlink`: none between ranks of one NVLink domain."""
        self._machine, self._sockets = machine, sockets
        self._has_any = machine.fabric.cluster.host.nics.initial_window_bytes is not None
        self._place = machine.fabric.network.domain if over_nvlink else machine.fabric.host
        self._found: dict[tuple[str, int, int], SlowStart | None] = {}

    def lost_ns(self, group: Group, transfers: Iterable[tuple[int, int, float]]) -> int:
        """Delay in ns of transfers (source, target, bytes) between group ranks that start now; the largest decides."""
        ranks, place = group.ranks, self._place
        if not self._has_any:
            return 0
        across = [one for one in transfers if place(ranks[one[0]]) != place(ranks[one[1]])]
        if not across:
            return 0
        source, target, size_bytes = max(across, key=lambda one: one[2])
        return self.lost_between_ns(group, ranks[source], ranks[target], size_bytes)

    def lost_between_ns(self, group: Group, source: int, target: int, size_bytes: float) -> int:
        """Delay in ns of one transfer between global ranks that starts now."""
        key = group.name, source, target
        if key not in self._found:
            self._found[key] = self._machine.fabric.slow_start(source, target, self._sockets)
        slow_start = self._found[key]
        return 0 if slow_start is None else slow_start.lost_ns(size_bytes, self._machine.clock.now_ns)
