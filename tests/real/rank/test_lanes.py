"""Laws of the one axis."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from real.rank.lanes import Alignment, Mark, RoundTrip, Sight, StreamLane, sight


def test_the_quickest_round_trip_is_believed() -> None:
    slow = RoundTrip(asked_ns=0, there_ns=5_900, answered_ns=1_000)
    quick = RoundTrip(asked_ns=2_000, there_ns=7_010, answered_ns=2_020)
    assert sight([slow, quick]) == Sight(local_ns=2_010, offset_ns=5_000, error_ns=10)


@given(
    offset_ns=st.integers(-(10**18), 10**18),
    there=st.integers(0, 1000),
    back=st.integers(0, 1000),
    asked_ns=st.integers(0, 10**15),
)
def test_the_true_offset_lies_within_the_error(offset_ns: int, there: int, back: int, asked_ns: int) -> None:
    trip = RoundTrip(asked_ns=asked_ns, there_ns=asked_ns + there + offset_ns, answered_ns=asked_ns + there + back)
    seen = sight([trip])
    assert abs(seen.offset_ns - offset_ns) <= seen.error_ns + 1


@given(
    first_ns=st.integers(0, 10**15),
    elapsed_ns=st.integers(1, 10**12),
    parts_per_million=st.integers(-200, 200),
    offset_ns=st.integers(-(10**15), 10**15),
    share=st.fractions(0, 1),
)
def test_an_even_drift_is_taken_out(
    first_ns: int, elapsed_ns: int, parts_per_million: int, offset_ns: int, share: float
) -> None:
    def true(local_ns: int) -> int:
        return local_ns + offset_ns + (local_ns - first_ns) * parts_per_million // 1_000_000

    last_ns = first_ns + elapsed_ns
    first = Sight(local_ns=first_ns, offset_ns=true(first_ns) - first_ns, error_ns=3)
    last = Sight(local_ns=last_ns, offset_ns=true(last_ns) - last_ns, error_ns=7)
    alignment = Alignment(first=first, last=last)
    local_ns = first_ns + int(share * elapsed_ns)
    assert abs(alignment.on_axis_ns(local_ns) - true(local_ns)) <= 2
    assert alignment.residual_ns == 7


def test_a_single_sight_shifts_all_times_equally() -> None:
    assert Alignment(first=Sight(local_ns=5, offset_ns=100, error_ns=1)).on_axis_ns(7) == 107
    assert Alignment().on_axis_ns(7) == 7


class Underway:
    """Stands for gloo's work, and for the entry of its call."""

    start: Mark = 0
    end: Mark | None = None

    def __init__(self) -> None:
        self.future: torch.futures.Future[None] = torch.futures.Future()

    def get_future(self) -> torch.futures.Future[None]:
        return self.future

    def wait(self) -> None:
        """It has ended."""


@pytest.mark.parametrize("is_awaited_first", [False, True])
def test_a_collective_that_is_followed_is_finished_once_whoever_comes_first(is_awaited_first: bool) -> None:
    lane, work, finished = StreamLane(), Underway(), []
    pending = lane.follow(work, work, lambda: finished.append(True))  # type: ignore[arg-type]
    lane.overtakes()
    assert not pending.is_over()
    if is_awaited_first:
        pending.wait()
    else:
        work.future.set_result(None)
    ended = work.end
    assert (pending.is_over(), finished, ended is not None) == (True, [True], True)
    if is_awaited_first:
        work.future.set_result(None)
    else:
        pending.wait()
    assert (finished, work.end) == ([True], ended)
