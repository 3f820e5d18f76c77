"""Measured work of a script's lines: what a busy machine adds to a step does not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from scenarios.modules.describing.host import HostCounter
from scenarios.workloads.script.host.calls import turns_of
from scenarios.workloads.script.host.on_cpu import OnCpu, Recurring
from scenarios.workloads.script.process.simulated import SimulatedLink

HERE, THERE = ("train.py", 7), ("train.py", 9)


def test_work_of_the_first_step_counts_from_1_ms_on_with_what_was_before() -> None:
    recurring = Recurring()
    assert [recurring.add(HERE, each) for each in (700_000, 400_000, 60_000)] == [0, 1_100_000, 60_000]
    assert recurring.add(THERE, 900_000) == 0


def test_a_line_counts_from_a_least_time_up_to_twice_the_most_of_its_earlier_steps() -> None:
    recurring = Recurring()
    recurring.add(HERE, 300_000)
    recurring.end_step()
    assert [recurring.add(HERE, each) for each in (150_000, 350_000, 900_000)] == [0, 500_000, 100_000]
    recurring.end_step()
    assert recurring.add(HERE, 2_000_000) == 2_000_000


def test_a_line_without_earlier_work_counts_once_it_recurs() -> None:
    recurring = Recurring()
    recurring.add(HERE, 300_000)
    for counted_ns in (0, 4_000_000):
        recurring.end_step()
        assert recurring.add(THERE, 4_000_000) == counted_ns


def test_long_work_counts_though_it_never_recurs() -> None:
    recurring = Recurring()
    recurring.end_step()
    assert [recurring.add(HERE, 9_000_000), recurring.add(HERE, 9_000_000)] == [0, 18_000_000]


def test_operators_before_the_first_step_hide_no_loading_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    host = HostCounter()
    on_cpu = OnCpu(cast(SimulatedLink, SimpleNamespace(host=host, is_busy=False)))
    host.all_dispatches = 20_000  # of an evaluation
    on_cpu.end_step()
    host.all_dispatches += 2_000
    with on_cpu.loading():
        on_cpu.count_measured(2_000_000, None)
    assert host.counts().turns == turns_of(1_700_000)
