"""What is gathered, broadcast and sent arrives to the bit in both worlds; whole numbers are reduced exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.bits import DTYPES
from tests.properties.examples import Property, World, played, plays
from tests.properties.moves import OPS, Broadcast, Gather, Messages, Reduction

# torch says so once a process, of a dtype that travels here as any other.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

# bool and float8 have no sums, and neither library here has those of uint64.
SUMMED = [dtype for dtype in DTYPES if dtype not in ("bool", "uint64") and not dtype.startswith("float8")]


@st.composite
def gathers(draw: st.DrawFn, world: World) -> Gather:
    return Gather(
        hosts=world.hosts,
        gpus=world.gpus,
        place=draw(st.sampled_from(world.places)),
        dtype=draw(st.sampled_from(DTYPES)),
        numel=draw(st.integers(0, 5)),
        in_place=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def broadcasts(draw: st.DrawFn, world: World) -> Broadcast:
    return Broadcast(
        hosts=world.hosts,
        gpus=world.gpus,
        place=draw(st.sampled_from(world.places)),
        dtype=draw(st.sampled_from(DTYPES)),
        shape=tuple(draw(st.lists(st.integers(0, 3), max_size=3))),
        source=draw(st.integers(0, 5)),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def messages(draw: st.DrawFn, world: World) -> Messages:
    pairs = [(source, target) for source in range(world.size) for target in range(world.size) if source != target]
    drawn = draw(st.lists(st.tuples(st.sampled_from(pairs), st.integers(0, 5)), max_size=6)) if pairs else []
    return Messages(
        hosts=world.hosts,
        gpus=world.gpus,
        dtype=draw(st.sampled_from(DTYPES)),
        messages=tuple((*pair, numel) for pair, numel in drawn),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def reductions(draw: st.DrawFn, world: World) -> Reduction:
    dtype = draw(st.sampled_from(SUMMED))
    ops = [op for op in OPS if not (dtype.startswith("complex") and op in ("min", "max"))]
    return Reduction(
        hosts=world.hosts,
        gpus=world.gpus,
        place=draw(st.sampled_from(world.places)),
        dtype=dtype,
        numel=draw(st.integers(0, 5)),
        op=draw(st.sampled_from(ops)),
        scatters=draw(st.booleans()),
        big=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


MOVED, REDUCED = Property(), Property()


@played
@given(plays(lambda world: st.one_of(gathers(world), broadcasts(world), messages(world))))
def test_what_is_gathered_broadcast_or_sent_arrives_to_the_bit(
    cases: tuple[Gather | Broadcast | Messages, ...],
) -> None:
    MOVED.check(cases)


@played
@given(plays(reductions))
def test_whole_numbers_are_reduced_exactly(cases: tuple[Reduction, ...]) -> None:
    REDUCED.check(cases)
