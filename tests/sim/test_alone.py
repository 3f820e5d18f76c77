"""The compiled time of an exchange against activities of `sharing`, one for each row, ended one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.capacity import Activity, Capacity
from sim.engine.max_min import max_min_rates
from sim.nccl.folded.exchange_time import seconds

Array = npt.NDArray[np.float64]


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Array, Array, Array, Array]:
    capacities, rows = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    per_s = [float(draw(st.integers(1, 20))) for _ in range(capacities)]
    crossed = np.full((rows, 3), -1)
    counts = np.ones((rows, 3))
    for row in range(rows):
        places = draw(st.lists(st.integers(0, capacities - 1), min_size=1, max_size=3, unique=True))
        crossed[row, : len(places)] = places
        counts[row, : len(places)] = [draw(st.integers(1, 5)) for _ in places]
    sizes = [float(draw(st.integers(1, 50))) for _ in range(rows)]
    return crossed, counts, np.array(sizes), np.array(per_s)


def one_by_one(crossed: Array, counts: Array, sizes: Array, per_s: Array) -> float:
    """In ns of `sharing`, whose capacities give so much a ns."""
    links = [Capacity(f"link{number}", rate * 1e9) for number, rate in enumerate(per_s)]
    under_way = [
        Activity({links[int(c)]: n for c, n in zip(row, each, strict=True) if c >= 0}, size, lambda: None)
        for row, each, size in zip(crossed, counts, sizes, strict=True)
    ]
    for activity in under_way:
        for link, count in activity.uses.items():
            link.join(activity, count, 0)
    now = 0.0
    while under_way:
        rates = max_min_rates(under_way)
        elapsed = min(activity.remaining / rates[activity] for activity in under_way)
        now += elapsed
        for activity in under_way:
            activity.remaining -= elapsed * rates[activity]
        for activity in [one for one in under_way if one.remaining <= 1e-9 * one.amount]:
            under_way.remove(activity)
            for link in activity.uses:
                link.leave(activity, 0)
    return now


@settings(deadline=None, max_examples=200)
@given(exchanges())
def test_it_takes_what_its_rows_take_one_by_one(given_exchange: tuple[Array, Array, Array, Array]) -> None:
    assert seconds(*given_exchange) == pytest.approx(one_by_one(*given_exchange), rel=0.01)


def test_a_row_counts_for_as_many_as_it_stands_for() -> None:
    crossed, counts = np.array([[0, 1], [0, 2]]), np.array([[3.0, 1.0], [1.0, 1.0]])
    # Four transfers share 8 bytes/s, 2 each: the three of 10 bytes take 5 s, during which the one of 30 has had 10;
    # it has 20 left, and all of link 2, which gives 4.
    assert seconds(crossed, counts, np.array([10.0, 30.0]), np.array([8.0, 9.0, 4.0])) == pytest.approx(5 + 20 / 4)
