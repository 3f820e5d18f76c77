"""The compiled solver against the readable one: equal rates and ends, whatever is counted, shared, tied or empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import max_min_compiled as compiled
from sim.engine.capacity import Activity, Capacity
from sim.engine.flow_bundle import Array
from sim.engine.max_min import max_min_rates
from tests.lanes import examples

# The solvers sum in different orders, so that capacities which fill at levels a rounding apart may do so together.
NEARLY = 1e-9
PATIENT = examples(200)
Rows = tuple[Array, Array, Array, Array]


@st.composite
def rows(draw: st.DrawFn, *, smallest: int = 1) -> Rows:
    """Crossed, counts, sizes and speeds of few links and rows; small numbers, so that much is tied."""
    links, count, width = draw(st.integers(1, 5)), draw(st.integers(1, 8)), 3
    speeds = [float(draw(st.integers(1, 20))) for _ in range(links)]
    crossed, counts = np.full((count, width), -1), np.ones((count, width))
    for row in range(count):
        places = draw(st.lists(st.integers(0, links - 1), min_size=1, max_size=width, unique=True))
        crossed[row, : len(places)] = places
        counts[row, : len(places)] = [draw(st.integers(1, 5)) for _ in places]
    sizes = [float(draw(st.integers(smallest, 50))) for _ in range(count)]
    return crossed, counts, np.array(sizes), np.array(speeds)


def activities_of(crossed: Array, counts: Array, sizes: Array, speeds: Array) -> list[Activity]:
    """An activity for each row, which uses each link so many times; a unit of time is a ns."""
    links = [Capacity(f"link{number}", speed * 1e9) for number, speed in enumerate(speeds)]
    described = zip(crossed, counts, sizes, strict=True)
    return [
        start({links[int(c)]: float(n) for c, n in zip(row, each, strict=True) if c >= 0}, size)
        for row, each, size in described
    ]


def start(uses: dict[Capacity, float], amount: float, weight: float = 1.0) -> Activity:
    activity = Activity(uses, amount, lambda: None, weight)
    for link, per_unit in activity.uses.items():
        link.join(activity, per_unit, 0)
    return activity


def one_by_one(activities: list[Activity]) -> float:
    """When the last ends, each end taken by itself."""
    now, under_way = 0.0, list(activities)
    while under_way:
        rates = max_min_rates(under_way)
        elapsed = min(activity.remaining / rates[activity] for activity in under_way)
        now += elapsed
        for activity in under_way:
            activity.remaining -= elapsed * rates[activity]
        for activity in [one for one in under_way if one.remaining <= 1e-12 * one.amount]:
            under_way.remove(activity)
            for link in activity.uses:
                link.leave(activity, 0)
    return now


def compiled_rates(given_rows: Rows) -> Array:
    flows, capacities = compiled.counted_flows(*given_rows)
    compiled.set_rates(flows, compiled.no_others(), capacities)
    return flows.rates


def compiled_duration(given_rows: Rows, within: float = 0.0) -> float:
    flows, capacities = compiled.counted_flows(*given_rows)
    return float(compiled.duration(flows, compiled.no_others(), capacities, within))


@PATIENT
@given(rows(smallest=0))
def test_compiled_rates_equal_the_readable_solvers(given_rows: Rows) -> None:
    activities = activities_of(*given_rows)
    expected = max_min_rates(activities)
    assert compiled_rates(given_rows).tolist() == pytest.approx([expected[one] for one in activities], rel=NEARLY)


@PATIENT
@given(rows(smallest=0))
def test_duration_equals_the_end_of_rows_solved_one_by_one(given_rows: Rows) -> None:
    assert compiled_duration(given_rows) == pytest.approx(one_by_one(activities_of(*given_rows)), rel=NEARLY)


@PATIENT
@given(rows(), st.floats(1e-4, 1e-2))
def test_merging_moves_the_last_end_by_no_more_than_the_time_merged_within(given_rows: Rows, share: float) -> None:
    crossed, counts, sizes, speeds = given_rows
    is_link = crossed >= 0
    needed = (np.bincount(crossed[is_link], (counts * sizes[:, None])[is_link], speeds.size) / speeds).max()
    moved = abs(compiled_duration(given_rows, share * needed) - one_by_one(activities_of(*given_rows)))
    assert moved <= 2 * share * needed


@PATIENT
@given(rows(smallest=0), st.integers(2, 4))
def test_a_row_of_k_flows_is_k_rows_of_one(given_rows: Rows, k: int) -> None:
    crossed, _, sizes, speeds = given_rows
    together = crossed, np.full(crossed.shape, float(k)), sizes, speeds
    apart = np.repeat(crossed, k, 0), np.ones((k * len(crossed), crossed.shape[1])), np.repeat(sizes, k), speeds
    assert np.repeat(compiled_rates(together), k).tolist() == pytest.approx(compiled_rates(apart).tolist(), rel=NEARLY)
    assert compiled_duration(together) == pytest.approx(compiled_duration(apart), rel=NEARLY)
