"""Counts bytes from host to host over a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from scenarios.seam.trace import TrafficRow

Array = npt.NDArray[Any]


class Traffic:
    """The bytes from each host to each other host; only pairs in use take memory."""

    def __init__(self, gpus: int, hosts: Sequence[int] = ()) -> None:
        """Create counters; `gpus` is the number per host, `hosts` the simulated hosts if not all are."""
        self._gpus, self._hosts = gpus, hosts
        self._moved: dict[tuple[int, int], float] = {}
        self._between, self._inside = np.zeros((len(hosts), len(hosts))), np.zeros(len(hosts))

    def add(self, source: int, target: int, size_bytes: float) -> None:
        """Count one transfer from one global rank to another."""
        hosts = source // self._gpus, target // self._gpus
        self._moved[hosts] = self._moved.get(hosts, 0.0) + size_bytes

    def add_all(self, ranks: Sequence[int], transfers: Iterable[tuple[int, int, float]]) -> None:
        """Count transfers (source, target, bytes) between members of a group; `ranks` are the members' global ranks."""
        hosts, moved = [rank // self._gpus for rank in ranks], self._moved
        for source, target, size_bytes in transfers:
            pair = hosts[source], hosts[target]
            moved[pair] = moved.get(pair, 0.0) + size_bytes

    def add_many(self, ranks: Sequence[int], sources: Array, targets: Array, sizes: Array) -> None:
        """Count transfers as `add_all` does, from arrays [transfers]."""
        hosts, places = np.unique(np.array(ranks) // self._gpus, return_inverse=True)
        count = len(hosts)
        sums = np.bincount(places[sources] * count + places[targets], sizes, count * count)
        used = np.flatnonzero(sums)
        pairs = zip(hosts[used // count].tolist(), hosts[used % count].tolist(), strict=True)
        for pair, size_bytes in zip(pairs, sums[used].tolist(), strict=True):
            self._moved[pair] = self._moved.get(pair, 0.0) + size_bytes

    def add_folded(self, between: Array, inside: Array) -> None:
        """Add what each simulated host sends: [hosts, hosts] bytes to all other hosts of each class, [hosts] bytes
        inside.
        """
        self._between += between
        self._inside += inside

    def rows(self) -> list[TrafficRow]:
        """Return the bytes sent so far, by pair of hosts."""
        between = {pair: size_bytes for pair, size_bytes in self._moved.items() if pair[0] != pair[1]}
        inside = {host: size_bytes for (host, other), size_bytes in self._moved.items() if host == other}
        for here, there in np.argwhere(self._between).tolist():
            pair = self._hosts[here], self._hosts[there]
            between[pair] = between.get(pair, 0.0) + float(self._between[here, there])
        for here in np.flatnonzero(self._inside).tolist():
            host = self._hosts[here]
            inside[host] = inside.get(host, 0.0) + float(self._inside[here])
        return [
            TrafficRow(
                from_host=here,
                to_host=there,
                bytes_carried=between.get((here, there), 0.0),
                bytes_inside=inside.get(here, 0.0) if here == there else 0.0,
            )
            for here, there in sorted({*between, *((host, host) for host in inside)})
        ]
