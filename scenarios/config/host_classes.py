"""Which hosts do the same work on the same hardware: one of each kind can be played for all; how is left to `sim`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.config.scenario import Scenario

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Ranks that are played at most, in whole hosts, beside those of hosts that are like no other: some ms each a step.
MOST_RANKS = 256
# Loads that differ by less differ by rounding.
_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Hosts that are played, ascending, and how many each of them stands for, itself among them.

    `kinds` [all hosts]: which of `hosts`, by place, stands for each. `spread`: how far apart loads of one kind are at
    most, of the largest of their sort; 0 where only hosts that are alike count as such.
    """

    hosts: tuple[int, ...]
    counts: tuple[int, ...]
    gpus: int
    kinds: Ints
    spread: float

    @staticmethod
    def of(loads: Floats, gpus: int, apart: Iterable[int] = ()) -> Alike:
        """`loads` [hosts, numbers], none negative; hosts `apart` are like no other.

        While there are more kinds than may be played, hosts that are near each other are of one kind.
        """
        rows = _rounded(loads)
        numbers: dict[tuple[bytes, int], int] = {}
        alone = set(apart)
        keys = ((row.tobytes(), host if host in alone else -1) for host, row in enumerate(rows))
        kinds = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
        most, spread = max(1, MOST_RANKS // gpus), 0.0
        own = np.array([place for _, place in numbers]) >= 0
        if len(numbers) - own.sum() > most:
            firsts = np.unique(kinds, return_index=True)[1]
            sets, spread = _near(rows[firsts], own, most)
            kinds = sets[kinds]
        return Alike._played(rows, kinds, gpus, spread)

    @staticmethod
    def _played(rows: Floats, kinds: Ints, gpus: int, spread: float) -> Alike:
        """Of each kind the host that is nearest to the mean; of equals the first."""
        count = int(kinds.max()) + 1
        means = np.zeros((count, rows.shape[1]))
        np.add.at(means, kinds, rows)
        means /= np.bincount(kinds, minlength=count)[:, None]
        distance = (np.abs(rows - means[kinds]) / _largest(rows)).sum(axis=1)
        order = np.lexsort((np.arange(len(rows)), distance, kinds))
        nearest = order[np.searchsorted(kinds[order], np.arange(count))]
        ascending = np.argsort(nearest)
        places = np.argsort(ascending)
        return Alike(
            hosts=tuple(nearest[ascending].tolist()),
            counts=tuple(np.bincount(kinds, minlength=count)[ascending].tolist()),
            gpus=gpus,
            kinds=places[kinds],
            spread=spread,
        )

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that are played."""
        return tuple(rank for host in self.hosts for rank in range(host * self.gpus, (host + 1) * self.gpus))

    @property
    def rank_counts(self) -> tuple[int, ...]:
        """How many ranks each of them stands for."""
        return tuple(count for count in self.counts for _ in range(self.gpus))

    @property
    def is_exact(self) -> bool:
        """Whether hosts of one kind are alike."""
        return self.spread == 0

    def most(self, values: Floats) -> tuple[int, ...]:
        """For each rank that is played, the one that has most of those that it stands for; `values` [all ranks]."""
        by_host = values.reshape(len(self.kinds), self.gpus)
        found = np.zeros((len(self.hosts), self.gpus), np.int64)
        for gpu in range(self.gpus):
            order = np.lexsort((-by_host[:, gpu], self.kinds))
            hosts = order[np.searchsorted(self.kinds[order], np.arange(len(self.hosts)))]
            found[:, gpu] = hosts * self.gpus + gpu
        return tuple(found.ravel().tolist())

    def per_leaf(self, hosts_per_leaf: int) -> Ints:
        """How many hosts of each kind each leaf switch has, [leafs, kinds]."""
        leafs = np.arange(len(self.kinds)) // hosts_per_leaf
        counts = np.zeros((int(leafs[-1]) + 1, len(self.hosts)), np.int64)
        np.add.at(counts, (leafs, self.kinds), 1)
        return counts


def all_alike(scenario: Scenario) -> Alike | None:
    """Where every rank does the same: one host for all that are no slower than others; None where each is played."""
    cluster = scenario.cluster
    if scenario.ranks == "each":
        return None
    return Alike.of(np.zeros((cluster.hosts, 1)), cluster.host.gpus, cluster.slow_hosts)


def played(scenario: Scenario, alike: Alike | None) -> Iterable[tuple[int, int]]:
    """The ranks that are, and how many each stands for."""
    if alike is None:
        return ((rank, 1) for rank in range(scenario.cluster.world_size))
    return zip(alike.ranks, alike.rank_counts, strict=True)


def _rounded(loads: Floats) -> Floats:
    scale = _largest(loads)
    return np.asarray(np.round(loads / scale, _DIGITS) * scale)


def _largest(loads: Floats) -> Floats:
    """Of each sort; 1 where all are 0."""
    largest = loads.max(axis=0, initial=0.0)
    return np.asarray(np.where(largest > 0, largest, 1.0))


def _near(rows: Floats, own: npt.NDArray[np.bool_], most: int) -> tuple[Ints, float]:
    """Which of at most `most` sets each row is in, those in `own` by themselves, and how wide the widest is.

    The widest set is cut in the middle of its widest column until there are enough: so what stands out is by itself.
    """
    scaled = rows / _largest(rows)
    sets = [np.flatnonzero(~own)]
    widths = [np.ptp(scaled[sets[0]], axis=0)]
    while len(sets) < most:
        widest = max(range(len(sets)), key=lambda place: widths[place].max())
        members, column = sets[widest], int(widths[widest].argmax())
        values = scaled[members, column]
        is_low = values <= (values.min() + values.max()) / 2
        parts = [members[is_low], members[~is_low]]
        sets[widest : widest + 1] = parts
        widths[widest : widest + 1] = [np.ptp(scaled[part], axis=0) for part in parts]
    numbers = np.empty(len(rows), np.int64)
    for number, members in enumerate(sets):
        numbers[members] = number
    numbers[own] = np.arange(len(sets), len(sets) + int(own.sum()))
    return numbers, float(max(width.max() for width in widths))
