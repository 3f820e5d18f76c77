"""Process pools whose tasks are ranks: runs this rank's task in this process and starts no worker.

A pool whose tasks are no ranks starts its workers at its first task, or when a result is first read.
"""

from __future__ import annotations

import concurrent.futures.process
import multiprocessing
import multiprocessing.pool
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar

from scenarios.do_nothing import do_nothing
from scenarios.workloads.script.meeting.seats import Seats
from scenarios.workloads.script.meeting.store import put
from scenarios.workloads.script.meeting.trial import DeferredResult, MapTask, Workers

_Pool: Any = multiprocessing.pool.Pool
_Executor: Any = concurrent.futures.process.ProcessPoolExecutor


def install_pools(seats: Seats) -> None:
    """Replace multiprocessing's and concurrent.futures' process pools by `RankPool` and `RankExecutor`."""
    for usual, own in ((_Pool, RankPool), (_Executor, RankExecutor)):
        own.seats, own.process = seats, os.getpid()
        put({usual: own})


class RankPool(_Pool):  # type: ignore[misc]
    """A multiprocessing pool that starts its workers only when a task turns out to be no rank, or an attribute is read.

    Attributes:
        seats: the ranks that the script can start.
        process: the id of this rank's process; pools in its children behave as usual.
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
        self._given = ((processes, initializer, initargs, *given), more)
        self._workers = Workers(
            self.seats, processes or 0, partial(initializer or do_nothing, *initargs), self._start_kept
        )
        if os.getpid() != self.process or not self._workers.may_be_ranks():
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
        # Before the pool's own start, which reads attributes: `__getattr__` must no longer begin it.
        del self._given
        super().__init__(*given, **more)
        self._workers.start()

    def _start_kept(self, kept: DeferredResult) -> None:
        super().apply_async(kept.function, *kept.task, kept.set_result, kept.set_exception)

    def _run(self, function: Callable[..., Any], tasks: Iterable[MapTask]) -> list[Any]:
        return [] if self._has_begun() else self._workers.run(function, [*tasks])

    def _map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        mapper: Any,
        chunksize: int | None = None,
        *callbacks: Any,
    ) -> Any:
        """Begin `map`, `starmap`, `map_async` or `starmap_async`, as multiprocessing's own method does."""
        tasks = [*iterable]
        is_star = mapper is multiprocessing.pool.starmapstar  # type: ignore[attr-defined]
        found = self._run(func, (MapTask(tuple(task) if is_star else (task,)) for task in tasks))
        return _ran(found, *callbacks) if found else super()._map_async(func, tasks, mapper, chunksize, *callbacks)

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
        found, tasks = self._run_first(func, iterable)
        return _Results(found) if found else super().imap(func, tasks, chunksize)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
        found, tasks = self._run_first(func, iterable)
        return _Results(found) if found else super().imap_unordered(func, tasks, chunksize)

    def _run_first(self, func: Callable[[Any], Any], iterable: Iterable[Any]) -> tuple[list[Any], Iterator[Any]]:
        """Run this rank's task if tasks are ranks; return the results and an iterator over all tasks, maybe endless."""
        tasks = iter(iterable)
        first = [*islice(tasks, self.seats.world_size + 1)]
        return self._run(func, (MapTask((task,)) for task in first)), chain(first, tasks)

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> Any:
        task = MapTask(tuple(args), kwds or {})
        kept = None if self._has_begun() else self._workers.take(func, task)
        if kept is None:
            return super().apply_async(func, *task, callback, error_callback)
        return _Result(kept, callback, error_callback)

    def close(self) -> None:
        self._workers.start()
        if self._has_begun():
            super().close()

    def terminate(self) -> None:
        self.seats.pools.discard(self._workers)
        if self._has_begun():
            super().terminate()

    def join(self) -> None:
        if self._has_begun():
            super().join()

    def __del__(self, *given: Any) -> None:
        if self._has_begun():
            super().__del__(*given)


class RankExecutor(_Executor):  # type: ignore[misc]
    """A concurrent.futures executor that runs this rank's task here; it starts workers at its first other task.

    Attributes:
        seats: the ranks that the script can start.
        process: the id of this rank's process; executors in its children behave as usual.
    """

    seats: ClassVar[Seats]
    process: ClassVar[int]

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        **more: Any,
    ) -> None:
        initargs, self._has_begun = tuple(initargs), os.getpid() != self.process
        self._rank_workers = Workers(
            self.seats, max_workers or 0, partial(initializer or do_nothing, *initargs), self._start_kept
        )
        super().__init__(max_workers, mp_context, initializer, initargs, **more)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        kept = None if self._has_begun else self._rank_workers.take(fn, MapTask(args, kwargs))
        return self._submit(fn, *args, **kwargs) if kept is None else kept

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **more: Any) -> Iterator[Any]:
        if self._has_begun or not self._rank_workers.may_be_ranks():
            return super().map(fn, *iterables, **more)  # type: ignore[no-any-return]
        more.pop("chunksize", None)  # each task has to be submitted alone, to be recognized as a rank
        return Executor.map(self, fn, *iterables, **more)

    def shutdown(self, *given: Any, **more: Any) -> None:
        self._rank_workers.start()
        self._has_begun = True
        super().shutdown(*given, **more)

    def _submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        self._has_begun = True
        found: Future[Any] = super().submit(fn, *args, **kwargs)
        return found

    def _start_kept(self, kept: DeferredResult) -> None:
        self._submit(kept.function, *kept.task.args, **kept.task.by_name).add_done_callback(partial(_settle, kept))


class _Results(Iterator[Any]):
    """An iterator over results of tasks that have run here, as `imap` and `imap_unordered` return it."""

    def __init__(self, found: Iterable[Any]) -> None:
        self._left = iter(found)

    def next(self, timeout: float | None = None) -> Any:
        return next(self._left)

    __next__ = next


class _Result:
    """A result of a deferred task, or of one that has run here, with the methods of multiprocessing's AsyncResult."""

    def __init__(
        self,
        future: Future[Any],
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> None:
        self._future = future
        future.add_done_callback(partial(_call_back, callback or do_nothing, error_callback or do_nothing))

    def get(self, timeout: float | None = None) -> Any:
        try:
            return self._future.result(timeout)
        except TimeoutError:
            if self.ready():
                raise
            raise multiprocessing.TimeoutError from None

    def wait(self, timeout: float | None = None) -> None:
        concurrent.futures.wait([self._future], timeout)

    def ready(self) -> bool:
        return self._future.done()

    def successful(self) -> bool:
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._future.exception() is None


def _ran(found: list[Any], *callbacks: Any) -> _Result:
    future = Future[Any]()
    future.set_result(found)
    return _Result(future, *callbacks)


def _settle(kept: DeferredResult, future: Future[Any]) -> None:
    if (error := future.exception()) is None:
        kept.set_result(future.result())
    else:
        kept.set_exception(error)


def _call_back(
    callback: Callable[[Any], Any], error_callback: Callable[[BaseException], Any], future: Future[Any]
) -> None:
    if (error := future.exception()) is None:
        callback(future.result())
    else:
        error_callback(error)
