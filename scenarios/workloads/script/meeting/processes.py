"""Processes that a script starts one by one as its ranks: runs this rank's process here; the others run elsewhere.

Processes count as ranks if the script starts them in a row without a process group, they run one function, and the i-th
process has the number i among its arguments. This rank's process runs at the first join or other access to one of the
processes, at the latest at the end of the script.
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

# How long a value that a process has put into a queue may take to arrive, as a feeder thread writes it.
_FILLED_S = 10.0
# A manager's types of queues.
_QUEUES = ("Queue", "JoinableQueue")
# Methods of queues by which a script checks for values from its processes.
_LOOKS = frozenset({"empty", "get", "get_nowait", "qsize"})
# Modules whose workers run tasks of the script; and modules that start processes for themselves (loaders, managers).
_POOLS = ("multiprocessing.pool", "concurrent.futures.process")
_OWN = ("torch.utils.data", "multiprocessing", "concurrent", "torch.multiprocessing")


class Processes:
    """The processes that a script starts.

    Attributes:
        helpers: the script's line for each process that is no rank.
    """

    def __init__(self, seats: Seats) -> None:
        self._seats, self._kept = seats, list[BaseProcess]()  # candidates for ranks
        self._is_starting, self.helpers = False, list[str]()

    def watch(self) -> None:
        """Intercept processes that this one starts, and reads of queues, which make candidates for ranks run."""
        watch_children(self._take)
        self._watch_proxies()
        for kind in (Queue, SimpleQueue):
            self._watch_queue(kind)

    def run(self) -> None:
        """Run the candidate that is this rank, or start all candidates as helpers.

        A single candidate in a world of several ranks is a helper; any other wrong number ends the run.
        """
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
        for process, given in zip(kept, self._seats.of_first([*map(_attributes_of, kept)], len(kept)), strict=True):
            process._args, process._kwargs, attributes = given  # type: ignore[attr-defined]
            vars(process).update(attributes)
        self._seats.run(kept[index].run)

    def start(self) -> None:
        """Start the candidates as helpers: this process becomes a rank itself."""
        kept, self._kept = self._kept, []
        self._start(kept)

    def _take(self, process: BaseProcess) -> bool:
        """Keep a process that is being started if it may be a rank; return whether it was kept."""
        if self._is_starting:
            return False
        starter = sys._getframe(2)
        line = users_line(starter)
        if not has_group() and not _is_owned(starter):
            is_other_row = _is_given(process, 0) and not self._is_next(process)
            if is_other_row and len(self._kept) == 1 and self._seats.index(1) is None:
                self.run()  # the single candidate before was a helper
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
        """Record a helper process, and forbid process groups in it."""
        self.helpers.append(line)
        how = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
        if how != "fork" and is_guarded:  # a forked child inherits this process's simulated torch
            process._target = Guarded(process._target, line)  # type: ignore[attr-defined]

    def _start(self, processes: Sequence[BaseProcess]) -> None:
        for process in processes:
            self._help(process, _here(process).line, is_guarded=True)
            process._popen, self._is_starting = None, True  # type: ignore[attr-defined]
            # `start` comes back to `_take`, which lets these processes through meanwhile.
            try:
                BaseProcess.start(process)
            finally:
                self._is_starting = False

    def _watch_queue(self, kind: Any) -> None:
        own, usual = os.getpid(), kind.get

        def get(queue: Any, *given: Any, **more: Any) -> Any:
            # Only the rank's main thread: feeder threads and forked helpers take from queues, too.
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
    """A stand-in for the Popen object of a candidate for a rank; delegates to the child once there is one."""

    def __init__(self, processes: Processes, process: BaseProcess, line: str) -> None:
        self._processes, self._process, self.line = processes, process, line
        self.returncode: int | None = None
        self.pid = os.getpid()
        self.sentinel, over = os.pipe()
        os.close(over)  # the sentinel reads as ready, so waits for it return

    def poll(self, flag: int = 0) -> int | None:
        child = self._child()
        return self.returncode if child is None else child.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        child = self._child()
        return self.returncode if child is None else child.wait(timeout)

    def terminate(self) -> None:
        """Terminate the child of a helper; do nothing for ranks: this one has ended, and the others run elsewhere."""
        if (child := self._child()) is not None:
            child.terminate()

    kill = interrupt = terminate

    def close(self) -> None:
        os.close(self.sentinel)

    def _child(self) -> Any:
        """Settle all candidates; return the child if this process has become a helper."""
        self._processes.run()
        found = self._process._popen  # type: ignore[attr-defined]
        return None if found is self else found


def _has_others() -> bool:
    """Return whether children or other threads of this process may fill a queue."""
    threads = [each for each in threading.enumerate() if each is not threading.main_thread()]
    return bool(multiprocessing.active_children()) or any(each.name != "QueueFeederThread" for each in threads)


def _here(process: BaseProcess) -> _Here:
    found: _Here = process._popen  # type: ignore[attr-defined]
    return found


def _is_owned(frame: FrameType | None) -> bool:
    """Return whether the code that starts a process belongs to a module of `_OWN`."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("scenarios."):
        frame = frame.f_back
    return frame is None or f"{frame.f_globals.get('__name__', '')}.".startswith(tuple(f"{each}." for each in _OWN))


def _function(process: BaseProcess) -> Any:
    target = process._target  # type: ignore[attr-defined]
    target = target.func if isinstance(target, partial) else target
    return type(process) if target is None else target


def _attributes_of(process: BaseProcess) -> tuple[Any, Any, Any]:
    """Return a process's positional arguments, keyword arguments, and public attributes of a user's subclass."""
    attributes = {name: value for name, value in vars(process).items() if not name.startswith("_")}
    return process._args, process._kwargs, attributes  # type: ignore[attr-defined]


def _is_given(process: BaseProcess, number: int) -> bool:
    args, by_name, attributes = _attributes_of(process)
    target = process._target  # type: ignore[attr-defined]
    bound = (*target.args, *target.keywords.values()) if isinstance(target, partial) else ()
    return any(
        type(each) is int and each == number for each in (*args, *by_name.values(), *attributes.values(), *bound)
    )
