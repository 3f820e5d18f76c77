"""Processes that a script starts one by one to be its ranks: the one that is this rank runs here, the others elsewhere.

Processes are ranks if they are started in a row while there is no process group, run one function, and the i-th one is
given the number i; they run at the first join, or any other look at one of them, and at the end of the script.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from scenarios.workloads.script.meeting.seats import Seats, has_group

# Modules whose processes are their own: data loaders' workers, pools, managers.
_OWN = ("torch.utils.data", "multiprocessing", "concurrent", "torch.multiprocessing")


class Processes:
    """Processes that have been started and may be ranks."""

    def __init__(self, seats: Seats) -> None:
        self._seats, self._started, self._line = seats, list[BaseProcess](), ""

    def take(self, process: BaseProcess, line: str) -> bool:
        """Return whether a process that is started may be a rank, which is not started then.

        One that is not of a row ends it.
        """
        started = self._started
        is_next = not (has_group() or _is_owned(sys._getframe(2))) and _is_given(process, len(started))
        if not (is_next and (not started or _function(process) == _function(started[0]))):
            return False
        self._line = line
        started.append(process)
        process._popen = _Here(self)  # type: ignore[attr-defined]
        process._sentinel = process._popen.sentinel  # type: ignore[attr-defined]
        return True

    def run(self) -> None:
        """Run the one that is this rank, or start them after all: one alone where there are more ranks is a helper."""
        started, self._started = self._started, []
        if not started:
            return
        index = self._seats.index(len(started))
        if index is None and len(started) > 1:
            self._seats.take(len(started), self._line)
        if index is None or has_group():
            self._start(started)
            return
        for process in started:
            process._popen.returncode = 0  # type: ignore[attr-defined]
        for process, given in zip(started, self._seats.of_first([*map(_given, started)]), strict=True):
            process._args, process._kwargs, attributes = given  # type: ignore[attr-defined]
            vars(process).update(attributes)
        self._seats.run(started[index].run)

    def _start(self, processes: list[BaseProcess]) -> None:
        for process in processes:
            process._popen = None  # type: ignore[attr-defined]
            process.start()


class _Here:
    """What a process that was not started has in place of a child."""

    def __init__(self, processes: Processes) -> None:
        self._processes, self.returncode, self.pid = processes, None, os.getpid()
        self.sentinel, over = os.pipe()
        os.close(over)  # so that whoever waits for the sentinel goes on

    def poll(self, flag: int = 0) -> int | None:
        self._processes.run()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        return self.poll()

    def terminate(self) -> None:
        """Do nothing: the others are other ranks' processes, and this one has ended."""
        self.poll()

    kill = interrupt = terminate

    def close(self) -> None:
        os.close(self.sentinel)


def _is_owned(frame: FrameType | None) -> bool:
    """Return whether a process is started by one of the modules that start processes of their own."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("scenarios."):
        frame = frame.f_back
    return frame is None or f"{frame.f_globals.get('__name__', '')}.".startswith(tuple(f"{each}." for each in _OWN))


def _function(process: BaseProcess) -> Any:
    target = process._target  # type: ignore[attr-defined]
    target = target.func if isinstance(target, partial) else target
    return type(process) if target is None else target


def _given(process: BaseProcess) -> tuple[Any, Any, Any]:
    """Return what a process is given: arguments, those by name, and attributes of a class of the script's own."""
    attributes = {name: value for name, value in vars(process).items() if not name.startswith("_")}
    return process._args, process._kwargs, attributes  # type: ignore[attr-defined]


def _is_given(process: BaseProcess, number: int) -> bool:
    args, by_name, attributes = _given(process)
    target = process._target  # type: ignore[attr-defined]
    bound = (*target.args, *target.keywords.values()) if isinstance(target, partial) else ()
    return any(
        type(each) is int and each == number for each in (*args, *by_name.values(), *attributes.values(), *bound)
    )
