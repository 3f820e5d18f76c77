"""Cases that are played after one another are told apart by their order."""

from __future__ import annotations

import dataclasses

from benchmarks import accuracy
from benchmarks.accuracy import WARM_UP, Case, Cases, Row, cases, steps, times_s
from reports.analysis.statistics import sample
from scenarios.config.hardware import Link, Nics
from sim.run import simulate
from tests.small import cluster, scenario

RATE = 1e9


def test_times_are_attributed_to_their_cases() -> None:
    """On an ideal network a call of twice the bytes takes about twice as long."""
    nics = Nics(per="host", count=1, link=Link(bytes_per_s=RATE, latency_ns=1000))
    on = dataclasses.replace(scenario(cluster(2, 1, nics=nics)).with_run(payload="sizes"), program="collective")
    counts = [steps(case, 2) for case in cases(RATE)]
    found = dict(zip(cases(RATE), times_s(simulate(on, Cases(on, 2)), counts), strict=True))
    assert [len(times) + WARM_UP for times in found.values()] == counts
    reduces = {case.size_bytes: times[0] for case, times in found.items() if case.op == "all_reduce"}
    for size_bytes, taken_s in reduces.items():
        if size_bytes >= 256 << 10:
            assert abs(taken_s * RATE / size_bytes - 1) < 0.15, (size_bytes, taken_s)
    uneven = next(
        times for case, times in found.items() if case.op == "all_to_all random" and case.size_bytes > 1 << 22
    )
    assert len(set(uneven)) > 2


def test_there_are_more_steps_of_what_is_quick() -> None:
    by_size = {case.size_bytes: case.steps for case in cases(25e6) if case.op == "broadcast"}
    assert sorted(by_size.values(), reverse=True) == [by_size[size] for size in sorted(by_size)]
    assert min(by_size.values()) >= WARM_UP + 10


def test_a_row_knows_whether_an_error_says_much() -> None:
    steady, loose = sample([1.0, 1.01, 1.02]), sample([1.0, 1.5, 2.0])
    row = Row("1gbit", "2x1", Case("all_reduce", 64 << 10, 20), sample([1.1, 1.1, 1.2]), steady)
    assert row.is_steady
    assert not row.is_inside
    assert abs(row.error - (1.1 / 1.01 - 1)) < 1e-12
    assert not dataclasses.replace(row, measured=loose).is_steady
    assert not dataclasses.replace(row, case=Case("all_reduce", 4 << 10, 20)).is_steady
    assert accuracy.WORLDS == ("2x1", "4x1", "2x2")
