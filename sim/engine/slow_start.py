"""TCP slow start: the time lost while a connection's window grows from its first size, doubling each round trip.

M. Allman et al., TCP Congestion Control, RFC 5681 (slow start); J. Chu et al., Increasing TCP's Initial Window, RFC
6928 (ten segments). After an idle time of a retransmission timeout it begins anew, as Linux does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scenarios.seam.group import Group
from sim.engine.fabric import Fabric
from sim.engine.machine import Machine
from sim.engine.network import Path

# Linux' least retransmission timeout, to which the round trip is added.
_LEAST_TIMEOUT_NS = 200_000_000


class SlowStart:
    """The state of one connection, or of several that share transfers: how far its window has grown.

    Until the window holds the bytes of a round trip, the sender waits for acknowledgements in every round.
    """

    __slots__ = ("_busy_until_ns", "_initial_bytes", "_path", "_round_trip_ns", "_sent_bytes")

    def __init__(self, initial_bytes: float, path: Path) -> None:
        """Start with a window of `initial_bytes`; through an open window, `path` has its rate at that time."""
        self._initial_bytes, self._round_trip_ns, self._path = initial_bytes, 2 * path.latency_ns, path
        self._sent_bytes = 0.0
        self._busy_until_ns = -math.inf

    def lost_ns(self, size_bytes: float, now_ns: int) -> int:
        """Return the extra time in ns of the next `size_bytes`, sent now, over a transfer through an open window."""
        if now_ns > self._busy_until_ns + _LEAST_TIMEOUT_NS + self._round_trip_ns:
            self._sent_bytes = 0.0
        bytes_per_ns = self._path.bytes_per_ns
        before_ns = self._lost_by_ns(self._sent_bytes, bytes_per_ns)
        self._sent_bytes += size_bytes
        lost_ns = self._lost_by_ns(self._sent_bytes, bytes_per_ns) - before_ns
        self._busy_until_ns = now_ns + lost_ns + size_bytes / bytes_per_ns
        return round(lost_ns)

    def _lost_by_ns(self, sent_bytes: float, bytes_per_ns: float) -> float:
        """Return the time lost for the first `sent_bytes`.

        In n round trips after the first window, 2 ** (n + 1) - 1 windows of the first size are sent in all.
        Acknowledgements come one by one, so n need not be whole; slow start is over when the next byte loses no more
        time.
        """
        # Where the derivative of the lost time is 0: from there the window grows faster than the path carries.
        over_bytes = self._round_trip_ns * bytes_per_ns / math.log(2) - self._initial_bytes
        later_bytes = min(sent_bytes, over_bytes) - self._initial_bytes
        if later_bytes <= 0:
            return 0.0
        rounds = math.log2(1 + later_bytes / (2 * self._initial_bytes))
        return max(0.0, rounds * self._round_trip_ns - later_bytes / bytes_per_ns)


def slow_start(fabric: Fabric, source: int, target: int, connections: int = 1) -> SlowStart | None:
    """Create the state of one TCP connection between two hosts, or of several together; None if slow start does not
    apply.
    """
    initial_bytes = fabric.cluster.host.nics.initial_window_bytes
    if initial_bytes is None or fabric.host(source) == fabric.host(target):
        return None
    path = fabric.connection(source, target) if connections == 1 else fabric.network.socket_path(source, target)
    return SlowStart(connections * initial_bytes, path)


class SlowStarts:
    """The congestion windows of each group's connections, one state for each pair of ranks."""

    def __init__(self, machine: Machine, sockets: int, *, over_nvlink: bool = False) -> None:
        """Create windows of `sockets` connections per pair; `over_nvlink`: none between ranks of one NVLink domain."""
        self._machine, self._sockets = machine, sockets
        self._has_any = machine.fabric.cluster.host.nics.initial_window_bytes is not None
        self._place = machine.fabric.network.domain if over_nvlink else machine.fabric.host
        self._states: dict[tuple[str, int, int], SlowStart | None] = {}

    def lost_ns(self, group: Group, transfers: Iterable[tuple[int, int, float]]) -> int:
        """Return the delay in ns of transfers (source, target, bytes) between group ranks that start now: that of the
        largest.
        """
        ranks, place = group.ranks, self._place
        if not self._has_any:
            return 0
        across = [one for one in transfers if place(ranks[one[0]]) != place(ranks[one[1]])]
        if not across:
            return 0
        # One state for all transfers of the call: the largest waits longest, and others grow beside it.
        source, target, size_bytes = max(across, key=lambda one: one[2])
        return self.lost_between_ns(group, ranks[source], ranks[target], size_bytes)

    def lost_between_ns(self, group: Group, source: int, target: int, size_bytes: float) -> int:
        """Return the delay in ns of one transfer between global ranks that starts now."""
        key = group.name, source, target
        if key not in self._states:
            self._states[key] = slow_start(self._machine.fabric, source, target, self._sockets)
        state = self._states[key]
        return 0 if state is None else state.lost_ns(size_bytes, self._machine.clock.now_ns)
