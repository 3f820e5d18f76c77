"""Process groups: which ranks are in them, and how many ranks each member represents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Protocol, overload


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: the global ranks in it, in group order. `name` is unique in a run, the same on all members.
    `library` carries its calls in a prediction; "": the scenario's does.

    Where a prediction simulates one representative host for each class of identical hosts, the others' ranks do not
    exist: each member represents `counts` ranks, itself among them (docs/scale.md). Empty: itself alone. What a member
    sends to another it then sends to each rank that the other represents: splits go by member, and add up by `total`.
    """

    name: str
    ranks: tuple[int, ...]
    counts: tuple[int, ...] = ()
    library: str = ""

    @property
    def size(self) -> int:
        """How many ranks are in it."""
        return sum(self.counts) if self.counts else len(self.ranks)

    @overload
    def total(self, of_each: Sequence[int]) -> int: ...
    @overload
    def total(self, of_each: Sequence[float]) -> float: ...
    def total(self, of_each: Sequence[float]) -> float:
        """Sum a per-rank quantity over the whole group, given one value per member (weighted by `counts`)."""
        return sum(map(mul, of_each, self.counts)) if self.counts else sum(of_each)

    def index(self, rank: int) -> int:
        """The group rank of a global rank; ValueError if it is no member."""
        return self.ranks.index(rank)

    def __contains__(self, rank: object) -> bool:
        return rank in self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups for a rank that goes on as if the ranks of `world` were all that there are (`Rank.within`).

    The n-th rank of `world` has place n there. Each `intra.size` places are a host: `intra` are this rank's, `cross`
    the ranks of the same place in each host, host by host.
    """

    world: Group
    intra: Group
    cross: Group


class _Member(Protocol):
    """A rank, as far as groups need it."""

    @property
    def rank(self) -> int: ...

    def new_group(self, ranks: Sequence[int]) -> Group: ...


def own_group(rank: _Member, groups: Iterable[Sequence[int]]) -> Group:
    """Make all of these groups, and give the first that the rank is in. Every rank calls this with the same groups."""
    made = [rank.new_group([*ranks]) for ranks in groups]
    return next(group for group in made if rank.rank in group)
