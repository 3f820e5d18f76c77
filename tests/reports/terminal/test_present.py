from __future__ import annotations

import io

import pytest

from reports.terminal import present


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setattr(present, "_QUIET_S", -1.0)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_shows_what_is_done_and_forgets_it(late, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with present.progress_line() as tell:
        tell("page of run", 1, 3)
        tell("steps of run", 2, 3)
    assert stream.getvalue() == "\r\x1b[Kpage of run: 1 of 3, 0 s\r\x1b[Ksteps of run: 2 of 3, 0 s\r\x1b[K"


def test_into_a_pipe_nothing_is_written(late, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    with present.progress_line() as tell:
        tell("page of run", 1, 3)
    assert stream.getvalue() == ""


def test_what_is_quick_is_not_shown(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with present.progress_line() as tell:
        tell("page of run", 1, 3)
    assert stream.getvalue() == ""
