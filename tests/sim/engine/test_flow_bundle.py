"""Laws of bundles: flows in arrays share as one activity each would, beside whatever else comes and goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import flow_bundle as bundles
from sim.engine import sharing
from sim.engine.capacity import Activity, Capacity
from sim.engine.flow_bundle import Array, Bundle
from sim.engine.sharing import Sharing

# The first bundle loads compiled code, or compiles it.

# What is begun: which capacities each flow crosses and its bytes.
Flows = list[tuple[tuple[int, ...], float]]


@dataclasses.dataclass(frozen=True)
class Begun:
    """Flows that begin together, or one activity with uses by capacity and a weight."""

    at_ns: int
    flows: Flows = dataclasses.field(default_factory=list)
    uses: dict[int, float] = dataclasses.field(default_factory=dict)
    amount: float = 0.0
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Case:
    rates: list[float]
    begun: list[Begun]


@dataclasses.dataclass
class Played:
    """Ends by (which was begun, which of its flows); rates of all that is under way are held against the definition."""

    case: Case
    merged_share: float | None
    is_flow: bool = False
    ends: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """`merged_share` None: each flow is an activity, which may go on in arrays if `is_flow`."""
        self.capacities = [Capacity(f"c{index}", rate) for index, rate in enumerate(self.case.rates)]
        self.sharing, self.now_ns = Sharing(), 0
        waiting = sorted(enumerate(self.case.begun), key=lambda one: one[1].at_ns)
        while True:
            while waiting and waiting[0][1].at_ns <= self.now_ns:
                self._begin(*waiting.pop(0))
            self.sharing.resolve(self.now_ns)
            end_ns = self.sharing.next_end_ns()
            if end_ns is None and not waiting:
                break
            times = [end_ns] if end_ns is not None else []
            self.now_ns = min([*times, *(one.at_ns for _, one in waiting[:1])])
            for ended in self.sharing.finish_due(self.now_ns):
                ended.done()

    def _begin(self, place: int, one: Begun) -> None:
        if one.uses:
            uses = {self.capacities[index]: per_unit for index, per_unit in one.uses.items()}
            self.sharing.start(Activity(uses, one.amount, self._end(place, 0), one.weight), self.now_ns)
        elif self.merged_share is None:
            for row, (crossed, amount) in enumerate(one.flows):
                uses = {self.capacities[index]: 1.0 for index in crossed}
                flow = Activity(uses, amount, self._end(place, row), is_flow=self.is_flow)
                self.sharing.start(flow, self.now_ns)
        else:
            self.sharing.start_all(make(self.capacities, one.flows, self._tell(place), self.merged_share), self.now_ns)

    def _end(self, place: int, row: int) -> Callable[[], None]:
        return lambda: self._tell(place)(np.array([row]))

    def _tell(self, place: int) -> Callable[[Array], None]:
        def tell(rows: Array) -> None:
            for row in rows.tolist():
                assert (place, row) not in self.ends
                self.ends[place, row] = self.now_ns

        return tell


def make(
    capacities: list[Capacity], flows: Flows, ended: Callable[[Array], None], merged_share: float = bundles.MERGED_SHARE
) -> Bundle:
    used = sorted({index for crossed, _ in flows for index in crossed})
    width = max(len(crossed) for crossed, _ in flows)
    rows = [[used.index(index) for index in crossed] + [-1] * (width - len(crossed)) for crossed, _ in flows]
    amounts = np.array([amount for _, amount in flows])
    return Bundle(
        [capacities[index] for index in used], np.array(rows, np.int32), amounts, ended, merged_share=merged_share
    )


@st.composite
def cases(draw: st.DrawFn, most_bundles: int = 3, others: bool = True) -> Case:
    """Bundles of up to 30 flows, and activities beside them, on few capacities, all within some 100 us."""
    rates = draw(st.lists(st.floats(1e8, 1e10), min_size=2, max_size=7))
    crossed = st.lists(st.integers(0, len(rates) - 1), min_size=1, max_size=4, unique=True).map(tuple)
    flow = st.tuples(crossed, st.floats(1.0, 1e5))
    bundle = st.builds(Begun, at_ns=st.integers(0, 50_000), flows=st.lists(flow, min_size=1, max_size=30))
    uses = st.dictionaries(st.integers(0, len(rates) - 1), st.floats(0.1, 10.0), min_size=1, max_size=3)
    activity = st.builds(
        Begun, at_ns=st.integers(0, 50_000), uses=uses, amount=st.floats(1.0, 1e5), weight=st.floats(0.1, 10.0)
    )
    begun = draw(st.lists(bundle, min_size=1, max_size=most_bundles))
    return Case(rates, begun + (draw(st.lists(activity, max_size=4)) if others else []))


@given(cases())
def test_flows_that_are_not_merged_end_when_an_activity_each_would(case: Case) -> None:
    """But for one ns where rounding decides, and what that moves in its turn."""
    single, together = Played(case, None), Played(case, 0.0)
    assert single.ends.keys() == together.ends.keys()
    for key, end_ns in single.ends.items():
        assert together.ends[key] == pytest.approx(end_ns, abs=3)


@given(cases())
def test_links_carry_the_same_and_are_busy_as_long(case: Case) -> None:
    single, together = Played(case, None), Played(case, 0.0)
    for one, other in zip(single.capacities, together.capacities, strict=True):
        assert other.used == pytest.approx(one.used)
        assert other.busy_ns == pytest.approx(one.busy_ns, abs=10)
        assert not other.active
        assert other.pool is None


@contextmanager
def gathering(most_single: int, merged_share: float) -> Iterator[None]:
    """As if so many flows were the most that stay an activity each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "MOST_SINGLE", most_single)
        patch.setattr(Bundle, "of", staticmethod(partial(Bundle.of, merged_share=merged_share)))
        yield


