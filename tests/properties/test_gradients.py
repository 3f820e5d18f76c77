"""Gradients are averaged in the same buckets and to the same values in both worlds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import Property, World, played, plays, several
from tests.properties.gradients import Gradients


@st.composite
def gradients(draw: st.DrawFn, world: World) -> Gradients:
    shape = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    return Gradients(
        hosts=world.hosts,
        gpus=world.gpus,
        shapes=draw(several(shape, 0, 5)),
        first_bytes=draw(st.integers(1, 100)),
        cap_bytes=draw(st.integers(1, 200)),
        dtype=draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"])),
        steps=draw(st.integers(1, 2)),
        fractions=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


# A stream sets up groups of its own: larger worlds take long.
SIZES = [(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]
AVERAGED = Property()


@played
@given(plays(gradients, SIZES))
def test_gradients_in_any_order_are_averaged_in_the_buckets_of_the_last_first(cases: tuple[Gradients, ...]) -> None:
    AVERAGED.check(cases)
