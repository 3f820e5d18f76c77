"""Case: what the ranks of a small world do, and what each must end with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor

from real.check.cases.bits import Bits, bits_of

if TYPE_CHECKING:
    from real.check.cases.groups import RankGroups


class Case(Protocol):
    """One or several calls of all ranks; frozen, and its repr builds it again."""

    @property
    def hosts(self) -> int: ...
    @property
    def gpus(self) -> int: ...

    @property
    def rounding(self) -> float:
        """How far a result may be from the oracle's; 0: equal to the bit."""
        ...

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Run the calls of this rank; the tensors that it ends with."""
        ...

    def oracle(self) -> list[list[Tensor]]:
        """The tensors that each rank must end with, computed in one process without the project's code."""
        ...


class ShortRepr:
    """Base of dataclasses whose repr omits fields that have their default; results are the oracle's to the bit."""

    rounding: ClassVar[float] = 0.0

    def __repr__(self) -> str:
        told = [field for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in told)})"


async def play(here: RankGroups, cases: Sequence[Case]) -> list[list[Bits]]:
    """Play cases one after the other; the tensors that this rank ends with, by case."""
    return [[bits_of(tensor) for tensor in await case.play(here)] for case in cases]
