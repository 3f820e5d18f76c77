"""Processes that a script starts one by one to be its ranks: the one that is this rank runs here, the others elsewhere.

Processes are ranks if they are started in a row while there is no process group, run one function, and the i-th one is
given the number i; they run at the first join, or any other look at one of them, and at the end of the script.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from multiprocessing.managers import BaseProxy
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue, SimpleQueue
from types import FrameType
from typing import Any

from scenarios.workloads.script.meeting.guard import Guarded
from scenarios.workloads.script.meeting.seats import Seats, has_group
from scenarios.workloads.script.process.children import watch_children
from scenarios.workloads.script.users_lines import is_users_file, users_line

# How long what a process has put into a queue may take to be there.
_FILLED_S = 10.0
# Those of a manager.
_QUEUES = ("Queue", "JoinableQueue")
# Their methods by which a script looks for what its tasks have put there.
_LOOKS = frozenset({"empty", "get", "get_nowait", "qsize"})
# Modules whose processes are their own: data loaders' workers, pools, managers; and those whose tasks are the script's.
_POOLS = ("multiprocessing.pool", "concurrent.futures.process")
_OWN = ("torch.utils.data", "multiprocessing", "concurrent", "torch.multiprocessing")


class Processes:
    """Processes that the script starts.

    Attributes:
        helpers: the script's line of each one that is no rank.
    """

    def __init__(self, seats: Seats) -> None:
        self._seats, self._kept = seats, list[BaseProcess]()  # that may be ranks
        self._is_starting, self.helpers = False, list[str]()

    def watch(self) -> None:
        """Keep what may be ranks of the processes that this one starts; taking from a queue is a look at all."""
        watch_children(self._take)
        self._watch_proxies()
        for kind in (Queue, SimpleQueue):
            self._watch_queue(kind)

    def run(self) -> None:
        """Run the one that is this rank, or start them after all: one alone where there are more ranks is a helper."""
        kept, self._kept = self._kept, []
        if not kept:
            return
        index = self._seats.index(len(kept))
        if index is None and len(kept) > 1:
            self._seats.take(len(kept), _here(kept[0]).line)
        if index is None or has_group():
            self._start(kept)
            return
        for process in kept:
            _here(process).returncode = 0
        for process, given in zip(kept, self._seats.of_first([*map(_given, kept)], len(kept)), strict=True):
            process._args, process._kwargs, attributes = given  # type: ignore[attr-defined]
            vars(process).update(attributes)
        self._seats.run(kept[index].run)

    def start(self) -> None:
        """Start them as helpers, as this process becomes a rank itself."""
        kept, self._kept = self._kept, []
        self._start(kept)

    def _take(self, process: BaseProcess) -> bool:
        """Return whether a process that is started may be a rank, which is not started then."""
        if self._is_starting:
            return False
        starter = sys._getframe(2)
        line = users_line(starter)
        if not has_group() and not _is_owned(starter):
            is_other_row = _is_given(process, 0) and not self._is_next(process)
            if is_other_row and len(self._kept) == 1 and self._seats.index(1) is None:
                self.run()  # the one before was a helper
            if self._is_next(process):
                self._kept.append(process)
                process._popen = _Here(self, process, line)  # type: ignore[attr-defined]
                process._sentinel = process._popen.sentinel  # type: ignore[attr-defined]
                return True
        is_guarded = is_users_file(starter.f_code.co_filename) or starter.f_globals.get("__name__") in _POOLS
        self._help(process, line, is_guarded=is_guarded)
        return False

    def _is_next(self, process: BaseProcess) -> bool:
        kept = self._kept
        is_alike = not kept or _function(process) == _function(kept[0])
        return is_alike and _is_given(process, len(kept))

    def _help(self, process: BaseProcess, line: str, *, is_guarded: bool) -> None:
        """Note a process that is no rank, and keep it from becoming one."""
        self.helpers.append(line)
        how = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
        if how != "fork" and is_guarded:  # a fork has this one's torch
            process._target = Guarded(process._target, line)  # type: ignore[attr-defined]

    def _start(self, processes: Sequence[BaseProcess]) -> None:
        for process in processes:
            self._help(process, _here(process).line, is_guarded=True)
            process._popen, self._is_starting = None, True  # type: ignore[attr-defined]
            try:
                BaseProcess.start(process)
            finally:
                self._is_starting = False

    def _watch_queue(self, kind: Any) -> None:
        own, usual = os.getpid(), kind.get

        def get(queue: Any, *given: Any, **more: Any) -> Any:
            if os.getpid() == own and threading.current_thread() is threading.main_thread():
                self._look()
                if self._seats.has_run and not (given or more or _has_others()):
                    self._check_filled(queue, users_line(sys._getframe().f_back))
            return usual(queue, *given, **more)

        kind.get = get

    def _watch_proxies(self) -> None:
        own, usual = os.getpid(), BaseProxy._callmethod

        def call(proxy: Any, name: str, *given: Any, **more: Any) -> Any:
            is_taken = name in _LOOKS and proxy._token.typeid in _QUEUES
            if is_taken and os.getpid() == own and threading.current_thread() is threading.main_thread():
                self._look()
            return usual(proxy, name, *given, **more)

        BaseProxy._callmethod = call  # type: ignore[method-assign, assignment]

    def _look(self) -> None:
        self.run()
        for each in [*self._seats.pools]:
            each.start()

    def _check_filled(self, queue: Any, line: str) -> None:
        if not queue._reader.poll(_FILLED_S):
            self._seats.refuse(
                f"{line}: takes more from a queue than this rank has put there: expected what one rank puts, as the"
                " others have processes and queues of their own"
            )


class _Here:
    """What a process that was not started has in place of a child, or of a child that it has by now."""

    def __init__(self, processes: Processes, process: BaseProcess, line: str) -> None:
        self._processes, self._process, self.line = processes, process, line
        self.returncode: int | None = None
        self.pid = os.getpid()
        self.sentinel, over = os.pipe()
        os.close(over)  # so that whoever waits for the sentinel goes on

    def poll(self, flag: int = 0) -> int | None:
        child = self._child()
        return self.returncode if child is None else child.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        child = self._child()
        return self.returncode if child is None else child.wait(timeout)

    def terminate(self) -> None:
        """End the child; of ranks do nothing: the others are other ranks' processes, and this one has ended."""
        if (child := self._child()) is not None:
            child.terminate()

    kill = interrupt = terminate

    def close(self) -> None:
        os.close(self.sentinel)

    def _child(self) -> Any:
        """Look at the processes; return this one's child, if it has become a helper."""
        self._processes.run()
        found = self._process._popen  # type: ignore[attr-defined]
        return None if found is self else found


def _has_others() -> bool:
    """Return whether children, or threads of this process, may fill a queue."""
    threads = [each for each in threading.enumerate() if each is not threading.main_thread()]
    return bool(multiprocessing.active_children()) or any(each.name != "QueueFeederThread" for each in threads)


def _here(process: BaseProcess) -> _Here:
    found: _Here = process._popen  # type: ignore[attr-defined]
    return found


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
