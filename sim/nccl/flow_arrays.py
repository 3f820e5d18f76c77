"""Many transfers of a phase as arrays: what they load on links and on ranks; what is sent is left to `collectives`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.engine.fabric import Fabric
from sim.engine.network import Routes
from sim.nccl.plan import Phase

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Many:
    """A phase's transfers: group ranks [transfers] (a relay of -1 is none), bytes, and the links that each crosses."""

    sources: Array
    targets: Array
    relays: Array
    sizes: Array
    routes: Routes

    @staticmethod
    def of(fabric: Fabric, ranks: Sequence[int], phase: Phase) -> Many:
        """`ranks`: the global ranks of the group."""
        count = len(phase.transfers)
        sources, targets, sizes = (
            np.fromiter((transfer[column] for transfer in phase.transfers), dtype, count)
            for column, dtype in ((0, np.int32), (1, np.int32), (2, np.float64))
        )
        relays = np.full(count, -1, np.int32)
        if phase.relays:
            via = phase.relays.get
            relays = np.fromiter((via((source, target), -1) for source, target, _ in phase.transfers), np.int32, count)
        world = np.array([*ranks, -1], np.int32)  # a relay of -1 takes the last
        found = fabric.network.routes(world[sources], world[targets], world[relays])
        return Many(sources, targets, relays, sizes, found)

    def touched(self, members: int) -> Array:
        """Bytes that each of so many members sends, receives or passes on; what it passes on counts twice."""
        touched = np.zeros(members)
        for touching, times in ((self.sources, 1), (self.targets, 1), (self.relays, 2)):
            is_one = touching >= 0
            touched += times * np.bincount(touching[is_one], self.sizes[is_one], members)
        return touched

    def of_members(self, members: int, rows: Array | None = None) -> Array:
        """How many of the transfers, or of these rows, each of so many members sends or receives."""
        of = slice(None) if rows is None else rows
        return np.bincount(self.sources[of], minlength=members) + np.bincount(self.targets[of], minlength=members)
