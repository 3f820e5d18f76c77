"""The periods in which links carried something."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.seam.rank import Rank
from scenarios.seam.trace import LoadRow, Recording
from sim.engine import capacity as loads
from sim.engine.capacity import LEAST_PERIODS, Loads
from sim.engine.machine import Machine
from sim.run import simulate
from tests.lanes import examples
from tests.small import CORE, TCP, Play, cluster, scenario

# When a message begins, how large it is, and whether it goes to the next host or to the next GPU.
MESSAGES = st.lists(st.tuples(st.integers(0, 50_000), st.sampled_from([40, 1448, 5000, 60_000]), st.booleans()))


def carry(messages: list[tuple[int, int, bool]]) -> Machine:
    """Those of rank 0, after the last of them has arrived."""
    machine = Machine(cluster(2, 2))
    for begin_ns, size_bytes, is_far in messages:
        path = machine.fabric.path(0, 2 if is_far else 1)
        machine.clock.call_in(begin_ns, partial(machine.carry, path, size_bytes))  # type: ignore[arg-type]
    machine.clock.run(lambda: None)
    return machine


def by_link(rows: list[LoadRow]) -> dict[str, list[LoadRow]]:
    found: dict[str, list[LoadRow]] = {}
    for row in rows:
        found.setdefault(row.link, []).append(row)
    return found


@examples(60)
@given(MESSAGES)
def test_periods_are_all_of_the_busy_time_and_all_of_the_bytes(messages: list[tuple[int, int, bool]]) -> None:
    machine = carry(messages)
    links = machine.fabric.rows()
    found = by_link(machine.fabric.loads({link.link: 1 for link in links}, machine.clock.now_ns))
    for link in links:
        rows = found.get(link.link, [])
        assert sum(row.bytes_carried for row in rows) == pytest.approx(link.bytes_carried)
        assert all(row.from_ns < row.until_ns for row in rows)
        assert all(one.until_ns <= other.from_ns for one, other in pairwise(rows))
        busy_ns = sum(row.until_ns - row.from_ns for row in rows)
        assert link.busy_ns - 1 <= busy_ns <= link.busy_ns + len(rows) + 1  # a period is of whole ns


def test_a_period_lasts_as_long_as_there_is_no_pause():
    rows = [(0, 60_000, True), (1_000, 40, True), (2_000, 5_000, True), (200_000, 40, True), (200_010, 40, True)]
    machine = carry(rows)
    found = machine.fabric.loads({"host0.nic0.out": 1}, machine.clock.now_ns)
    assert found == [
        LoadRow("host0.nic0.out", "out", 0, 52_000, 65_040.0),  # 65,000 bytes at 1.25 bytes/ns
        LoadRow("host0.nic0.out", "out", 200_000, 200_064, 80.0),
    ]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3000))
def test_putting_together_keeps_bytes_and_ends(links: list[int]) -> None:
    every = Loads(most=500)
    each = [every.of_link() for _ in range(4)]
    counts = [0] * 4
    for moment, number in enumerate(links):
        each[number].add((10 * moment, 10 * moment + 4, 1.0))
        counts[number] += 1
    for one, count in zip(each, counts, strict=True):
        periods = one.periods
        assert sum(size_bytes for _, _, size_bytes in periods) == count
        assert all(before[1] <= after[0] for before, after in pairwise(periods))
        moments = [10 * moment for moment, number in enumerate(links) if number == links[0]]
        if one is each[links[0]]:
            assert (periods[0][0], periods[-1][1]) == (moments[0], moments[-1] + 4)
        assert len(periods) >= min(count, LEAST_PERIODS // 2)
    assert sum(len(one.periods) for one in each) <= max(500, 2 * LEAST_PERIODS * 4)


def test_links_with_few_periods_keep_them_all():
    every = Loads(most=300)
    few, many = every.of_link(), every.of_link()
    for moment in range(LEAST_PERIODS):
        few.add((moment, moment + 1, 1.0))
    for moment in range(1000):
        many.add((moment, moment + 1, 1.0))
    assert len(few.periods) == LEAST_PERIODS
    assert len(many.periods) < 300 - LEAST_PERIODS + 1


def play() -> Recording:
    """Collectives over TCP."""

    async def program(rank: Rank) -> None:
        for _ in range(6):
            await rank.all_reduce(torch.ones(10_000))

    return simulate(scenario(cluster(3, 1, gpu=CORE, tcp=TCP)), Play(program))


def test_segments_of_tcp_count_and_few_periods_are_as_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play()
    monkeypatch.setattr(loads.Loads.__init__, "__defaults__", (1,))
    fewer = play()
    assert fewer.spans == whole.spans
    assert len(fewer.loads) < len(whole.loads)
    for recording in (whole, fewer):
        found = by_link(recording.loads)
        for link in recording.links:
            rows = found.get(link.link, [])
            assert sum(row.bytes_carried for row in rows) == pytest.approx(link.bytes_carried)
