"""A lane serves what enters it in order."""

from __future__ import annotations

from functools import partial

import pytest

from sim.rank.world import Lane


@pytest.mark.parametrize("width", [1, 2])
def test_calls_that_are_over_as_they_begin_may_be_many(width: int) -> None:
    """Groups of one rank have such calls, hundreds in a row behind one that takes time."""
    lane, begun = Lane(width), list[int]()

    def begin(number: int) -> None:
        begun.append(number)
        if number >= width:
            lane.leave()

    for number in range(5_000):
        lane.enter(partial(begin, number))
    assert begun == [*range(width)]
    lane.leave()
    assert begun == [*range(5_000)]
