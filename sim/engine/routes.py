"""The links that many transfers cross, as arrays instead of a path each; what lies between two ranks is `cluster`'s.

Between hosts a path is what lies behind its source, then what joins the leafs, then what lies before its target: there
are as many different parts as ranks and leafs, not as pairs. Inside hosts there are few pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.engine.capacity import Capacity
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import loads

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Routes:
    """Transfer t crosses capacities[n] for each n in `crossed[t]`; -1 is none. Something crosses each capacity."""

    capacities: Sequence[Capacity]
    crossed: Array

    def loads(self, sizes: Array) -> Array:
        """Bytes on each capacity, of so many for each transfer."""
        return loads(self.crossed, sizes, len(self.capacities))

    def transfers(self) -> Array:
        """How many cross each capacity."""
        return np.bincount(self.crossed[self.crossed >= 0], minlength=len(self.capacities))


def routes(fabric: Fabric, sources: Array, targets: Array, relays: Array) -> Routes:
    """Of transfers from one global rank to another, over a third of the source's host where `relays` is not negative.

    The same links as `Fabric.path` has.
    """
    found = _Found(fabric)
    is_relayed = relays >= 0
    near = found.ways(sources, np.where(is_relayed, relays, targets))
    far = np.full((len(sources), 0), -1, np.int32)
    if is_relayed.any():
        behind = found.ways(relays[is_relayed], targets[is_relayed])
        far = np.full((len(sources), behind.shape[1]), -1, np.int32)
        far[is_relayed] = behind
    return _used(found.capacities, np.concatenate([near, far], axis=1))


class _Found:
    """Numbers of capacities, in the order in which they are met."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._numbers: dict[Capacity, int] = {}

    @property
    def capacities(self) -> list[Capacity]:
        return list(self._numbers)

    def ways(self, sources: Array, targets: Array) -> Array:
        """[transfers, width]"""
        gpus = self._fabric.cluster.host.gpus
        is_inside = sources // gpus == targets // gpus
        inside = self._inside(sources[is_inside], targets[is_inside])
        across = self._across(sources[~is_inside], targets[~is_inside])
        whole = np.full((len(sources), max(inside.shape[1], across.shape[1])), -1, np.int32)
        whole[is_inside, : inside.shape[1]] = inside
        whole[~is_inside, : across.shape[1]] = across
        return whole

    def _inside(self, sources: Array, targets: Array) -> Array:
        pairs, places = np.unique(np.stack([sources, targets], axis=1), axis=0, return_inverse=True)
        return self._table([self._fabric.path(source, target).links for source, target in pairs.tolist()])[places]

    def _across(self, sources: Array, targets: Array) -> Array:
        fabric = self._fabric
        parts = [self._of_each(sources, fabric.leaving), self._of_each(targets, fabric.arriving)]
        if fabric.cluster.network.kind == "leaf_spine":
            leafs = np.array([fabric.leaf(rank) for rank in range(fabric.cluster.world_size)])
            is_up = leafs[sources] != leafs[targets]
            uplinks = (
                self._of_each(sources, lambda rank: (fabric.uplink(rank, "out"),)),
                self._of_each(targets, lambda rank: (fabric.uplink(rank, "in"),)),
            )
            parts += [np.where(is_up[:, None], one, -1) for one in uplinks]
        return np.concatenate(parts, axis=1)

    def _of_each(self, ranks: Array, links: Callable[[int], tuple[Capacity, ...]]) -> Array:
        some, places = np.unique(ranks, return_inverse=True)
        return self._table([links(rank) for rank in some.tolist()])[places]

    def _table(self, links: Sequence[Sequence[Capacity]]) -> Array:
        """A row each, of numbers."""
        table = np.full((len(links), max(map(len, links), default=0)), -1, np.int32)
        for row, crossed in zip(table, links, strict=True):
            row[: len(crossed)] = [self._numbers.setdefault(link, len(self._numbers)) for link in crossed]
        return table


def _used(capacities: Sequence[Capacity], crossed: Array) -> Routes:
    """As narrow as the longest way, without the capacities that nothing crosses."""
    width = int(np.count_nonzero(crossed >= 0, axis=1).max(initial=0))
    narrow = np.take_along_axis(crossed, np.argsort(crossed < 0, axis=1, kind="stable")[:, :width], axis=1)
    used = np.zeros(len(capacities) + 1, np.bool_)
    used[narrow] = True  # -1 is the last
    used[-1] = False
    numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return Routes(list(compress(capacities, used)), numbers[narrow])
