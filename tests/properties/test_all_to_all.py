"""all_to_all gives every rank, in both worlds, exactly the bytes that were sent to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.bits import DTYPES
from tests.properties.examples import Property, World, played, plays, several
from tests.properties.exchanges import AllToAll, Exchange

# torch says so once a process, of a dtype that travels here as any other.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


@st.composite
def counts(draw: st.DrawFn, world: int) -> tuple[tuple[int, ...], ...]:
    """Uneven, or all the same, or from one rank only."""
    kind = draw(st.sampled_from(["even", "any", "one-sided"]))
    if kind == "even":
        return ((draw(st.integers(0, 3)),) * world,) * world
    row = st.lists(st.integers(0, 4), min_size=world, max_size=world).map(tuple)
    giver = draw(st.integers(0, world - 1))
    return tuple(draw(row) if kind == "any" or rank == giver else (0,) * world for rank in range(world))


@st.composite
def exchanges(draw: st.DrawFn, world: World) -> Exchange:
    dtype = draw(st.sampled_from(DTYPES))
    is_list = draw(st.booleans())
    scalar = is_list and draw(st.integers(0, 4)) == 4
    return Exchange(
        place=draw(st.sampled_from(world.places)),
        is_list=is_list,
        dtype=dtype,
        counts=((1,) * world.size,) * world.size if scalar else draw(counts(world.size)),
        trailing=() if scalar else draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,), (2, 0)])),
        scalar=scalar,
        omits_splits=draw(st.booleans()),
        shift=draw(st.sampled_from([None, None, 0, 1, 3])),
        conjugates=dtype in ("complex64", "complex128") and draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def all_to_alls(draw: st.DrawFn, world: World) -> AllToAll:
    return AllToAll(
        hosts=world.hosts,
        gpus=world.gpus,
        exchanges=draw(several(exchanges(world), 1, 3)),
        turns=tuple(draw(st.lists(st.integers(0, 2), min_size=world.size, max_size=world.size))),
        is_backwards=draw(st.booleans()),
    )


SENT = Property()


@played
@given(plays(all_to_alls))
def test_each_rank_gets_exactly_the_bytes_that_were_sent_to_it(cases: tuple[AllToAll, ...]) -> None:
    SENT.check(cases)
