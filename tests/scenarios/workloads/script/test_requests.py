"""How far a rank's process goes on ahead of the answers to what it has asked."""

from __future__ import annotations

from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from threading import RLock, Thread

import pytest

from scenarios.workloads.script.requests import Asking

SYNCHRONIZE, STEP = ((), "synchronize", 0), ((), "step", None)


@pytest.fixture
def simulator() -> tuple[Asking, Connection, list[int | None]]:
    heard: list[int | None] = []
    here, there = Pipe()
    asking = Asking(here, heard.append)
    there.send((None, 0))
    asking.receive()
    return asking, there, heard


def test_what_only_waits_is_not_awaited_on_a_gpu(simulator: tuple[Asking, Connection, list[int | None]]) -> None:
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
        thread = Thread(target=asking.catch_up, args=(lock,), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
    assert asking._connection.poll()  # nobody has taken it
    asking.catch_up(lock)
    assert heard == [0, 1]
