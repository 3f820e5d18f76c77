"""Forkers for launches of this process, forked from one that has loaded torch, which takes each two seconds by itself.

The server is a forker as well, whose ranks are forkers. Launches of other processes, such as `python -m real` in a
test, start theirs as users' do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, NoReturn
from unittest import mock

from real.launch import forker, launcher
from real.launch.forker import Forker

# The environment variable with what a forker begins with: its socket, folder and environment.
_GIVEN = "TWINSTEP_TESTS_FORKER"
_cold = forker.start_process


@cache
def server() -> Forker:
    """The process of which the forkers are forks; it ends with this one."""
    with mock.patch.object(forker, "start_process", partial(_cold, module=__name__)):
        return Forker(None, {**launcher._DEFAULTS, **os.environ})  # libraries read them when they are loaded


def start_process(control: socket.socket, command: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Start a forker, as the launcher's function does; its ranks' own command needs no torch."""
    return _cold(control, command, environment) if command else _Process(control, environment)


class _Process:
    """What the launcher knows of a forker's process."""

    def __init__(self, control: socket.socket, environment: Mapping[str, str]) -> None:
        self._number = server()._ranks
        given = json.dumps((control.fileno(), os.getcwd(), dict(environment)))
        server().start({_GIVEN: given}, log=2, held=control.fileno())

    def wait(self) -> int:
        while self._number not in server().exit_codes():
            time.sleep(0.001)
        return server().exit_codes()[self._number]


class Forkers(forker._Ranks):
    """The server's end. It lives longer than a number is one process: that of an ended forker may be another's."""

    def _kill(self) -> None:
        self._pids = [*self._running]
        super()._kill()


def _be_forker(be_real: Any, ranks: type[forker._Ranks]) -> NoReturn:
    forker._be_real = be_real
    number, folder, environment = json.loads(os.environ[_GIVEN])
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = folder
    with socket.socket(fileno=number) as control:
        control.set_inheritable(False)
        ranks(control, ()).serve()
    os._exit(0)


def _load() -> None:
    """Load also what ranks import while they play, each by itself: for scripts, for `dlrm`, and to write a run."""
    for module in ("torch._dynamo", "scenarios.workloads.dlrm.tables.embedding_cpu", "reports.writer"):
        import_module(module)
    _load_torch()


if __name__ == "__main__":
    _load_torch, forker._load = forker._load, _load
    forker._be_real = partial(_be_forker, forker._be_real, forker._Ranks)
    forker._Ranks = Forkers  # type: ignore[misc]
    forker.main(sys.argv[1:])
