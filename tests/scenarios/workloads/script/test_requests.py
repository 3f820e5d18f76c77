"""How far a rank's process goes on ahead of the answers to what it has asked."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from threading import RLock, Thread, Timer

import pytest

from scenarios.workloads.recording.events.notes import StepEnd
from scenarios.workloads.recording.events.waits import Synchronize
from scenarios.workloads.recording.events.work import Turn
from scenarios.workloads.script.requests import Asking

SYNCHRONIZE, STEP = Turn((), Synchronize(0)), Turn((), StepEnd())


@pytest.fixture
def simulator() -> tuple[Asking, Connection, list[int | None]]:
    heard: list[int | None] = []
    here, there = Pipe()
    asking = Asking(here, heard.append)
    there.send((None, 0))
    asking.receive()
    return asking, there, heard


def test_pure_waits_are_not_awaited_on_a_gpu(simulator: tuple[Asking, Connection, list[int | None]]) -> None:
    asking, there, heard = simulator
    for _ in range(3):
        assert asking.ask(SYNCHRONIZE, is_on_gpu=True) is None
    assert heard == [0]
    for number in range(1, 5):
        there.send((f"answer {number}", number))
    assert asking.ask(STEP, is_on_gpu=True) == "answer 4"
    assert heard == [0, 1, 2, 3, 4]
    assert not asking.behind


def test_a_process_is_at_most_sixteen_answers_ahead(simulator: tuple[Asking, Connection, list[int | None]]) -> None:
    asking, there, heard = simulator
    there.send((None, 1))
    for _ in range(17):
        asking.ask(SYNCHRONIZE, is_on_gpu=True)
    assert asking.behind == 16
    assert heard == [0, 1]


def test_a_cpu_whose_time_is_measured_awaits_each_answer(
    simulator: tuple[Asking, Connection, list[int | None]],
) -> None:
    asking, there, heard = simulator
    there.send((None, 1))
    asking.ask(SYNCHRONIZE, is_on_gpu=False)
    assert heard == [0, 1]


@contextmanager
def alarm(after_s: float, asking: Asking) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: asking.receive())
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signals_handler_that_reads_the_time_takes_no_answer(
    simulator: tuple[Asking, Connection, list[int | None]],
) -> None:
    asking, there, heard = simulator

    def answer() -> None:
        there.send(("answer", 1))
        there.close()

    with alarm(0.05, asking):
        Timer(0.3, answer).start()
        assert asking.ask(STEP, is_on_gpu=False) == "answer"
    assert heard == [0, 1]
    assert not asking.behind


def test_an_answer_that_cannot_be_unpickled_is_behind_no_longer(
    simulator: tuple[Asking, Connection, list[int | None]],
) -> None:
    asking, there, _ = simulator
    there.send_bytes(b"no pickle")
    with pytest.raises(pickle.UnpicklingError):
        asking.ask(STEP, is_on_gpu=False)
    assert not asking.behind
    there.send(("answer", 1))
    assert asking.ask(STEP, is_on_gpu=False) == "answer"


def test_a_fork_and_a_thread_leave_answers_to_whom_they_are_for(
    simulator: tuple[Asking, Connection, list[int | None]],
) -> None:
    """Whoever reads the clock there goes on at once."""
    asking, there, heard = simulator
    asking.ask(SYNCHRONIZE, is_on_gpu=True)
    there.send((None, 1))
    lock = RLock()
    with lock:  # held as the child forks, and by the thread that asks
        child = get_context("fork").Process(target=asking.catch_up, args=(lock,))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        asking._is_talking = True
        thread = Thread(target=asking.catch_up, args=(lock,), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        asking._is_talking = False
    assert asking._connection.poll()  # nobody has taken it
    asking.catch_up(lock)
    assert heard == [0, 1]
