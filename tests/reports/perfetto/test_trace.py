from __future__ import annotations

import dataclasses
import io
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from reports.perfetto import trace as perfetto
from reports.perfetto.trace import Counters
from reports.run import Run
from reports.store.parts import SpansInMemory
from scenarios.seam.trace import LinkRow, LoadRow, Recording
from tests.reports.recordings import PATIENT, by_hand, info, link, recordings, span, with_loads, with_spans


def counters_of(recording: Recording) -> Counters:
    run = Run.of(recording)
    return Counters.of(run._link_rows, run.loads)


def trace(recording: Recording) -> dict[str, Any]:
    run, stream = Run.of(recording), io.StringIO()
    perfetto.write(SpansInMemory(run.spans), run.info, stream, counters_of(recording))
    found: dict[str, Any] = json.loads(stream.getvalue())
    return found


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


def show(recording: Recording) -> list[tuple[str, int, float, float]]:
    """Each event's name, process, time in ns from the run's first span, and percent."""
    counted = events(recording, "C")
    return [(event["name"], event["pid"], event["ts"] * 1000, event["args"]["%"]) for event in counted]


def many(links: int, periods: int) -> Recording:
    """Links of one byte per ns, the later the fuller, at work for every other ns."""
    rows = [link(f"nic{number}", "nic", "out", float(periods * (number + 1)), periods) for number in range(links)]
    loads = [
        LoadRow(one.link, "out", 2 * at, 2 * at + 1, one.bytes_carried / periods)
        for one in rows
        for at in range(periods)
    ]
    return dataclasses.replace(by_hand(), links=rows, loads=loads)


def test_a_counter_has_the_mean_load_of_each_period_and_nothing_between_them():
    assert show(with_loads(by_hand())) == [
        ("nic1", 0, 0, 90.0),
        ("nic1", 0, 100, 0.0),
        ("nic1", 0, 120, 75.0),
        ("nic1", 0, 200, 0.0),
        ("nic0", 0, 10, 50.0),
        ("nic0", 0, 60, 50.0),
        ("nic0", 0, 160, 0.0),
        ("hbm0", 0, 5, 75.0),
        ("hbm0", 0, 45, 0.0),
    ]


def test_links_between_leafs_are_in_a_process_of_their_own():
    recording = with_loads(by_hand())
    links = [dataclasses.replace(one, link_class="uplink", host=1) for one in recording.links]
    recording = dataclasses.replace(recording, links=links)
    assert {process for _, process, _, _ in show(recording)} == {2}
    assert names(recording, "process_name") == {0: "host 0 host-a", 1: "host 1 host-b", 2: "network"}


def test_a_link_that_stands_for_others_says_so():
    recording = with_loads(by_hand())
    links: list[LinkRow] = [dataclasses.replace(one, link_count=4) for one in recording.links]
    assert {name for name, *_ in show(dataclasses.replace(recording, links=links))} == {
        "nic0 & 3 more",
        "nic1 & 3 more",
        "hbm0 & 3 more",
    }


def test_a_run_without_loads_has_no_counters():
    assert show(by_hand()) == []
    assert trace(by_hand())["otherData"]["links_without_counter"] == 0


@pytest.mark.parametrize(("links", "periods"), [(2, 1000), (8, 100), (50, 40)])
def test_events_are_bounded_and_links_that_carry_most_come_first(monkeypatch, links, periods):
    monkeypatch.setattr(perfetto, "_PERIODS_MAX", 200)
    monkeypatch.setattr(perfetto, "_PERIODS_LEAST", 10)
    recording = many(links, periods)
    found = counters_of(recording)
    events = list(found.events())
    assert len(events) <= 400
    names = list(dict.fromkeys(event.link for event in events))
    assert names == [f"nic{links - 1 - place}" for place in range(len(names))]
    assert trace(recording)["otherData"]["links_without_counter"] == found.left_out == links - len(names)
    for name in names:  # neighbours that are put together carry as much
        own = [event for event in events if event.link == name]
        moved = sum(one.percent / 100 * (other.at_ns - one.at_ns) for one, other in pairwise(own))
        assert moved == pytest.approx(periods * (int(name[3:]) + 1))
