"""Gradients are averaged in the same buckets and to the same values in both worlds."""

from __future__ import annotations

from hypothesis import given

from real.check.cases.gradients import GradientsCase
from real.check.strategies import gradients, plays
from tests.properties.examples import played, prop

# A stream sets up groups of its own: larger worlds take long.
SIZES = [(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]
AVERAGED = prop()


@played
@given(plays(gradients, SIZES))
def test_gradients_in_any_order_are_averaged_in_the_buckets_of_the_last_first(cases: tuple[GradientsCase, ...]) -> None:
    AVERAGED.check(cases)
