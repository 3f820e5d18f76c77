"""How many examples Hypothesis plays, in which worlds, and what a failing one prints; drawing cases is the tests'."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.properties.case import Case
from tests.properties.compare import commands, differences
from tests.properties.groups import Place

C = TypeVar("C", bound=Case)
T = TypeVar("T")

# Each example is one play in each world, of up to PER_PLAY cases.
PER_PLAY = 10
# hosts, GPUs a host
SIZES = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 4), (4, 1), (1, 5), (5, 1), (2, 3), (3, 2), (1, 6), (6, 1)]
# A case that fails by a hang takes the pool's whole time-out: after this, what was found last is printed.
SHRINKING_S = 40.0

_COMMON = settings(
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_PROFILES = {
    "normal": settings(_COMMON, derandomize=True, max_examples=24, database=None),
    "thorough": settings(_COMMON, max_examples=1000),
}
# Not loaded as Hypothesis's own profile, which would hold for every other test of the session too.
played = _PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "normal")]


class World(NamedTuple):
    """Where a play's cases take place, and the groups that they may use: each group takes a while to set up."""

    hosts: int
    gpus: int
    places: tuple[Place, ...]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.hosts * self.gpus


@st.composite
def plays(
    draw: st.DrawFn, cases: Callable[[World], st.SearchStrategy[C]], sizes: Sequence[tuple[int, int]] = SIZES
) -> tuple[C, ...]:
    """Cases of one world, to be played one after the other."""
    hosts, gpus = draw(st.sampled_from(sizes))
    places = draw(st.lists(_places(hosts, gpus), min_size=1, max_size=3))
    return draw(several(cases(World(hosts, gpus, tuple(places))), 1, PER_PLAY))


@st.composite
def several(draw: st.DrawFn, items: st.SearchStrategy[T], low: int, high: int) -> tuple[T, ...]:
    """From `low` to `high` items. Hypothesis deletes one of so many, but hardly one of a list, if items are long."""
    return tuple(draw(items) for _ in range(draw(st.integers(low, high))))


@st.composite
def _places(draw: st.DrawFn, hosts: int, gpus: int) -> Place:
    kind = draw(st.sampled_from(["world", "intra", "cross", "new", "new"]))
    everyone = draw(st.permutations(range(hosts * gpus)))
    ranks = tuple(everyone[: draw(st.integers(1, hosts * gpus))]) if kind == "new" else ()
    return Place(kind, ranks, draw(st.integers(0, 7)) == 7)


class Property:
    """That cases give what their oracle says, in both worlds.

    After a failure only the world that failed is played, so that shrinking is fast; what failed is remembered.
    """

    def __init__(self) -> None:
        self._worlds = ["sim", "real"]
        self._failed: dict[tuple[Case, ...], str] = {}
        self._until_s = math.inf

    def check(self, cases: tuple[Case, ...]) -> None:
        """AssertionError with what differs and how to see it."""
        if cases not in self._failed and time.monotonic() < self._until_s:
            self._play(cases)
        if cases in self._failed:
            raise AssertionError(f"{self._failed[cases]}\nSee it beside the oracle with\n{commands(cases)}")

    def _play(self, cases: tuple[Case, ...]) -> None:
        for world in self._worlds:
            found = differences(world, cases)
            if found:
                self._failed[cases] = "\n".join(found[:4])
                self._worlds = [world]
                self._until_s = min(self._until_s, time.monotonic() + SHRINKING_S)
                return
