"""How many examples Hypothesis plays in the tests, and in which worlds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from hypothesis import Phase, settings

from real.check import falsify
from real.check.cases.case import Case, RankGroups, play
from real.check.cases.error_classes import Bits
from real.check.falsify import SETTINGS, command
from scenarios.seam.rank import Rank
from tests.contract.worlds import results
from tests.lanes import examples

# hosts, GPUs a host
SIZES = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 4), (4, 1), (1, 5), (5, 1), (2, 3), (3, 2), (1, 6), (6, 1)]

_PROFILES = {
    "normal": settings(SETTINGS, derandomize=True, max_examples=examples(24).max_examples),
    "thorough": settings(SETTINGS, max_examples=1000, print_blob=True, phases=[*SETTINGS.phases, Phase.reuse]),
}
# Not loaded as Hypothesis's own profile, which would hold for every other test of the session too.
played = _PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "normal")]


async def _play(rank: Rank, cases: Sequence[Case]) -> list[list[Bits]]:
    return await play(RankGroups(rank), cases)


def _world(name: str, cases: Sequence[Case]) -> list[list[list[Bits]]]:
    return results(name, cases[0].hosts, cases[0].gpus, _play, tuple(cases))


def prop() -> falsify.Property:
    """A property of both worlds: the simulator's, and the pool's real ranks."""
    return falsify.Property({name: partial(_world, name) for name in ("sim", "real")}, command)
