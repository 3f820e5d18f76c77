"""What is gathered, broadcast and sent arrives to the bit in both worlds; whole numbers are reduced exactly."""

from __future__ import annotations

import pytest
from hypothesis import given

from real.check.cases.cross_checks import AllGatherCase, Broadcast, Messages, ReductionCase
from real.check.strategies import moves, plays, reductions
from tests.properties.examples import SIZES, played, prop

# torch says so once a process, of a dtype that travels here as any other.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

MOVED, REDUCED = prop(), prop()


@played
@given(plays(moves, SIZES))
def test_gathers_broadcasts_and_messages_keep_every_bit(
    cases: tuple[AllGatherCase | Broadcast | Messages, ...],
) -> None:
    MOVED.check(cases)


@played
@given(plays(reductions, SIZES))
def test_whole_numbers_are_reduced_exactly(cases: tuple[ReductionCase, ...]) -> None:
    REDUCED.check(cases)
