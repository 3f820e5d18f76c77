"""Laws of sharing: nothing is overbooked, nobody can gain without a poorer one losing, and work is conserved."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.capacity import Activity, Capacity
from sim.engine.max_min import max_min_rates
from sim.engine.sharing import Sharing

Case = tuple[list[float], list[tuple[dict[int, float], float, float]]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Capacities in units/s, and activities as (uses by capacity, amount, weight)."""
    rates = draw(st.lists(st.floats(1e6, 1e12), min_size=1, max_size=8))
    per_unit = st.floats(0.01, 100.0)
    uses = st.dictionaries(st.integers(0, len(rates) - 1), per_unit, min_size=1, max_size=4)
    activities = draw(st.lists(st.tuples(uses, st.floats(1.0, 1e9), st.floats(0.1, 10.0)), min_size=1, max_size=12))
    return rates, activities


def build(case: Case) -> tuple[list[Capacity], list[Activity]]:
    rates, described = case
    capacities = [Capacity(f"c{index}", rate) for index, rate in enumerate(rates)]
    activities = [
        Activity({capacities[index]: per_unit for index, per_unit in uses.items()}, amount, _nothing, weight)
        for uses, amount, weight in described
    ]
    return capacities, activities


def _nothing() -> None:
    pass


def start(case: Case) -> tuple[list[Capacity], list[Activity], Sharing]:
    capacities, activities = build(case)
    sharing = Sharing()
    for activity in activities:
        sharing.start(activity, 0)
    return capacities, activities, sharing


def use(capacity: Capacity, rates: dict[Activity, float]) -> float:
    return sum(per_unit * rates[activity] for activity, per_unit in capacity.active.items())


@given(cases())
def test_no_capacity_is_overbooked(case: Case) -> None:
    capacities, activities, _ = start(case)
    rates = max_min_rates(activities)
    for capacity in capacities:
        assert use(capacity, rates) <= capacity.per_ns * (1 + 1e-9)


@given(cases())
def test_no_activity_can_gain_without_another_losing(case: Case) -> None:
    """Each has a full capacity on which nobody has more than it has, by weight: the definition of max-min fairness."""
    _, activities, _ = start(case)
    rates = max_min_rates(activities)
    for activity in activities:
        level = rates[activity] / activity.weight
        assert any(
            use(capacity, rates) >= capacity.per_ns * (1 - 1e-6)
            and all(rates[other] / other.weight <= level * (1 + 1e-6) for other in capacity.active)
            for capacity in activity.uses
        )


@given(cases())
def test_every_activity_completes_its_amount(case: Case) -> None:
    _, activities, sharing = start(case)
    ended: dict[Activity, int] = {}
    now_ns = 0
    while len(ended) < len(activities):
        sharing.resolve(now_ns)
        end_ns = sharing.next_end_ns()
        assert end_ns is not None
        assert end_ns >= now_ns
        now_ns = end_ns
        for activity in sharing.finish_due(now_ns):
            assert isinstance(activity, Activity)
            activity.settle(now_ns)
            ended[activity] = now_ns
    for activity in activities:
        # An end is rounded up to a whole ns: at most one ns of the last rate too much is booked.
        assert -activity.rate * 1.001 <= activity.remaining <= activity.amount * 1e-6 + activity.rate * 1e-5


@given(cases())
def test_an_activity_alone_runs_at_its_narrowest_capacity(case: Case) -> None:
    rates, described = case
    for uses, amount, weight in described:
        _, (alone,), sharing = start((rates, [(uses, amount, weight)]))
        sharing.resolve(0)
        narrowest = min(rates[index] / per_unit for index, per_unit in uses.items())
        assert sharing.next_end_ns() == math.ceil(amount / (narrowest / 1e9) - 1e-6) or math.isclose(
            sharing.next_end_ns() or 0, amount / (narrowest / 1e9), rel_tol=1e-9, abs_tol=1
        )
        assert alone.rate > 0


def test_weights_divide_a_capacity() -> None:
    _, (light, heavy), _ = start(([1e9], [({0: 1.0}, 10.0, 1.0), ({0: 1.0}, 10.0, 3.0)]))
    rates = max_min_rates([light, heavy])
    assert math.isclose(rates[light], 0.25)
    assert math.isclose(rates[heavy], 0.75)


def test_unused_share_goes_to_other_activities() -> None:
    """Two share a link, and one of them is held back elsewhere to a tenth."""
    _, (held, free), _ = start(([1e9, 1e8], [({0: 1.0, 1: 1.0}, 1.0, 1.0), ({0: 1.0}, 1.0, 1.0)]))
    rates = max_min_rates([held, free])
    assert math.isclose(rates[held], 0.1)
    assert math.isclose(rates[free], 0.9)


def test_busy_time_counts_while_anything_is_carried() -> None:
    (link,), _, sharing = start(([1e9], [({0: 1.0}, 100.0, 1.0), ({0: 1.0}, 100.0, 1.0)]))
    sharing.resolve(0)
    assert len(sharing.finish_due(200)) == 2
    assert (link.busy_ns, link.used) == (200, 200.0)


def test_users_that_rounding_hides_still_get_a_rate() -> None:
    """Uses that differ by 1e34: what is left of a capacity, and how fast it fills, is then lost in rounding."""
    described = [
        ({2: 3.3e14, 1: 1.03e15}, 1.0, 1.0),
        ({1: 7.7e-20}, 1.0, 8.9e-4),
        ({3: 4.2e7, 2: 1.0, 1: 1497.0}, 1.0, 2339.0),
        ({1: 3.25e-6}, 1.0, 6.9e-6),
        ({2: 1.0, 1: 1.0}, 1.0, 7.9e-12),
    ]
    _, activities, _ = start(([1e9] * 4, described))
    rates = max_min_rates(activities)
    assert set(rates) == set(activities)
    assert min(rates.values()) > 0


def test_passing_bytes_are_counted_and_busy_their_link_for_their_time() -> None:
    (link,), _, sharing = start(([1e9], [({0: 1.0}, 100.0, 1.0)]))
    link.pass_by(30, 0)  # beside an activity: no time of its own
    sharing.resolve(0)
    sharing.finish_due(100)
    link.pass_by(30, 200)
    link.pass_by(30, 210)  # behind the one before it
    assert (link.used, link.busy_ns) == (190.0, 160.0)
