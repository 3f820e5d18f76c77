from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given

from reports.perfetto import trace as perfetto
from reports.run import Run
from reports.store.parts import SpansInMemory
from scenarios.seam.trace import Recording
from tests.reports.recordings import PATIENT, by_hand, info, recordings, span, with_spans


def trace(recording: Recording) -> dict[str, Any]:
    stream = io.StringIO()
    run = Run.of(recording)
    perfetto.write(SpansInMemory(run.spans), run.info, stream)
    return json.loads(stream.getvalue())


def events(recording: Recording, phase: str) -> list[dict[str, Any]]:
    return [event for event in trace(recording)["traceEvents"] if event["ph"] == phase]


def names(recording: Recording, what: str) -> dict[int, str]:
    key = "pid" if what == "process_name" else "tid"
    return {event[key]: event["args"]["name"] for event in events(recording, "M") if event["name"] == what}


def test_hosts_are_processes_and_ranks_and_streams_are_threads():
    recording = with_spans(
        by_hand(),
        span(0, "step", 0, 9),
        span(0, "compute", 0, 9),
        span(1, "all_reduce", 0, 9, stream="side"),
        span(1, "all_reduce", 5, 12, stream="side"),
    )
    assert names(recording, "process_name") == {0: "host 0 host-a", 1: "host 1 host-b"}
    threads = names(recording, "thread_name")
    assert sorted(threads.values()) == [
        "rank 0 main",
        "rank 0 steps",
        "rank 1 side communication",
        "rank 1 side communication 2",
    ]
    first = events(recording, "X")[0]
    assert (first["pid"], threads[first["tid"]], first["name"]) == (0, "rank 0 steps", "step 0")


def test_a_slice_carries_what_its_span_says():
    late = span(1, "all_reduce", 2_000_123, 2_001_456, label='a "b"', step=3, group="world", call=2, bytes_sent=17)
    event = events(with_spans(by_hand(), span(0, "compute", 1_000_000, 1_000_001), late), "X")[1]
    assert (event["name"], event["cat"], event["ts"], event["dur"]) == ('a "b"', "all_reduce", 1000.123, 1.333)
    assert event["args"]["step"] == 3
    assert event["args"]["bytes_sent"] == 17
    assert event["args"]["label"] == 'a "b"'


def test_arrows_go_from_the_member_that_entered_last_to_those_that_waited():
    recording = by_hand()
    threads = names(recording, "thread_name")
    starts, ends = events(recording, "s"), events(recording, "f")
    assert [event["ts"] for event in starts] == [event["ts"] for event in ends] == [0.06, 0.16, 0.26]
    assert [event["id"] for event in starts] == [event["id"] for event in ends] == [1, 2, 3]
    assert {threads[event["tid"]] for event in starts} == {"rank 1 main communication"}
    assert {threads[event["tid"]] for event in ends} == {"rank 0 main communication"}
    assert {event["bp"] for event in ends} == {"e"}


def test_exchanges_of_very_many_members_have_no_arrows():
    def members(count: int) -> Recording:
        return with_spans(by_hand(), *(span(rank, "barrier", 0, 9, group="world", call=0) for rank in range(count)))

    assert len(events(members(perfetto.ARROW_MEMBERS_MAX), "s")) == perfetto.ARROW_MEMBERS_MAX - 1
    assert events(members(perfetto.ARROW_MEMBERS_MAX + 1), "s") == []


@PATIENT
@given(recordings())
def test_slices_of_one_thread_never_overlap_and_none_is_lost(recording):
    slices = events(recording, "X")
    assert len(slices) == len(recording.spans)
    threads: dict[int, list[tuple[int, int]]] = {}
    for event in slices:
        start = round(event["ts"] * 1000)
        threads.setdefault(event["tid"], []).append((start, start + round(event["dur"] * 1000)))
    for placed in threads.values():
        assert all(left[1] <= right[0] for left, right in zip(placed, placed[1:], strict=False))  # noqa: RUF007
    assert sum(end - start for placed in threads.values() for start, end in placed) == sum(
        one.end_ns - one.start_ns for one in recording.spans
    )


def test_a_run_without_spans_is_a_trace_without_events():
    assert trace(Recording(info=info()))["traceEvents"] == []
