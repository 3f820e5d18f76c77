"""Checks that cases agree with their oracles in every world; remembers failures while Hypothesis shrinks them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings

from real.check.cases.case import Case
from real.check.cases.error_classes import Bits, bits_of, values_of
from scenarios.config.interconnect import default_library

# Runs cases on all ranks; returns the tensors that each rank ends with: [rank][case][tensor].
World = Callable[[Sequence[Case]], list[list[list[Bits]]]]


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """A tensor of a rank and the oracle's; None where one of them is missing."""

    place: str
    got: Bits | None
    wanted: Bits | None
    rounding: float

    @property
    def agrees(self) -> bool:
        """Whether both tensors are equal: to the bit, or within `rounding`."""
        if self.got is None or self.wanted is None or not self.rounding:
            return self.got == self.wanted
        return self.got[:2] == self.wanted[:2] and _are_close(self.got, self.wanted, self.rounding)

    def __str__(self) -> str:
        return f"{self.place}: {self.got}" + ("" if self.agrees else f", expected {self.wanted}")


def compare(name: str, world: World, cases: Sequence[Case]) -> list[ComparedTensor]:
    """Run the cases in a world of that name; return each rank's tensors with the oracle's."""
    by_rank = world(cases)
    return [
        ComparedTensor(f"{name}: {type(case).__name__} {at}: rank {rank}: tensor {index}", got, wanted, case.rounding)
        for at, case in enumerate(cases)
        for rank, tensors in enumerate(case.oracle())
        for index, (got, wanted) in enumerate(itertools.zip_longest(by_rank[rank][at], map(bits_of, tensors)))
    ]


def differences(name: str, world: World, cases: Sequence[Case]) -> list[str]:
    """Return a line for each tensor that differs from the oracle's, or for the exception that ended the play."""
    try:
        return [str(one) for one in compare(name, world, cases) if not one.agrees]
    except Exception as error:
        return [f"{name}: {type(error).__name__}: {error}"]


def _are_close(got: Bits, wanted: Bits, rounding: float) -> bool:
    far = (values_of(got).double() - values_of(wanted).double()).abs()
    return bool((far <= rounding).all())


# The library of checks that name none.
DEFAULT_LIBRARY = default_library("cpu")
# A case that fails by a hang takes a whole time-out: after this time the smallest example so far is reported.
SHRINKING_S = 40.0
# Number of differences that are printed of one example.
_TOLD = 4

# Neither a slow example nor a large one may end a check, and failures are never replayed from a database.
SETTINGS = settings(
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class Property:
    """A check of examples (tuples of cases) in all worlds, simulated worlds first.

    After a failure only the world that failed runs, so that shrinking is fast. An example runs once: a failed example
    is reported even if it would pass a second time.
    """

    def __init__(self, worlds: Mapping[str, World], repeat: Callable[[tuple[Case, ...]], str]) -> None:
        """Check in `worlds`; `repeat` returns the command line that runs cases again."""
        self._worlds, self._repeat = dict(worlds), repeat
        self._failed: dict[tuple[Case, ...], str] = {}
        self._until_s = math.inf
        self.plays = self.cases = 0  # until the first failure

    def check(self, cases: tuple[Case, ...]) -> None:
        """Run one example of the property.

        Raises:
            AssertionError: with the differences, and the command that repeats them.
        """
        if cases not in self._failed and time.monotonic() < self._until_s:
            self._play(cases)
        if cases in self._failed:
            raise AssertionError(f"{self._failed[cases]}\nSee it beside the oracle with\n    {self._repeat(cases)}")

    def _play(self, cases: tuple[Case, ...]) -> None:
        if not self._failed:
            self.plays, self.cases = self.plays + 1, self.cases + len(cases)
        for name, world in self._worlds.items():
            found = differences(name, world, cases)
            if found:
                self._failed[cases] = "\n".join(found[:_TOLD])
                # Shrinking tries many examples: run only the world that failed, and for a limited time.
                self._worlds = {name: world}
                self._until_s = min(self._until_s, time.monotonic() + SHRINKING_S)
                return


def command(cases: tuple[Case, ...], *, start: str = "python -m real", library: str = DEFAULT_LIBRARY) -> str:
    """Return the command line that runs these cases again and prints every tensor next to the oracle's."""
    quoted = " ".join(f'"{case!r}"' for case in cases)
    options = "" if library == DEFAULT_LIBRARY else f" --library {library}"
    return f"{start} check{options} --case {quoted}"
