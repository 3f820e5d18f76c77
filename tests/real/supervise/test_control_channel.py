"""A rank and the supervisor over a true connection, in one process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from real.supervise.control_channel import STEP_S, ControlChannel
from real.supervise.rank_status import RankStatusTable
from real.supervise.supervisor import Supervisor


class Office:
    """A supervisor that listens on a thread."""

    def __init__(self) -> None:
        self.table = RankStatusTable(2, 30.0, time.monotonic(), sees_exits=False)
        self.supervisor = Supervisor("127.0.0.1", self.table, "secret")
        self._is_open = True
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def close(self) -> None:
        self._is_open = False
        self._thread.join(5.0)
        self.supervisor.close()

    def _listen(self) -> None:
        while self._is_open:
            self.supervisor.hear(time.monotonic(), 0.01)


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < end_s, "it did not come to pass within 5 s"
        time.sleep(0.005)


def line(office: Office, token: str, heard: list[str]) -> ControlChannel:
    return ControlChannel(
        office.supervisor.address, 1, token, timeout_s=5.0, on_stop=heard.append, on_cut=lambda: heard.append("cut")
    )


def test_a_rank_is_heard_until_it_is_done(office: Office) -> None:
    heard: list[str] = []
    ours = line(office, "secret", heard)
    ours.say({"step": 7})
    until(lambda: office.table.members[1].step == 7)
    assert office.table.members[1].is_here
    ours.close()
    until(lambda: office.table.members[1].is_done)
    assert heard == []
    assert not office.table.members[0].is_here


def test_last_of_many_steps_is_reported_and_few_others(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    hear = RankStatusTable.hear

    def hears(table: RankStatusTable, rank: int, message: Mapping[str, Any], now_s: float) -> None:
        told.extend([message["step"]] if "step" in message else [])
        hear(table, rank, message, now_s)

    monkeypatch.setattr(RankStatusTable, "hear", hears)
    began_s = time.monotonic()
    ours = line(office, "secret", [])
    for index in range(20_000):
        ours.step = index
        time.sleep(0.0 if index % 100 else 1e-4)
    until(lambda: office.table.members[1].step == 19_999)
    ours.close()
    until(lambda: office.table.members[1].is_done)
    assert told == sorted(set(told))
    assert 1 <= len(told) <= (time.monotonic() - began_s) / STEP_S + 1


def test_long_step_is_reported_before_its_end(office: Office) -> None:
    ours = line(office, "secret", [])
    for index in range(3):
        ours.step = index
    until(lambda: office.table.members[1].step == 2)
    ours.close()
    until(lambda: office.table.members[1].is_done)


def test_rank_receives_the_end_of_the_run(office: Office) -> None:
    heard: list[str] = []
    line(office, "secret", heard)
    until(lambda: office.table.members[1].is_here)
    office.supervisor.stop("the run is over")
    until(lambda: heard)
    assert heard == ["the run is over"]


def test_the_clock_of_one_machine_is_one_clock(office: Office) -> None:
    ours = line(office, "secret", [])
    seen = ours.look()
    ours.close()
    assert abs(seen.offset_ns) <= seen.error_ns
    until(lambda: office.table.members[1].is_done)


def test_a_stranger_is_hung_up_on(office: Office) -> None:
    heard: list[str] = []
    line(office, "guess", heard)
    until(lambda: heard)
    assert heard == ["cut"]
    with socket.create_connection(office.supervisor.address, timeout=5.0) as nonsense:
        nonsense.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert nonsense.recv(1) == b""
    assert not any(member.is_here for member in office.table.members)


def test_a_process_that_ends_is_noticed_by_its_line(office: Office) -> None:
    with socket.create_connection(office.supervisor.address, timeout=5.0) as rank:
        rank.sendall(b'{"hello": 0, "token": "secret"}\n{"step": 2}\n')
        until(lambda: office.table.members[0].is_here)
    until(lambda: office.table.members[0].is_cut)
    until(lambda: office.table.verdict(time.monotonic()))
    assert office.table.verdict(time.monotonic()) == "rank 0 was lost in step 2"
