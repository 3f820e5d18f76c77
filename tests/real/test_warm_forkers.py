"""Forkers of tests end nothing but what they have started."""

from __future__ import annotations

import os

import pytest

from tests.real.warm_forkers import Forkers


class Server(Forkers):
    def __init__(self) -> None:
        self._pids, self._running = [7, 8], {8: 1}

    def _reap(self, options: int) -> None:
        pass


def test_the_number_of_an_ended_forker_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))
    Server()._kill()
    assert killed == [8]
