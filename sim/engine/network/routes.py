"""The links that many transfers cross, as arrays instead of a path for each.

Between hosts a path consists of the links behind its source, those between the parts of the network, and those before
its target: there are as many different pieces as ranks and parts, not as pairs. Inside domains there are few pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.engine.capacity import Capacity
from sim.engine.flow_bundle import loads
from sim.engine.network.network import ClusterNetwork

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Routes:
    """The links of transfers: transfer t crosses capacities[n] for each n in `crossed[t]`; -1 is none.

    Each capacity is crossed by at least one transfer.
    """

    capacities: Sequence[Capacity]
    crossed: Array

    def loads(self, sizes: Array) -> Array:
        """Return the bytes on each capacity, [capacities]; `sizes` [transfers]."""
        return loads(self.crossed, sizes, len(self.capacities))

    def transfers(self) -> Array:
        """Return the number of transfers that cross each capacity, [capacities]."""
        return np.bincount(self.crossed[self.crossed >= 0], minlength=len(self.capacities))


def routes(network: ClusterNetwork, sources: Array, targets: Array, relays: Array) -> Routes:
    """Return the links that many transfers cross, as `ClusterNetwork.path` finds them for one.

    Args:
        network: the network.
        sources: [transfers] global ranks.
        targets: [transfers] global ranks.
        relays: [transfers] the GPU of the source's NVLink domain that forwards the transfer; negative: none.
    """
    finder = _LinksFound(network)
    is_relayed = relays >= 0
    near = finder.paths(sources, np.where(is_relayed, relays, targets))
    far = np.full((len(sources), 0), -1, np.int32)
    if is_relayed.any():
        behind = finder.paths(relays[is_relayed], targets[is_relayed])
        far = np.full((len(sources), behind.shape[1]), -1, np.int32)
        far[is_relayed] = behind
    return _without_idle(list(finder.numbers), np.concatenate([near, far], axis=1))


class Numbers(dict[Capacity, int]):
    """Numbers of capacities, in the order in which they are first seen."""

    def table(self, links: Sequence[Sequence[Capacity]]) -> Array:
        """Return the numbers [routes, longest] of the capacities in `links`, padded with -1; new ones are numbered."""
        table = np.full((len(links), max(map(len, links), default=0)), -1, np.int32)
        for row, crossed in zip(table, links, strict=True):
            row[: len(crossed)] = [self.setdefault(link, len(self)) for link in crossed]
        return table


class _LinksFound:
    """A finder of the links of paths, as numbers."""

    def __init__(self, network: ClusterNetwork) -> None:
        self._network = network
        self.numbers = Numbers()

    def paths(self, sources: Array, targets: Array) -> Array:
        """Return the numbers of the links of each path, [transfers, width]; -1 is none."""
        gpus = self._network.gpus_per_domain
        is_inside = sources // gpus == targets // gpus
        pairs, places = np.unique(np.stack([sources, targets], axis=1)[is_inside], axis=0, return_inverse=True)
        paths = [self._network.path(source, target).links for source, target in pairs.tolist()]
        inside = self.numbers.table(paths)[places]
        across = self._across(sources[~is_inside], targets[~is_inside])
        whole = np.full((len(sources), max(inside.shape[1], across.shape[1])), -1, np.int32)
        whole[is_inside, : inside.shape[1]] = inside
        whole[~is_inside, : across.shape[1]] = across
        return whole

    def _across(self, sources: Array, targets: Array) -> Array:
        network = self._network
        between, gpus = network.between, network.cluster.host.gpus
        exits, towards = sources, np.zeros_like(sources)
        if between.by_rail:
            towards = targets % gpus
            # As `ClusterNetwork._exit`: without a spine, bytes leave by the NIC of the target's number.
            exits = sources - sources % gpus + towards
        parts = [
            self._of_each(sources * gpus + towards, lambda key: network.leaving(*divmod(key, gpus))),
            self._of_each(targets, network.arriving),
        ]
        part_of = np.array([between.part(rank) for rank in range(network.cluster.world_size)])
        is_up = part_of[exits] != part_of[targets]
        if is_up.any():
            uplinks = (
                self._of_each(sources, lambda rank: between.uplinks(rank, "out")),
                self._of_each(targets, lambda rank: between.uplinks(rank, "in")),
            )
            parts += [np.where(is_up[:, None], one, -1) for one in uplinks]
        return np.concatenate(parts, axis=1)

    def _of_each(self, keys: Array, links: Callable[[int], tuple[Capacity, ...]]) -> Array:
        some, places = np.unique(keys, return_inverse=True)
        return self.numbers.table([links(key) for key in some.tolist()])[places]


def _without_idle(capacities: Sequence[Capacity], crossed: Array) -> Routes:
    """Return routes as narrow as the longest path, without the capacities that nothing crosses."""
    width = int(np.count_nonzero(crossed >= 0, axis=1).max(initial=0))
    # Stable, so that links stay in the order of the path, as `ClusterNetwork.path` gives them.
    narrow = np.take_along_axis(crossed, np.argsort(crossed < 0, axis=1, kind="stable")[:, :width], axis=1)
    used = np.zeros(len(capacities) + 1, np.bool_)
    used[narrow] = True  # -1 sets the extra last entry
    used[-1] = False
    numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return Routes(list(compress(capacities, used)), numbers[narrow])
