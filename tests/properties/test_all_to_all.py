"""all_to_all gives every rank, in both worlds, exactly the bytes that were sent to it."""

from __future__ import annotations

import pytest
from hypothesis import given

from real.check.cases.exchanges import AllToAll
from real.check.strategies import all_to_alls, plays
from tests.properties.examples import SIZES, played, prop

# torch says so once a process, of a dtype that travels here as any other.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


SENT = prop()


@played
@given(plays(all_to_alls, SIZES))
def test_ranks_get_exactly_the_bytes_sent_to_them(cases: tuple[AllToAll, ...]) -> None:
    SENT.check(cases)