@given(cases(), st.integers(0, 20))
def test_flows_put_into_arrays_on_their_way_end_when_they_would_have(case: Case, most_single: int) -> None:
    """Also where some are in arrays already, and links count them once."""
    single = Played(case, None)
    with gathering(most_single, 0.0):
        gathered = Played(case, None, is_flow=True)
    assert gathered.ends.keys() == single.ends.keys()
    for key, end_ns in single.ends.items():
        assert gathered.ends[key] == pytest.approx(end_ns, abs=3)
    for one, other in zip(single.capacities, gathered.capacities, strict=True):
        assert other.used == one.used
        assert other.busy_ns == pytest.approx(one.busy_ns, abs=10)
        assert not other.active
        assert other.pool is None


def test_few_flows_stay_as_they_are() -> None:
    """To the ns and whatever the merging; one more than these are merged."""
    flows: list[tuple[tuple[int, ...], float]] = [((0,), 1e5 + number / 8) for number in range(bundles.MOST_SINGLE + 1)]
    for count, ends in ((len(flows) - 1, len(flows) - 1), (len(flows), 1)):
        case = Case([1e6], [Begun(0, flows[:count])])
        assert len(set(Played(case, None).ends.values())) == count
        assert len(set(Played(case, None, is_flow=True).ends.values())) == ends


@given(cases())
def test_ends_of_flows_are_reproducible(case: Case) -> None:
    first, second = Played(case, bundles.MERGED_SHARE), Played(case, bundles.MERGED_SHARE)
    assert list(first.ends.items()) == list(second.ends.items())


# Half of it ahead of the mean or behind it, and what that moves in its turn.
MOVED_SHARE = 2 * bundles.MERGED_SHARE


@given(cases(most_bundles=1), st.booleans())
def test_merging_moves_an_end_by_less_than_a_thousandth_of_the_bundles_time(case: Case, is_alone: bool) -> None:
    case = dataclasses.replace(case, begun=case.begun[:1]) if is_alone else case
    single, merged = Played(case, None), Played(case, bundles.MERGED_SHARE)
    needed_ns = make(single.capacities, case.begun[0].flows, _nothing, 1.0).within_ns
    for key, end_ns in single.ends.items():
        assert merged.ends[key] == pytest.approx(end_ns, abs=MOVED_SHARE * needed_ns + 3)


@given(st.integers(0, 1 << 30), st.integers(3, 14), st.floats(0.0, 4.0))
def test_ends_of_an_uneven_all_to_all_move_by_less_than_a_thousandth(seed: int, ranks: int, skew: float) -> None:
    """Between ranks with a link out and one in, which may be of different rates; far fewer solutions than ends."""
    generator = np.random.default_rng(seed)
    rates = generator.uniform(1e9, 4e9, 2 * ranks)
    pairs = [(source, ranks + target) for source in range(ranks) for target in range(ranks) if source != target]
    flows: list[tuple[tuple[int, ...], float]] = [
        (pair, 1e4 + 1e6 * generator.random() ** (1 + skew)) for pair in pairs
    ]
    case = Case(rates.tolist(), [Begun(0, flows)])
    single, merged = Played(case, None), Played(case, bundles.MERGED_SHARE)
    whole_ns = max(single.ends.values())
    assert merged.ends.keys() == single.ends.keys()
    for key, end_ns in single.ends.items():
        assert merged.ends[key] == pytest.approx(end_ns, abs=MOVED_SHARE * whole_ns + 3)
    assert merged.now_ns == pytest.approx(whole_ns, rel=bundles.MERGED_SHARE, abs=3)


def _nothing(*_: object) -> None:
    pass
