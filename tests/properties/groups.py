"""Which group a call is on, and of which stream, as data; the calls are left to the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.seam.rank import Group, Rank
from tests.properties.short import Short


@dataclass(frozen=True, repr=False)
class Place(Short):
    """The world, the hosts ("intra"), the same local ranks ("cross"), or a "new" group of `ranks` in this order.

    On a stream of its own if `is_aside`.
    """

    kind: str = "world"
    ranks: tuple[int, ...] = ()
    is_aside: bool = False

    def members(self, hosts: int, gpus: int) -> list[tuple[int, ...]]:
        """The groups here, each by its global ranks in group order."""
        if self.kind == "intra":
            return [tuple(range(host * gpus, (host + 1) * gpus)) for host in range(hosts)]
        if self.kind == "cross":
            return [tuple(range(local, hosts * gpus, gpus)) for local in range(gpus)]
        return [self.ranks if self.kind == "new" else tuple(range(hosts * gpus))]


WORLD = Place()


class Lobby:
    """One rank's groups of one play, made when they are first asked for; every rank asks in the same order."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._aside: Rank | None = None
        self._made: dict[Place, tuple[Rank, Group]] = {}

    @property
    def aside(self) -> Rank:
        """The rank on the play's other stream."""
        if self._aside is None:
            self._aside = self.rank.stream("aside")
        return self._aside

    def join(self, places: Sequence[Place]) -> list[tuple[Rank, Group]]:
        """For each place this rank on its stream, and the group there."""
        for place in places:
            if place not in self._made:
                on = self.aside if place.is_aside else self.rank
                self._made[place] = (on, _group(on, place))
        return [self._made[place] for place in places]


def _group(rank: Rank, place: Place) -> Group:
    if place.kind == "new":
        return rank.new_group(place.ranks)
    return {"world": rank.world, "intra": rank.intra, "cross": rank.cross}[place.kind]
