from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reports.analysis.intervals import RankAxis, union

INTERVALS = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))))


def columns(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(intervals, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@given(INTERVALS, INTERVALS)
def test_covered_counts_the_integers_that_lie_in_any_interval(covering, asked):
    points = {point for start, end in covering for point in range(start, end)}
    expected = [sum(point in points for point in range(start, end)) for start, end in asked]
    assert union(*columns(covering)).covered_ns(*columns(asked)).tolist() == expected


@given(INTERVALS)
def test_a_union_is_disjoint_ordered_and_never_empty_inside(intervals):
    joined = union(*columns(intervals))
    assert np.all(joined.ends > joined.starts)
    assert np.all(joined.starts[1:] > joined.ends[:-1])
    assert joined.before.tolist() == [0, *np.cumsum(joined.ends - joined.starts).tolist()][: len(joined.starts)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-30, 30), st.integers(0, 30)), min_size=1))
def test_ranks_on_one_axis_never_touch(rows):
    ranks = np.array([row[0] * 1000 for row in rows], np.int64)
    starts = np.array([row[1] for row in rows], np.int64)
    ends = starts + np.array([row[2] for row in rows], np.int64)
    axis = RankAxis.of(ranks, starts, ends)
    placed = axis.place(ranks, starts), axis.place(ranks, ends)
    assert (placed[1] - placed[0]).tolist() == (ends - starts).tolist()
    order = np.argsort(ranks, kind="stable")
    changes = np.flatnonzero(np.diff(ranks[order])) + 1
    blocks = list(zip(np.split(placed[0][order], changes), np.split(placed[1][order], changes), strict=True))
    for (_, left), (right, _) in itertools.pairwise(blocks):
        assert left.max() < right.min()
