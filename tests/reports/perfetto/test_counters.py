"""The load of links in the trace."""

from __future__ import annotations

import dataclasses
import io
import json
from itertools import pairwise
from typing import Any

import pytest

from reports.perfetto import trace as perfetto
from reports.perfetto.trace import Counters
from reports.run import Run
from reports.store.parts import SpansInMemory
from scenarios.seam.trace import LinkRow, LoadRow, Recording
from tests.reports.recordings import by_hand, link, with_loads


def counters_of(recording: Recording) -> Counters:
    run = Run.of(recording)
    return Counters.of(run._link_rows, run.loads)


def trace(recording: Recording) -> dict[str, Any]:
    run, stream = Run.of(recording), io.StringIO()
    perfetto.write(SpansInMemory(run.spans), run.info, stream, counters_of(recording))
    found: dict[str, Any] = json.loads(stream.getvalue())
    return found


def show(recording: Recording) -> list[tuple[str, int, float, float]]:
    """Each event's name, process, time in ns from the run's first span, and percent."""
    events = [event for event in trace(recording)["traceEvents"] if event["ph"] == "C"]
    return [(event["name"], event["pid"], event["ts"] * 1000, event["args"]["%"]) for event in events]


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
    names = [event for event in trace(recording)["traceEvents"] if event["name"] == "process_name"]
    assert {event["pid"]: event["args"]["name"] for event in names} == {
        0: "host 0 host-a",
        1: "host 1 host-b",
        2: "network",
    }


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
