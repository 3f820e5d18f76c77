"""When a collective truly started follows from when those before it on its group ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from real.rank.journal import Entry, Journal, span, with_true_starts
from real.rank.lanes import StreamLane
from scenarios.seam.kernel import Kernel, PricedLater, elementwise, together
from scenarios.seam.operations.as_json import text_of
from scenarios.seam.operations.products import linear
from scenarios.seam.trace import Span


def call(index: int, issued_ns: int, end_ns: int, *, rank: int = 0, group: str = "world") -> Span:
    return Span(
        rank=rank,
        host=0,
        stream="main",
        step=0,
        sequence=index,
        kind="all_reduce",
        label="",
        group=group,
        call=index,
        issued_ns=issued_ns,
        start_ns=issued_ns,
        end_ns=end_ns,
        wait_from_ns=end_ns,
        wait_until_ns=end_ns,
    )


def starts(spans: list[Span], lanes: int) -> list[int]:
    return [item.start_ns for item in with_true_starts(spans, lanes)]


def test_a_call_starts_when_a_worker_of_its_group_is_free() -> None:
    calls = [call(0, 0, 100), call(1, 1, 50), call(2, 2, 120), call(3, 3, 130)]
    assert starts(calls, lanes=1) == [0, 50, 50, 120]  # call 1 ended before call 0: so it had begun before
    assert starts(calls, lanes=2) == [0, 1, 50, 100]


def test_other_groups_and_ranks_do_not_matter() -> None:
    calls = [call(0, 0, 100), call(0, 1, 200, group="intra:0"), call(0, 2, 300, rank=1)]
    assert starts(calls, lanes=1) == [0, 1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12),
    st.integers(1, 3),
)
def test_a_start_is_never_before_the_issue_nor_after_the_end(times: list[tuple[int, int]], lanes: int) -> None:
    calls, now_ns = [], 0
    for index, (gap_ns, length_ns) in enumerate(times):
        now_ns += gap_ns
        calls.append(call(index, now_ns, now_ns + length_ns))
    for item in with_true_starts(calls, lanes):
        assert item.issued_ns <= item.start_ns <= item.end_ns


def test_a_stream_and_who_waits_for_its_coroutine_wait_both() -> None:
    """The caller stands in the spawn, the coroutine in its collective: either may end first, the other still waits."""
    lane, journal = StreamLane(), Journal(0, 0, 2)
    spawned, inside = (
        Entry(lane, "side", kind, "x", sequence=number) for number, kind in enumerate(("spawn", "all_reduce"))
    )
    journal.wait_begins(inside)
    journal.wait_begins(spawned)
    assert list(journal.waiting) == [inside, spawned]
    journal.wait_ends(spawned, has_waited=True)
    assert list(journal.waiting) == [inside]


def test_unfinished_entries_stay_in_order() -> None:
    journal, lane = Journal(1, 0, 2), StreamLane()
    entries = [Entry(lane, "main", "compute", name, sequence=at) for at, name in enumerate("abc")]
    for entry in entries:
        journal.keep(entry)
    for entry in (entries[1], entries[0]):
        entry.end = lane.mark()
    journal.wait_begins(entries[1])
    journal.wait_ends(entries[1], has_waited=False)
    assert [span(row).label for row in journal.take()[0]] == ["b"]
    assert [span(row).label for row in journal.take()[0]] == []
    assert [entry.label for entry in journal.unawaited] == ["a", "c"]
    last = [span(row) for row in journal.take(is_last=True)[0]]
    assert [(item.label, item.wait_from_ns, item.wait_until_ns) for item in last] == [("a", -1, -1)]


PRODUCT = linear(64, 32, 16, "float32", element_bytes=4)
GEMM = Kernel(kind="gemm", operations=(PRODUCT,))


@pytest.mark.parametrize(
    ("kernel", "described"),
    [
        (GEMM, True),
        (lambda: GEMM, True),
        (together([GEMM]), True),
        (together([GEMM, elementwise(8)]), False),
        (GEMM.times(2), False),
        (together([GEMM, GEMM]), False),
        (replace(GEMM, operations=(PRODUCT, PRODUCT)), False),
        (replace(GEMM, operations=()), False),
        (replace(GEMM, host_read=8.0), False),
        (replace(GEMM, lasts_ns=8), False),
    ],
)
def test_a_computation_says_the_operator_that_all_of_it_was(kernel: PricedLater, described: bool) -> None:
    lane = StreamLane()
    entry = Entry(lane, "main", "compute", "x", sequence=0)
    entry.kernel, entry.end = kernel, lane.mark()
    made = span(entry.row(0, 0))
    assert made.operations == (text_of((PRODUCT,)) if described else "")


def test_a_collective_says_no_operator() -> None:
    lane = StreamLane()
    entry = Entry(lane, "main", "step", "step 0", sequence=0)
    entry.end = lane.mark()
    assert span(entry.row(0, 0)).operations == ""
