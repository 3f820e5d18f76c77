from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.analysis.link_load import class_load, host_matrix, links
from reports.run import Run
from reports.store.columns import to_arrow, to_frame
from scenarios.seam.trace import LinkRow, LoadRow, TrafficRow
from tests.reports.recordings import PATIENT, by_hand


def loads(*rows: tuple[str, int, int, float]) -> pd.DataFrame:
    made = [
        LoadRow(link=link, direction="out", from_ns=begin, until_ns=end, bytes_carried=carried)
        for link, begin, end, carried in rows
    ]
    return to_frame(to_arrow(made, LoadRow), LoadRow)


def link(name: str, bytes_carried: float = 0.0, busy_ns: int = 0) -> LinkRow:
    row = by_hand().links[0]
    return dataclasses.replace(row, link=name, bytes_carried=bytes_carried, busy_ns=busy_ns, bytes_per_s=1e9)


def traffic(*rows: tuple[int, int, float, int]) -> pd.DataFrame:
    made = [
        TrafficRow(from_host=one, to_host=other, bytes_carried=carried, bytes_inside=0.0, host_count=count)
        for one, other, carried, count in rows
    ]
    return to_frame(to_arrow(made, TrafficRow), TrafficRow)


def test_a_class_is_as_loaded_as_all_its_links_together():
    """Two NICs of one byte a ns: the first is half used from 0 to 100, the other full from 50 to 100."""
    known = Run.of(by_hand()).links
    frame = class_load(loads(("nic0", 0, 100, 50.0), ("nic1", 50, 100, 50.0)), known, (0, 200), 4)
    assert frame["link_class"].tolist() == ["nic"] * 4
    assert frame["from_ns"].tolist() == [0, 50, 100, 150]
    assert frame["utilisation"].tolist() == pytest.approx([0.25, 0.75, 0.0, 0.0])


def test_a_link_is_busy_for_at_least_the_time_of_its_bytes():
    """One byte a ns for 200 ns: 30 bytes in 40 ns, and 50 in 40 ns, 10 of which have passed beside others."""
    rows = [link("a", bytes_carried=30.0, busy_ns=40), link("b", bytes_carried=50.0, busy_ns=40), link("c")]
    frame = links(to_frame(to_arrow(rows, LinkRow), LinkRow), 200)
    assert frame["link"].tolist() == ["b", "a", "c"]
    assert frame["utilisation"].tolist() == [0.25, 0.15, 0.0]
    assert frame["busy_share"].tolist() == [0.25, 0.2, 0.0]
    assert frame["busy_utilisation"].tolist() == [1.0, 0.75, 0.0]


@PATIENT
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30), st.floats(0, 1e6)), max_size=20))
def test_parts_of_the_whole_time_add_up_to_what_was_carried(periods):
    known = Run.of(by_hand()).links
    rows = [("nic0", begin, begin + length, carried) for begin, length, carried in periods]
    frame = class_load(loads(*rows), known, (0, 200), 7)
    could = 2 * (frame["until_ns"] - frame["from_ns"]).to_numpy(float)
    assert (frame["utilisation"] * could).sum() == pytest.approx(sum(carried for *_, carried in rows), abs=1e-3)


def test_traffic_between_hosts_is_a_matrix_without_a_diagonal():
    matrix = host_matrix(traffic((0, 1, 10.0, 1), (1, 0, 20.0, 1), (1, 2, 5.0, 1)), 48)
    assert matrix is not None
    assert np.array_equal(matrix.bytes_carried, [[np.nan, 10, 0], [20, np.nan, 5], [0, 0, np.nan]], equal_nan=True)


def test_of_hosts_that_stand_for_others_it_is_what_one_gives_to_one():
    """Host 0 is alone; 9 hosts are like host 1, each of which gives 16 bytes to the 8 others like it."""
    matrix = host_matrix(traffic((0, 1, 90.0, 1), (1, 0, 3.0, 9), (1, 1, 16.0, 9)), 48)
    assert matrix is not None
    assert np.array_equal(matrix.bytes_carried, np.array([[np.nan, 10], [3, 2]]), equal_nan=True)
    assert matrix.counts.tolist() == [1, 9]


def test_many_hosts_are_put_together():
    every = [(one, other, 1.0, 1) for one in range(10) for other in range(10) if one != other]
    matrix = host_matrix(traffic(*every), 4)
    assert matrix is not None
    assert matrix.bytes_carried.tolist() == [[6, 9, 9, 3], [9, 6, 9, 3], [9, 9, 6, 3], [3, 3, 3, 0]]
    assert list(zip(matrix.firsts.tolist(), matrix.lasts.tolist(), strict=True)) == [(0, 2), (3, 5), (6, 8), (9, 9)]


def test_put_together_hosts_count_as_often_as_there_are_hosts_like_them():
    """Host 0 is alone; 3 are like host 1, 2 like host 2: 0 and 1 are the first group, 2 the other."""
    matrix = host_matrix(traffic((0, 1, 6.0, 1), (0, 2, 8.0, 1), (1, 1, 2.0, 3), (1, 2, 5.0, 3), (2, 0, 7.0, 2)), 2)
    assert matrix is not None
    assert matrix.bytes_carried.tolist() == [[6 + 3 * 2, 8 + 3 * 5], [2 * 7, 0]]
    assert matrix.counts.tolist() == [4, 2]


def test_of_nothing_between_hosts_there_is_no_matrix():
    assert host_matrix(traffic(), 48) is None
    assert host_matrix(traffic((0, 0, 0.0, 1)), 48) is None
