"""Cases played in a world, beside what their oracles say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tests.contract.worlds import results
from tests.properties.bits import Bits, bits_of, values_of
from tests.properties.case import Case, play


@dataclass(frozen=True, slots=True)
class Compared:
    """One tensor of one rank beside the oracle's; None where there is none."""

    place: str
    got: Bits | None
    wanted: Bits | None
    rounding: float

    @property
    def agrees(self) -> bool:
        """Whether they are the same: to the bit, or but for rounding."""
        if self.got is None or self.wanted is None or not self.rounding:
            return self.got == self.wanted
        return self.got[:2] == self.wanted[:2] and _are_close(self.got, self.wanted, self.rounding)

    def __str__(self) -> str:
        return f"{self.place}: {self.got}" + ("" if self.agrees else f", expected {self.wanted}")


def compare(world: str, cases: Sequence[Case]) -> list[Compared]:
    """What each case gives in a world ("sim" or "real"), all in one play, beside what its oracle says."""
    by_rank: list[list[list[Bits]]] = results(world, cases[0].hosts, cases[0].gpus, play, tuple(cases))
    return [
        Compared(f"{world}: {type(case).__name__} {at}: rank {rank}: tensor {index}", got, wanted, case.rounding)
        for at, case in enumerate(cases)
        for rank, tensors in enumerate(case.oracle())
        for index, (got, wanted) in enumerate(itertools.zip_longest(by_rank[rank][at], map(bits_of, tensors)))
    ]


def differences(world: str, cases: Sequence[Case]) -> list[str]:
    """One line for each tensor that is not the oracle's, or for the play if it failed in any way."""
    try:
        return [str(one) for one in compare(world, cases) if not one.agrees]
    except Exception as error:
        return [f"{world}: {type(error).__name__}: {error}"]


def commands(cases: Sequence[Case]) -> str:
    """How a person sees these cases in each world."""
    quoted = " ".join(f'"{case!r}"' for case in cases)
    return "\n".join(f"    python -m tests.properties {world} {quoted}" for world in ("sim", "real"))


def _are_close(got: Bits, wanted: Bits, rounding: float) -> bool:
    far = (values_of(got).double() - values_of(wanted).double()).abs()
    return bool((far <= rounding).all())
