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


@PATIENT
@given(rows())
def test_rows_without_counts_are_rows_of_one_flow(given_rows: Rows) -> None:
    """To the last bit: numba compiles the same arithmetic, less the products by one."""
    crossed, _, sizes, speeds = given_rows
    flows, capacities = compiled.counted_flows(crossed, np.ones(crossed.shape), sizes, speeds)
    single = flows._replace(counts=np.empty(0), line_counts=np.empty(0), rates=np.zeros(len(crossed)))
    for each in (flows, single):
        compiled.set_rates(each, compiled.no_others(), capacities)
    assert flows.rates.tolist() == single.rates.tolist()


# Of an activity: its use per unit, its weight and up to two links, which may be one that no row uses.
OTHERS = st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.integers(0, 5), st.integers(0, 5))


@PATIENT
@given(rows(), st.lists(OTHERS, min_size=1, max_size=4))
def test_activities_of_any_weight_share_with_rows(
    given_rows: Rows, beside: list[tuple[float, float, int, int]]
) -> None:
    crossed, counts, sizes, speeds = given_rows
    described = [(per_unit, weight) for per_unit, weight, _, _ in beside]
    numbers = [sorted({first % (speeds.size + 1), second % (speeds.size + 1)}) for _, _, first, second in beside]
    flows, capacities = compiled.counted_flows(crossed, counts, sizes, speeds)
    more = capacities._replace(speeds=np.append(capacities.speeds, 7.0))
    others = compiled.Others(
        starts=np.cumsum([0, *map(len, numbers)]),
        capacities=np.array([compiled.FIRST + number for each in numbers for number in each]),
        per_unit=np.array([per_unit for each, (per_unit, _) in zip(numbers, described, strict=True) for _ in each]),
        weights=np.array([weight for _, weight in described]),
    )
    rates = compiled.set_rates(flows, others, more)
    links = [Capacity(f"link{number}", speed * 1e9) for number, speed in enumerate([*speeds, 7.0])]
    ours = [
        start({links[int(c)]: float(n) for c, n in zip(row, each, strict=True) if c >= 0}, 1.0)
        for row, each in zip(crossed, counts, strict=True)
    ]
    theirs = [
        start({links[number]: per_unit for number in each}, 1.0, weight)
        for each, (per_unit, weight) in zip(numbers, described, strict=True)
    ]
    expected = max_min_rates([*ours, *theirs])
    assert flows.rates.tolist() == pytest.approx([expected[one] for one in ours], rel=NEARLY)
    assert rates.tolist() == pytest.approx([expected[one] for one in theirs], rel=NEARLY)
