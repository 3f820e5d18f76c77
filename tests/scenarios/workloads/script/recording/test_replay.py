"""Ranks of one class: what they may ask otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.workloads.recording.events.waits import Query, Sleep, SynchronizeEvent
from scenarios.workloads.recording.lines import parse_line
from scenarios.workloads.script.recording.replay import GroupsByFamily, Replay, difference

LOOK, WAIT, STEP = ["query", "event", 0], ["synchronize_event", 0], ["step"]


def replay(rank: int, *lines: list[Any]) -> Replay:
    given = [parse_line(line) for line in (["event", 0], *lines, STEP)]
    return Replay(given, range(len(given)), GroupsByFamily(rank, rank, 2))


@pytest.mark.parametrize(
    ("one", "two", "parts_at"),
    [
        ([LOOK, LOOK, WAIT], [LOOK] * 7 + [WAIT], None),
        ([LOOK, LOOK, WAIT], [LOOK, LOOK, WAIT, LOOK, LOOK, WAIT, LOOK], None),
        ([LOOK], [LOOK, LOOK], None),
        ([LOOK, LOOK, WAIT], [LOOK], "polls keep only one of them waiting before a step's end (request 1)"),
        ([LOOK, WAIT], [WAIT], None),
        ([LOOK, WAIT], [LOOK], "a wait for an event is not a step's end (request 1)"),
    ],
    ids=str,
)
def test_polls_part_ranks_only_where_one_alone_waits(one: Any, two: Any, parts_at: str | None) -> None:
    for first, second in ((one, two), (two, one)):
        found = difference(replay(0, *first), replay(1, *second), steps=1)
        assert (found is None) == (parts_at is None)
    assert difference(replay(0, *one), replay(1, *two), steps=1) == parts_at


def test_a_loop_with_sleeps_ends_at_the_first_look_that_finds_over_what_it_waits_for() -> None:
    sleep = ["sleep", 1_000]
    found = replay(0, LOOK, sleep, LOOK, sleep, LOOK, WAIT)
    asked = []
    for answer in (False, 1_000, True, None):
        asked.append(found.next().request)
        found.answer(answer)
    assert asked == [Query("event", 0), Sleep(1_000), Query("event", 0), SynchronizeEvent(0)]
