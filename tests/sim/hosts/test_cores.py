"""Threads that take turns on cores, and sleepers that wake up late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.clock import Clock
from sim.hosts.cores import Cores, Thread, Wakes
from tests.small import TCP

MS = 1_000_000


def note(clock: Clock, times: dict[str, int], name: str) -> Callable[[], None]:
    """Writes down when it is called."""

    def note() -> None:
        times[name] = clock.now_ns

    return note


def a_thread(cores: Cores, *, sleeps: bool = False) -> Thread:
    return Thread(cores, Wakes(Clock(), TCP, None), sleeps=sleeps)


def run(cores: Cores, work_ns: float, then: Callable[[], None]) -> None:
    """By a thread that does nothing else."""
    cores.run(a_thread(cores), work_ns, then)


def test_more_threads_than_cores_take_turns() -> None:
    """Three of 100 ms on two cores: 150 ms for all, but for what a tick leaves of a slice; who is idle takes over."""
    clock, times = Clock(), {}
    cores = Cores(clock, 2)
    for name in "abc":
        run(cores, 100 * MS, note(clock, times, name))
    clock.run()
    assert max(times.values()) == pytest.approx(150 * MS, abs=4 * MS)
    assert min(times.values()) >= 96 * MS


def test_threads_that_stay_leave_a_core_idle() -> None:
    """Two share one core to the end, though the third is through."""
    clock, times = Clock(), {}
    cores = Cores(clock, 2, stay_share=1.0)
    for name in "abc":
        run(cores, 100 * MS, note(clock, times, name))
    clock.run()
    assert sorted(times.values())[0] == 100 * MS
    assert sorted(times.values())[1:] == [pytest.approx(196 * MS, abs=4 * MS), 200 * MS]


@pytest.mark.parametrize(("stay_share", "end_us"), [(0.0, 3_100), (1.0, 5_000)])
def test_a_thread_whose_core_is_busy_moves_to_an_idle_core_unless_it_stays(stay_share: float, end_us: int) -> None:
    """If it stays, it has its turn with the tick at 4 ms."""
    clock, times = Clock(), {}
    cores = Cores(clock, 2, stay_share)
    thread = a_thread(cores)
    cores.run(thread, MS // 2, lambda: None)
    run(cores, MS, lambda: None)  # on the other core
    clock.call_in(2 * MS, lambda: run(cores, 3 * MS, lambda: None))  # on the one that has been idle for longer
    clock.call_in(2 * MS + 100_000, lambda: cores.run(thread, MS, note(clock, times, "thread")))
    clock.run()
    assert times == {"thread": end_us * 1000}


def test_a_woken_thread_interrupts_long_work() -> None:
    """What had run for a slice steps aside at once; before, it does when the next tick comes after a slice."""
    clock, times = Clock(), {}
    cores = Cores(clock, 1)
    run(cores, 100 * MS, note(clock, times, "long"))
    clock.call_in(2 * MS, lambda: run(cores, 1000, note(clock, times, "short")))
    clock.call_in(3 * MS, lambda: run(cores, 1000, note(clock, times, "too early")))
    clock.run()
    assert times["short"] == 2 * MS + 1000
    assert times["too early"] == 4 * MS + 1000 + (times["too early"] > 5 * MS) * 4 * MS
    assert times["long"] == 100 * MS + 2000


def test_woken_threads_run_before_interrupted_ones() -> None:
    """Two take turns at ticks; who comes in between is next."""
    clock, times = Clock(), {}
    cores = Cores(clock, 1)
    for name in "ab":
        run(cores, 10 * MS, note(clock, times, name))
    clock.call_in(4 * MS + 1000, lambda: run(cores, 1000, note(clock, times, "woken")))
    clock.run()
    assert times["woken"] == 8 * MS + 1000


def test_short_work_is_served_in_order() -> None:
    clock, times = Clock(), {}
    cores = Cores(clock, 1)
    for name in "abc":
        run(cores, 10_000, note(clock, times, name))
    clock.run()
    assert times == {"a": 10_000, "b": 20_000, "c": 30_000}


def test_a_thread_goes_on_before_others_get_its_core() -> None:
    """What follows on its work at once, it does at once."""
    clock, times = Clock(), {}
    cores = Cores(clock, 1)
    thread = Thread(cores, Wakes(clock, TCP, None), sleeps=False)
    thread.run(1000, lambda: thread.run(2000, note(clock, times, "second")))
    run(cores, 5000, note(clock, times, "other"))
    clock.run()
    assert times == {"second": 3000, "other": 8000}


def test_a_thread_that_is_awake_does_not_wake_up_again() -> None:
    clock, times = Clock(), {}
    thread = Thread(Cores(clock, 1), Wakes(clock, TCP, None), sleeps=True)
    thread.run(1000, note(clock, times, "first"))
    thread.run(1000, note(clock, times, "second"))
    clock.run()
    assert times == {"first": TCP.wake_ns + 1000, "second": TCP.wake_ns + 2000}


def test_a_core_that_was_at_work_just_now_wakes_up_soon() -> None:
    clock, times = Clock(), {}
    cores = Cores(clock, 1)
    run(cores, 1000, note(clock, times, "before"))
    thread = Thread(cores, Wakes(clock, TCP, None), sleeps=True)
    clock.call_in(1000 + TCP.nap_ns - 1, lambda: thread.run(1000, note(clock, times, "soon")))
    clock.call_in(10 * MS, lambda: thread.run(1000, note(clock, times, "late")))
    clock.run()
    assert times["soon"] == TCP.nap_ns + 1999 + TCP.wake_soon_ns
    assert times["late"] == 10 * MS + TCP.wake_ns + 1000


def test_with_all_cores_busy_a_thread_has_no_wake_up_latency() -> None:
    clock, times = Clock(), {}
    cores = Cores(clock, 1)
    run(cores, 10_000, note(clock, times, "busy"))
    Thread(cores, Wakes(clock, TCP, None), sleeps=True).run(1000, note(clock, times, "woken"))
    clock.run()
    assert times == {"busy": 10_000, "woken": 11_000}
