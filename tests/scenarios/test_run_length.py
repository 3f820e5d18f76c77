"""Runs behave as the list that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.run_length import KeptRuns, Run, Runs, run_count, runs_of

RUNS = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=5)
NUMBERS: Run[int] = (3, 7)


def plain(runs: Sequence[Run[int]]) -> list[int]:
    return [first + index for count, first in runs for index in range(count)]


@pytest.mark.parametrize("kind", [Runs, KeptRuns])
@given(runs=RUNS, index=st.integers(-25, 25), step=st.sampled_from([-2, -1, 1, 3]))
def test_a_look_gives_what_the_list_gives(kind: type[Runs[int]], runs: list[Run[int]], index: int, step: int) -> None:
    items, listed = kind(runs, int.__add__), plain(runs)
    assert items.runs == [(count, first) for count, first in runs if count]
    assert run_count(items) == len(items.runs)
    assert len(items) == len(listed)
    assert list(items) == listed
    assert items == listed
    assert list(items[index::step]) == listed[index::step]
    assert repr(items) == repr(listed)
    if -len(listed) <= index < len(listed):
        assert items[index] == listed[index]
    else:
        with pytest.raises(IndexError):
            items[index]


def test_runs_are_not_equal_to_other_items() -> None:
    items = Runs([NUMBERS], int.__add__)
    assert items != [7, 8]
    assert items != Runs([(3, 6)], int.__add__)
    assert items != 7


@dataclass
class Box:
    number: int

    @staticmethod
    def following(first: Box, index: int) -> Box:
        return Box(first.number + index)


def test_writing_to_a_runs_first_item_changes_all_items_made_later() -> None:
    boxes = KeptRuns([(3, Box(0)), (1, Box(9))], Box.following)
    other = deepcopy(boxes)
    for _, box in runs_of(boxes):
        box.number += 100
    assert boxes == [Box(100), Box(101), Box(102), Box(109)]
    assert other == [Box(0), Box(1), Box(2), Box(9)]


def test_changes_of_an_item_are_kept() -> None:
    boxes = KeptRuns([(3, Box(0))], Box.following)
    boxes[1].number = 50
    assert boxes == [Box(0), Box(50), Box(2)]
    assert list(runs_of(boxes)) == [(1, Box(0)), (1, Box(50)), (1, Box(2))]
    assert run_count(boxes) == 3


def test_a_list_has_runs_of_one() -> None:
    assert list(runs_of([4, 4])) == [(1, 4), (1, 4)]
    assert run_count([4, 4]) == 2
