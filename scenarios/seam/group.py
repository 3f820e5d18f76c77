"""Process groups: which ranks are members, and how many ranks each member represents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Protocol, overload


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its global ranks, in group order.

    Attributes:
        name: unique in a run, identical on all members.
        counts: n ranks that each member represents, itself included; empty: each represents itself alone. Predictions
            that simulate one representative per host class set it (docs/explanation/large_worlds.md); the other
            ranks do not exist. Splits are then per member: a member sends its split to every rank that the other
            represents; `total` sums them.
        library: the library that carries the group's calls in a prediction; "": the scenario's.
    """

    name: str
    ranks: tuple[int, ...]
    counts: tuple[int, ...] = ()
    library: str = ""

    @property
    def size(self) -> int:
        """Number of ranks, represented ones included."""
        return sum(self.counts) if self.counts else len(self.ranks)

    @overload
    def total(self, of_each: Sequence[int]) -> int: ...
    @overload
    def total(self, of_each: Sequence[float]) -> float: ...
    def total(self, of_each: Sequence[float]) -> float:
        """Sum a per-rank quantity over the whole group, given one value per member (weighted by `counts`)."""
        return sum(map(mul, of_each, self.counts)) if self.counts else sum(of_each)

    def index(self, rank: int) -> int:
        """Return the group rank of a global rank; ValueError if it is no member."""
        return self.ranks.index(rank)

    def __contains__(self, rank: object) -> bool:
        return rank in self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups for a rank that runs as if the ranks of `world` were the whole job (`Rank.within`).

    The n-th rank of `world` has place n. Every `intra.size` consecutive places are one host: `intra` holds this rank's
    host, `cross` the ranks of the same place in each host, host by host.
    """

    world: Group
    intra: Group
    cross: Group


class _Member(Protocol):
    """A rank with only the attributes that creating groups needs."""

    @property
    def rank(self) -> int: ...

    def new_group(self, ranks: Sequence[int]) -> Group: ...


def own_group(rank: _Member, groups: Iterable[Sequence[int]]) -> Group:
    """Make all these groups and return the first that contains the rank; every rank makes the same calls."""
    made = [rank.new_group([*ranks]) for ranks in groups]
    return next(group for group in made if rank.rank in group)
