"""The fixtures that let one test body run in every world."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scenarios.seam.program import Program
from scenarios.seam.trace import Recording
from tests.contract.worlds import WORLDS, scenario

Play = Callable[[Program, int, int], Recording]


@pytest.fixture(params=sorted(WORLDS))
def play(request: pytest.FixtureRequest) -> Play:
    """`play(program, hosts, gpus_per_host)` in one of the worlds."""
    world = WORLDS[request.param]
    return lambda program, hosts, gpus_per_host: world(program, scenario(hosts, gpus_per_host))


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> str:
    """The name of one of the worlds, for `worlds.results`."""
    return str(request.param)
