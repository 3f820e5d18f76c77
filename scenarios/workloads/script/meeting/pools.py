"""multiprocessing's pools whose tasks are ranks: this rank's task runs here, and no worker is started.

Tasks are ranks if there are as many as the pool has workers and as the script can start ranks, the i-th one is given
the number i, and the one that is tried here makes a process group. Other pools have their workers from the first task
on.
"""

from __future__ import annotations

import multiprocessing.pool
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from scenarios.workloads.script.meeting.seats import MEETING_POINT, Seats, as_process, has_group, plain, with_plain
from scenarios.workloads.script.meeting.store import put

_Pool: Any = multiprocessing.pool.Pool


def install_pools(seats: Seats) -> None:
    """Have pools that have as many workers as there are ranks run this rank's part where their tasks are ranks."""
    RankPool.seats, RankPool.process = seats, os.getpid()
    put({_Pool: RankPool})


class RankPool(_Pool):  # type: ignore[misc]
    """A pool whose workers are started by the first use of what usual ones have.

    Attributes:
        seats: the ranks that the script can start.
        process: the id of this rank's process; pools of its children are usual ones.
    """

    seats: ClassVar[Seats]
    process: ClassVar[int]

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        *given: Any,
        **more: Any,
    ) -> None:
        initargs = tuple(initargs)
        self._number, self._initializer = processes or 0, partial(initializer or _nothing, *initargs)
        self._given = ((processes, initializer, initargs, *given), more)
        if os.getpid() != self.process or has_group() or self.seats.index(self._number) is None:
            self._begin()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self._has_begun():
            raise AttributeError(name)
        self._begin()
        return getattr(self, name)

    def __enter__(self) -> Any:
        return self

    def _has_begun(self) -> bool:
        return "_given" not in vars(self)

    def _begin(self) -> None:
        given, more = self._given
        del self._given, self._initializer
        super().__init__(*given, **more)

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        tasks = [*iterable]
        return self._run(func, func, tasks) or super().map(func, tasks, chunksize)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        tasks = [*iterable]
        return self._run(func, lambda task: func(*task), tasks) or super().starmap(func, tasks, chunksize)

    def _run(self, func: Callable[..., Any], call: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """Run this rank's task; return what it gives for each, nothing where tasks are no ranks."""
        if self._has_begun() or has_group() or not _are_ranks(tasks, self._number):
            return []
        return _Trial(self.seats, (self._initializer, func), call, tasks).run() * len(tasks)

    def close(self) -> None:
        if self._has_begun():
            super().close()

    def terminate(self) -> None:
        if self._has_begun():
            super().terminate()

    def join(self) -> None:
        if self._has_begun():
            super().join()

    def __del__(self, *given: Any) -> None:
        if self._has_begun():
            super().__del__(*given)


class _Again(BaseException):
    """An end of a task that was given other values than the first rank has."""


class _Trial:
    """A task of this rank's, run in its process as long as it may be a rank.

    The ranks exchange what their parent computes where the task makes its group, as only then all of them run one. A
    task that has begun with other values than the first rank has is run again, with those. What an initializer and a
    task have set in the environment and in their modules' globals is undone where the task is run again or is no rank;
    values that were changed in place, other modules, the states of generators, files and output stay.
    """

    def __init__(
        self,
        seats: Seats,
        functions: tuple[Callable[[], Any], Callable[..., Any]],
        call: Callable[[Any], Any],
        tasks: Sequence[Any],
    ) -> None:
        self._seats, (self._initializer, _), self._call, self._tasks = seats, functions, call, [*tasks]
        self._point = {name: os.environ.get(name, "") for name in MEETING_POINT}
        self._plain = plain([self._tasks, self._point])
        self._environment, self._globals = dict(os.environ), [(each, {**each}) for each in map(_globals, functions)]

    def run(self) -> list[Any]:
        """Return the task's result; nothing where it has made no process group, as it has ended or raised before."""
        before, usual = self._seats.groups, self._seats.at_group
        self._seats.at_group = self._meet
        try:
            result = self._run_task()
        except Exception:
            if self._seats.groups > before:
                raise
        finally:
            self._seats.at_group = usual
        if self._seats.groups > before:
            return [result]
        self._undo()
        return []

    def _run_task(self) -> Any:
        try:
            return as_process(self._do)
        except _Again:
            self._undo()
            os.environ.update(self._point)
            return as_process(self._do)

    def _do(self) -> Any:
        index = self._seats.index(len(self._tasks))
        assert index is not None
        self._initializer()
        return self._call(self._tasks[index])

    def _meet(self) -> None:
        """Take what the first rank has, as this task is about to make its group.

        Raises:
            _Again: the task has begun with other values.
        """
        self._seats.has_run, self._seats.at_group = True, _nothing
        found = self._seats.of_first(plain(self._plain), len(self._tasks))
        if found != self._plain:
            self._tasks, self._point = with_plain([self._tasks, self._point], found)
            raise _Again

    def _undo(self) -> None:
        for name in os.environ.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update(self._environment)
        for now, before in self._globals:
            for name in now.keys() - before.keys():
                del now[name]
            now.update(before)


def _nothing() -> None:
    """Do nothing."""


def _globals(function: Any) -> dict[str, Any]:
    """Return the globals of a function's module, or of a partial one's; none of what is no function."""
    while isinstance(function, partial):
        function = function.func
    found: dict[str, Any] = getattr(function, "__globals__", {})
    return found


def _are_ranks(tasks: Sequence[Any], workers: int) -> bool:
    return len(tasks) == workers and all(_is_given(task, number) for number, task in enumerate(tasks))


def _is_given(task: Any, number: int) -> bool:
    return any(type(each) is int and each == number for each in (task if isinstance(task, tuple | list) else [task]))
