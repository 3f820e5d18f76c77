"""Host classes: sets of hosts with the same work on the same hardware, each simulated by one representative."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.config.scenario import Scenario

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Limit of simulated ranks, in whole hosts, without hosts in a class of their own: each rank costs some ms per step.
MOST_RANKS = 256
# Digits that count: smaller differences between loads are rounding errors.
_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)
class HostClasses:
    """A partition of the cluster's hosts into classes, each simulated by one representative.

    Attributes:
        representatives: one host of each class, ascending.
        counts: hosts in each class, the representative among them.
        gpus: GPUs of each host.
        class_of_host: [all hosts] index of each host's class.
        spread: the largest difference of a load within a class, over that load's maximum; 0: classes are exact.
    """

    representatives: tuple[int, ...]
    counts: tuple[int, ...]
    gpus: int
    class_of_host: Ints
    spread: float

    @staticmethod
    def of(loads: Floats, gpus: int, apart: Iterable[int] = (), hosts_per_domain: int = 1) -> HostClasses:
        """Partition hosts by their expected loads; hosts `apart` get a class each.

        Hosts of equal `loads` [hosts, numbers], none negative, share a class. Where that makes more classes than may
        be simulated, hosts of similar loads share one, too. Where NVLinks join several hosts, whole domains are
        partitioned, and each host of a domain is in a class with those of the same place in equal domains.
        """
        if hosts_per_domain > 1:
            apart_domains = {host // hosts_per_domain for host in apart}
            by_domain = loads.reshape(len(loads) // hosts_per_domain, -1)
            return HostClasses.of(by_domain, gpus * hosts_per_domain, apart_domains)._by_host(hosts_per_domain)
        rows = _round(loads)
        numbers: dict[tuple[bytes, int], int] = {}  # of classes, by load
        alone = set(apart)
        keys = ((row.tobytes(), host if host in alone else -1) for host, row in enumerate(rows))
        classes = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
        most, spread = max(1, MOST_RANKS // gpus), 0.0
        own = np.array([place for _, place in numbers]) >= 0
        if len(numbers) - own.sum() > most:
            firsts = np.unique(classes, return_index=True)[1]
            sets, spread = _near(rows[firsts], own, most)
            classes = sets[classes]
        return HostClasses._with_representatives(rows, classes, gpus, spread)

    @staticmethod
    def _with_representatives(rows: Floats, classes: Ints, gpus: int, spread: float) -> HostClasses:
        """Represent each class by the host nearest to the class's mean; the first of equals."""
        count = int(classes.max()) + 1
        means = np.zeros((count, rows.shape[1]))
        np.add.at(means, classes, rows)
        means /= np.bincount(classes, minlength=count)[:, None]
        distance = (np.abs(rows - means[classes]) / _largest(rows)).sum(axis=1)
        # Sorted by class, then distance, then number: the first host of each class represents it.
        order = np.lexsort((np.arange(len(rows)), distance, classes))
        nearest = order[np.searchsorted(classes[order], np.arange(count))]
        ascending = np.argsort(nearest)
        places = np.argsort(ascending)
        return HostClasses(
            representatives=tuple(nearest[ascending].tolist()),
            counts=tuple(np.bincount(classes, minlength=count)[ascending].tolist()),
            gpus=gpus,
            class_of_host=places[classes],
            spread=spread,
        )

    def _by_host(self, hosts_per_domain: int) -> HostClasses:
        """Return the classes of hosts that follow from these classes of domains."""
        places = range(hosts_per_domain)
        return HostClasses(
            representatives=tuple(
                domain * hosts_per_domain + place for domain in self.representatives for place in places
            ),
            counts=tuple(count for count in self.counts for _ in places),
            gpus=self.gpus // hosts_per_domain,
            class_of_host=np.add.outer(self.class_of_host * hosts_per_domain, np.arange(hosts_per_domain)).ravel(),
            spread=self.spread,
        )

    def by_domain(self, hosts_per_domain: int) -> HostClasses:
        """Return the classes of domains from which `of` made these classes of hosts."""
        return HostClasses(
            representatives=tuple(host // hosts_per_domain for host in self.representatives[::hosts_per_domain]),
            counts=self.counts[::hosts_per_domain],
            gpus=self.gpus * hosts_per_domain,
            class_of_host=self.class_of_host[::hosts_per_domain] // hosts_per_domain,
            spread=self.spread,
        )

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the representatives, which are the simulated ranks."""
        return tuple(rank for host in self.representatives for rank in range(host * self.gpus, (host + 1) * self.gpus))

    @property
    def rank_counts(self) -> tuple[int, ...]:
        """The number of ranks that each of `ranks` represents, itself included."""
        return tuple(count for count in self.counts for _ in range(self.gpus))

    @property
    def is_exact(self) -> bool:
        """Whether all hosts of a class have equal loads."""
        return self.spread == 0

    def most(self, values: Floats) -> tuple[int, ...]:
        """Return, for each of `ranks`, the represented rank with the largest of `values` [all ranks]."""
        by_host = values.reshape(len(self.class_of_host), self.gpus)
        found = np.zeros((len(self.representatives), self.gpus), np.int64)
        for gpu in range(self.gpus):
            order = np.lexsort((-by_host[:, gpu], self.class_of_host))
            hosts = order[np.searchsorted(self.class_of_host[order], np.arange(len(self.representatives)))]
            found[:, gpu] = hosts * self.gpus + gpu
        return tuple(found.ravel().tolist())

    def per_leaf(self, hosts_per_leaf: int) -> Ints:
        """Return the number of hosts of each class behind each leaf switch: [leaves, classes]."""
        leaves = np.arange(len(self.class_of_host)) // hosts_per_leaf
        counts = np.zeros((int(leaves[-1]) + 1, len(self.representatives)), np.int64)
        np.add.at(counts, (leaves, self.class_of_host), 1)
        return counts


def uniform_host_classes(scenario: Scenario) -> HostClasses | None:
    """Return one class for all healthy hosts, which do the same work; None if every rank is simulated."""
    cluster = scenario.cluster
    if scenario.run.ranks == "each":
        return None
    loads = np.zeros((cluster.hosts, 1))
    return HostClasses.of(loads, cluster.host.gpus, cluster.faulty_hosts, cluster.hosts_per_domain)


def simulated_ranks(scenario: Scenario, classes: HostClasses | None) -> Iterable[tuple[int, int]]:
    """Return pairs of each simulated rank and the number of ranks that it represents."""
    if classes is None:
        return ((rank, 1) for rank in range(scenario.cluster.world_size))
    return zip(classes.ranks, classes.rank_counts, strict=True)


def _round(loads: Floats) -> Floats:
    scale = _largest(loads)
    return np.asarray(np.round(loads / scale, _DIGITS) * scale)


def _largest(loads: Floats) -> Floats:
    """Return the maximum of each column, or 1 where a column is 0 throughout."""
    largest = loads.max(axis=0, initial=0.0)
    return np.asarray(np.where(largest > 0, largest, 1.0))


def _near(rows: Floats, own: npt.NDArray[np.bool_], most: int) -> tuple[Ints, float]:
    """Cluster rows into at most `most` sets, apart from rows in `own`, which get a set each.

    The widest set is split in the middle of its widest column until there are `most` sets, which isolates outliers.

    Returns:
        The number of each row's set, and the width of the widest set as a share of the column's maximum.
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
