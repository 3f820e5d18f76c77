"""Case: what the ranks of a small world do, and what each must end with; GroupSpec: where its calls are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from real.check.cases.bits import Bits, bits_of
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


class ShortRepr:
    """Base of dataclasses whose repr omits fields that have their default."""

    def __repr__(self) -> str:
        told = [field for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in told)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Case(ShortRepr):
    """One or several calls of all ranks; frozen, and its repr builds it again."""

    hosts: int
    gpus: int

    @property
    def rounding(self) -> float:
        """How far a result may be from the oracle's; 0: equal to the bit."""
        return 0.0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Run the calls of this rank; the tensors that it ends with."""
        raise NotImplementedError

    def oracle(self) -> list[list[Tensor]]:
        """The tensors that each rank must end with, computed in one process without the project's code."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class GroupSpec(ShortRepr):
    """A process group: "world", "intra", "cross", or a "new" one of `ranks` in this order.

    Its calls are issued on a second stream if `is_aside`.
    """

    kind: str = "world"
    ranks: tuple[int, ...] = ()
    is_aside: bool = False

    def members(self, hosts: int, gpus: int) -> list[tuple[int, ...]]:
        """The groups of this kind in a world, each by its global ranks in group order."""
        if self.kind == "intra":
            return [tuple(range(host * gpus, (host + 1) * gpus)) for host in range(hosts)]
        if self.kind == "cross":
            return [tuple(range(local, hosts * gpus, gpus)) for local in range(gpus)]
        return [self.ranks if self.kind == "new" else tuple(range(hosts * gpus))]


WORLD = GroupSpec()


class RankGroups:
    """One rank's streams and groups, made when first asked for; every rank must ask in the same order."""

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
        """For each spec: this rank on its stream, and its group."""
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
    """Play cases one after the other; the tensors that this rank ends with, by case."""
    return [[bits_of(tensor) for tensor in await case.play(here)] for case in cases]
