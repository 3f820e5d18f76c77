"""A library of its own folder is found by its name, in both worlds."""

from __future__ import annotations

import dataclasses

import pytest

from sim.run import simulate
from tests.contract.scripts import Script
from tests.contract.test_rank import exchanges_oddly, noted
from tests.contract.worlds import scenario
from tests.real.pool import shared_pool

pytestmark = pytest.mark.real


def test_both_worlds_find_it_by_its_name() -> None:
    made = dataclasses.replace(scenario(2, 1), library="gloo_serial")
    predicted = simulate(made, Script(exchanges_oddly))
    measured = shared_pool().play(Script(exchanges_oddly), made)
    for rank in range(2):
        assert noted(predicted, rank, "single in place") == noted(measured, rank, "single in place")
