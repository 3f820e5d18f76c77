"""A case: the calls of a small world's ranks, and the tensors that each rank must end with; GroupSpec: its groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from real.check.cases.error_classes import Bits, bits_of
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


class ShortRepr:
    """A base of dataclasses whose repr omits fields that have their default."""

    def __repr__(self) -> str:
        changed = [field for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in changed)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Case(ShortRepr):
    """One or several calls of all ranks; frozen, and evaluating its repr builds an equal case."""

    hosts: int
    gpus: int

    @property
    def rounding(self) -> float:
        """The largest absolute difference between a result and the oracle's; 0: equal to the bit."""
        return 0.0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Run the calls of this rank; return the tensors that it ends with."""
        raise NotImplementedError

    def oracle(self) -> list[list[Tensor]]:
        """Return the tensors that each rank must end with, computed in one process without the project's code."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class GroupSpec(ShortRepr):
    """A process group: "world", "intra", "cross", or a "new" group of `ranks` in this order.

    Its calls are issued on a second stream if `is_aside`.
    """

    kind: str = "world"
    ranks: tuple[int, ...] = ()
    is_aside: bool = False

    def members(self, hosts: int, gpus: int) -> list[tuple[int, ...]]:
        """Return the groups of this kind in a world, each as its global ranks in group order."""
        if self.kind == "intra":
            return [tuple(range(host * gpus, (host + 1) * gpus)) for host in range(hosts)]
        if self.kind == "cross":
            return [tuple(range(local, hosts * gpus, gpus)) for local in range(gpus)]
        return [self.ranks if self.kind == "new" else tuple(range(hosts * gpus))]


WORLD = GroupSpec()


class RankGroups:
    """A rank's streams and groups, created on first use; every rank must use them in the same order."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._aside: Rank | None = None
        self._made: dict[GroupSpec, tuple[Rank, Group]] = {}

    @property
    def aside(self) -> Rank:
        """The rank on its second stream."""
        if self._aside is None:
            self._aside = self.rank.stream("aside")
        return self._aside

    def join(self, places: Sequence[GroupSpec]) -> list[tuple[Rank, Group]]:
        """Return for each spec this rank on the spec's stream, and the group."""
        for place in places:
            if place not in self._made:
                on = self.aside if place.is_aside else self.rank
                self._made[place] = (on, _group(on, place))
        return [self._made[place] for place in places]


def _group(rank: Rank, place: GroupSpec) -> Group:
    if place.kind == "new":
        return rank.new_group(place.ranks)
    return {"world": rank.world, "intra": rank.intra, "cross": rank.cross}[place.kind]


async def play(here: RankGroups, cases: Sequence[Case]) -> list[list[Bits]]:
    """Run cases one after the other; return the tensors that this rank ends with, by case."""
    return [[bits_of(tensor) for tensor in await case.play(here)] for case in cases]
