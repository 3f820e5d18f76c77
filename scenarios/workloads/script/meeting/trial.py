"""Tasks of a pool that may be ranks: tries this rank's task in this process.

Tasks are ranks if their number is that of the workers and of ranks that the script can start, the i-th task has the
number i among its arguments, and the task that is tried here creates a process group.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from scenarios.do_nothing import do_nothing
from scenarios.workloads.script.meeting.seats import MEETING_POINT, Seats, as_process, has_group, plain, with_plain


class MapTask(NamedTuple):
    """The arguments of a task."""

    args: tuple[Any, ...]
    by_name: Mapping[str, Any] = {}

    def is_given(self, number: int) -> bool:
        """Return whether `number` is an argument, or an element of the only argument."""
        only = self.args[0] if len(self.args) == 1 and isinstance(self.args[0], tuple | list) else self.args
        return any(type(each) is int and each == number for each in (*only, *self.by_name.values()))


class Workers:
    """The workers of a pool, which are not started while the pool's tasks may be ranks.

    `start` starts a task in a usual worker, which sets the task's result.
    """

    def __init__(
        self, seats: Seats, number: int, initializer: Callable[[], Any], start: Callable[[DeferredResult], Any]
    ) -> None:
        self._seats, self._number, self._initializer, self._start = seats, number, initializer, start
        self._kept = list[DeferredResult]()
        seats.pools.add(self)

    def may_be_ranks(self) -> bool:
        """Return whether the script can start as many ranks as the pool has workers."""
        return not has_group() and self._seats.index(self._number) is not None

    def run(self, function: Callable[..., Any], tasks: Sequence[MapTask]) -> list[Any]:
        """Run this rank's task; return its result once per task, or an empty list if the tasks are no ranks."""
        are_alike = len(tasks) == self._number and all(task.is_given(place) for place, task in enumerate(tasks))
        if self._kept or not (are_alike and self.may_be_ranks()):
            return []
        return _Trial(self._seats, (self._initializer, function), tasks).run() * len(tasks)

    def take(self, function: Callable[..., Any], task: MapTask) -> DeferredResult | None:
        """Keep a task that the script submits alone; run this rank's task once all are submitted.

        Returns:
            The task's result; None: the task is no rank, and the caller has to start it.
        """
        while isinstance(function, partial):  # each task may have its own partial of one function
            task = MapTask((*function.args, *task.args), {**function.keywords, **task.by_name})
            function = function.func
        is_next = not self._kept or self._kept[0].function == function
        if not (is_next and task.is_given(len(self._kept)) and self.may_be_ranks()):
            self.start()
            return None
        self._kept.append(kept := DeferredResult(self, function, task))
        if len(self._kept) == self._number:
            self._run_kept()
        return kept

    def start(self) -> None:
        """Start the kept tasks in usual workers: they are no ranks."""
        kept, self._kept = self._kept, []
        for each in kept:
            self._start(each)

    def keeps(self, kept: DeferredResult) -> bool:
        """Return whether a task is still kept, neither started nor run."""
        return any(each is kept for each in self._kept)

    def _run_kept(self) -> None:
        kept, self._kept = self._kept, []
        results = self.run(kept[0].function, [each.task for each in kept])
        for place, each in enumerate(kept):
            if results:
                each.set_result(results[place])
            else:
                self._start(each)


class DeferredResult(Future[Any]):
    """A result of a kept task; reading it starts the task.

    Attributes:
        function: the task's function.
        task: the function's arguments.
    """

    def __init__(self, workers: Workers, function: Callable[..., Any], task: MapTask) -> None:
        self._workers, self.function, self.task = workers, function, task
        super().__init__()

    @property
    def _condition(self) -> Any:
        """The condition that every read of a future acquires, also `wait` and `as_completed`; it starts the tasks."""
        self._workers.start()
        return self._own_condition

    @_condition.setter
    def _condition(self, condition: Any) -> None:
        self._own_condition = condition

    def add_done_callback(self, fn: Callable[[Future[Any]], Any]) -> None:
        if self._workers.keeps(self):
            self._done_callbacks: list[Callable[[Future[Any]], Any]]
            self._done_callbacks.append(fn)
            with suppress(RuntimeError):  # no event loop runs; else it will soon wait for the callback
                asyncio.get_running_loop().call_soon(self._workers.start)
        else:
            super().add_done_callback(fn)


class _Again(BaseException):
    """A signal that a task began with other values than the first rank's, and has to be run again."""


class _Trial:
    """A trial run of this rank's task in its process, undone if the task turns out to be no rank.

    Ranks exchange the values that their parent computes when the task creates its group: only then do all of them run
    one. A task that began with other values than the first rank's runs again with the first rank's. Changes of the
    environment and of globals of the initializer's and the task's modules are undone before a second run, or if the
    task is no rank; values changed in place, other modules, generator states, files and output are not.
    """

    def __init__(
        self, seats: Seats, functions: tuple[Callable[[], Any], Callable[..., Any]], tasks: Sequence[MapTask]
    ) -> None:
        self._seats, (self._initializer, self._function) = seats, functions
        self._tasks = [(task.args, dict(task.by_name)) for task in tasks]
        self._point = {name: os.environ.get(name, "") for name in MEETING_POINT}
        self._plain = plain([self._tasks, self._point])
        self._environment, self._globals = dict(os.environ), [(each, {**each}) for each in map(_globals, functions)]

    def run(self) -> list[Any]:
        """Return the task's result in a list, empty if the task ended or raised before it created a process group."""
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
        args, by_name = self._tasks[index]
        return self._function(*args, **by_name)

    def _meet(self) -> None:
        """Take over the first rank's values, just before this task creates its group.

        Raises:
            _Again: the task began with other values.
        """
        self._seats.has_run, self._seats.at_group = True, do_nothing
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


def _globals(function: Any) -> dict[str, Any]:
    """Return the globals of the module of a function or partial; an empty dict for other callables."""
    while isinstance(function, partial):
        function = function.func
    found: dict[str, Any] = getattr(function, "__globals__", {})
    return found
