"""What a case is, and how a rank plays several; comparing what comes of it is left to `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from scenarios.seam.rank import Rank
from tests.properties.bits import Bits, bits_of
from tests.properties.groups import Lobby


class Case(Protocol):
    """Something that the ranks of a small world do; frozen, and its repr builds it again."""

    @property
    def hosts(self) -> int: ...
    @property
    def gpus(self) -> int: ...

    @property
    def rounding(self) -> float:
        """How far from the oracle a result may lie; 0: not by a bit."""
        ...

    async def play(self, lobby: Lobby) -> list[Tensor]:
        """What the rank in the lobby ends with."""
        ...

    def oracle(self) -> list[list[Tensor]]:
        """What each rank must end with, computed in one process without the project's code."""
        ...


async def play(rank: Rank, cases: Sequence[Case]) -> list[list[Bits]]:
    """What one rank ends with, by case."""
    lobby = Lobby(rank)
    return [[bits_of(tensor) for tensor in await case.play(lobby)] for case in cases]
