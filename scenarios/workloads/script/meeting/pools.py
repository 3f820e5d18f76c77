"""multiprocessing's pools whose tasks are ranks: this rank's task runs here, and no worker is started.

Tasks are ranks if there are as many as the pool has workers and as the script can start ranks, the i-th one is given
the number i, and the one that runs here makes a process group. Other pools have their workers from the first task on.
"""

from __future__ import annotations

import multiprocessing.pool
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scenarios.workloads.script.meeting.seats import Seats, has_group
from scenarios.workloads.script.meeting.store import put

_Pool: Any = multiprocessing.pool.Pool


def install_pools(seats: Seats) -> None:
    """Have pools that have as many workers as there are ranks run this rank's part where their tasks are ranks."""

    class RankPool(_Pool):  # type: ignore[misc]
        """A pool whose workers are started by the first use of what usual ones have."""

        def __init__(self, processes: int | None = None, *given: Any, **more: Any) -> None:
            self._number, self._given = processes or 0, (given, more)
            if has_group() or seats.index(self._number) is None:
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
            del self._given
            super().__init__(self._number or None, *given, **more)

        def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
            return self._run(func, [*iterable]) or super().map(func, self._tasks, chunksize)

        def starmap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
            return self._run(lambda task: func(*task), [*iterable]) or super().starmap(func, self._tasks, chunksize)

        def _run(self, func: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
            """Run this rank's task; return what it gives for each, nothing where tasks are no ranks."""
            self._tasks, index = tasks, seats.index(len(tasks))
            if self._has_begun() or index is None or not _are_ranks(tasks, self._number):
                return []
            before, given = seats.groups, self._given[0]
            if given and given[0] is not None:  # the initializer of a worker
                given[0](*(given[1] if len(given) > 1 else ()))
            own = seats.of_first([*tasks], len(tasks))[index]
            result = seats.run(lambda: func(own))
            return [result] * len(tasks) if seats.groups > before else []

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

    put({_Pool: RankPool})


def _are_ranks(tasks: Sequence[Any], workers: int) -> bool:
    return len(tasks) == workers and all(_is_given(task, number) for number, task in enumerate(tasks))


def _is_given(task: Any, number: int) -> bool:
    return any(type(each) is int and each == number for each in (task if isinstance(task, tuple | list) else [task]))
