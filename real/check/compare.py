"""Compares what every rank of a world ends with against the oracles of the cases that were played."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from real.check.cases.bits import Bits, bits_of, values_of
from real.check.cases.case import Case

# Plays cases on all ranks; gives the tensors that each rank ends with: [rank][case][tensor].
World = Callable[[Sequence[Case]], list[list[list[Bits]]]]


@dataclass(frozen=True, slots=True)
class Compared:
    """One tensor of one rank and the oracle's; None where there is none."""

    place: str
    got: Bits | None
    wanted: Bits | None
    rounding: float

    @property
    def agrees(self) -> bool:
        """Whether both are equal: to the bit, or within `rounding`."""
        if self.got is None or self.wanted is None or not self.rounding:
            return self.got == self.wanted
        return self.got[:2] == self.wanted[:2] and _are_close(self.got, self.wanted, self.rounding)

    def __str__(self) -> str:
        return f"{self.place}: {self.got}" + ("" if self.agrees else f", expected {self.wanted}")


def compare(name: str, world: World, cases: Sequence[Case]) -> list[Compared]:
    """Play the cases in a world of that name; each rank's tensors with the oracle's."""
    by_rank = world(cases)
    return [
        Compared(f"{name}: {type(case).__name__} {at}: rank {rank}: tensor {index}", got, wanted, case.rounding)
        for at, case in enumerate(cases)
        for rank, tensors in enumerate(case.oracle())
        for index, (got, wanted) in enumerate(itertools.zip_longest(by_rank[rank][at], map(bits_of, tensors)))
    ]


def differences(name: str, world: World, cases: Sequence[Case]) -> list[str]:
    """One line for each tensor that differs from the oracle's, or for the exception that ended the play."""
    try:
        return [str(one) for one in compare(name, world, cases) if not one.agrees]
    except Exception as error:
        return [f"{name}: {type(error).__name__}: {error}"]


def _are_close(got: Bits, wanted: Bits, rounding: float) -> bool:
    far = (values_of(got).double() - values_of(wanted).double()).abs()
    return bool((far <= rounding).all())
