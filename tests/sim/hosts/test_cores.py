"""Threads that take turns on cores, and sleepers that wake up late."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from sim.clock import Clock
from sim.hosts.cores import Cores, Thread, Wakes
from tests.small import TCP

MS = 1_000_000


class Host:
    """Cores with threads; `ends` says when which work was over."""

    def __init__(self, cores: int, stay_share: float = 0.0) -> None:
        self.clock, self.ends = Clock(), dict[str, int]()
        self.cores = Cores(self.clock, cores, stay_share)

    def thread(self, *, sleeps: bool = False) -> Thread:
        return Thread(self.cores, Wakes(self.clock, TCP, None), sleeps=sleeps)

    def over(self, name: str) -> Callable[[], None]:
        return lambda: self.ends.__setitem__(name, self.clock.now_ns)

    def work(self, work_ns: float, *names: str, at_ns: int = 0, by: Thread | None = None) -> None:
        """Run work from a time on, each by a thread that does nothing else, or all by one of its own."""
        for name in names:
            run = partial((by or self.thread()).run, work_ns, self.over(name))
            if at_ns:
                self.clock.call_in(at_ns, run)
            else:
                run()

    def run(self) -> dict[str, int]:
        self.clock.run()
        return self.ends


def test_more_threads_than_cores_take_turns() -> None:
    """Three of 100 ms on two cores: 150 ms for all, but for what a tick leaves of a slice; who is idle takes over."""
    host = Host(2)
    host.work(100 * MS, "a", "b", "c")
    ends = host.run().values()
    assert max(ends) == pytest.approx(150 * MS, abs=4 * MS)
    assert min(ends) >= 96 * MS


def test_threads_that_stay_leave_a_core_idle() -> None:
    """Two share one core to the end, though the third is through."""
    host = Host(2, stay_share=1.0)
    host.work(100 * MS, "a", "b", "c")
    assert sorted(host.run().values()) == [100 * MS, pytest.approx(196 * MS, abs=4 * MS), 200 * MS]


@pytest.mark.parametrize(("stay_share", "end_us"), [(0.0, 3_100), (1.0, 5_000)])
def test_a_thread_whose_core_is_busy_moves_to_an_idle_core_unless_it_stays(stay_share: float, end_us: int) -> None:
    """If it stays, it has its turn with the tick at 4 ms."""
    host = Host(2, stay_share)
    host.work(MS // 2, "thread", by=(thread := host.thread()))
    host.work(MS, "on the other core")
    host.work(3 * MS, "on the core that has been idle for longer", at_ns=2 * MS)
    host.work(MS, "thread", at_ns=2 * MS + 100_000, by=thread)
    assert host.run()["thread"] == end_us * 1000


def test_a_woken_thread_interrupts_long_work() -> None:
    """What had run for a slice steps aside at once; before, it does when the next tick comes after a slice."""
    host = Host(1)
    host.work(100 * MS, "long")
    host.work(1000, "short", at_ns=2 * MS)
    host.work(1000, "too early", at_ns=3 * MS)
    ends = host.run()
    assert ends["short"] == 2 * MS + 1000
    assert ends["too early"] == 4 * MS + 1000 + (ends["too early"] > 5 * MS) * 4 * MS
    assert ends["long"] == 100 * MS + 2000


def test_woken_threads_run_before_interrupted_ones() -> None:
    """Two take turns at ticks; who comes in between is next."""
    host = Host(1)
    host.work(10 * MS, "a", "b")
    host.work(1000, "woken", at_ns=4 * MS + 1000)
    assert host.run()["woken"] == 8 * MS + 1000


def test_short_work_is_served_in_order() -> None:
    host = Host(1)
    host.work(10_000, "a", "b", "c")
    assert host.run() == {"a": 10_000, "b": 20_000, "c": 30_000}


def test_a_thread_goes_on_before_others_get_its_core() -> None:
    """What follows on its work at once, it does at once."""
    host = Host(1)
    thread = host.thread()
    thread.run(1000, lambda: thread.run(2000, host.over("second")))
    host.work(5000, "other")
    assert host.run() == {"second": 3000, "other": 8000}


def test_a_thread_that_is_awake_does_not_wake_up_again() -> None:
    host = Host(1)
    host.work(1000, "first", "second", by=host.thread(sleeps=True))
    assert host.run() == {"first": TCP.wake_ns + 1000, "second": TCP.wake_ns + 2000}


def test_a_core_that_was_at_work_just_now_wakes_up_soon() -> None:
    host = Host(1)
    thread = host.thread(sleeps=True)
    host.work(1000, "before")
    host.work(1000, "soon", at_ns=1000 + TCP.nap_ns - 1, by=thread)
    host.work(1000, "late", at_ns=10 * MS, by=thread)
    ends = host.run()
    assert ends["soon"] == TCP.nap_ns + 1999 + TCP.wake_soon_ns
    assert ends["late"] == 10 * MS + TCP.wake_ns + 1000


def test_with_all_cores_busy_a_thread_has_no_wake_up_latency() -> None:
    host = Host(1)
    host.work(10_000, "busy")
    host.work(1000, "woken", by=host.thread(sleeps=True))
    assert host.run() == {"busy": 10_000, "woken": 11_000}
