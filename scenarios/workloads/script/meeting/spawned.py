"""torch.multiprocessing's spawn: runs the rank's function in this process, which already is that rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch.multiprocessing as mp

from scenarios.workloads.script.meeting.seats import Seats, has_group
from scenarios.workloads.script.meeting.store import put
from scenarios.workloads.script.users_lines import users_line


class _Context:
    """A result of spawn with `join=False`; the first access to its processes runs the rank's function."""

    def __init__(self, run: Callable[[], None], number: int) -> None:
        self._run, self._has_run, self._number = run, False, number

    @property
    def processes(self) -> list[Any]:
        self.join()
        return []

    def pids(self) -> list[int]:
        return [os.getpid()] * self._number

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Run the function unless it has run; return True, as all processes have ended then."""
        if not self._has_run:
            self._has_run = True
            self._run()
        return True


def install_spawn(seats: Seats) -> None:
    """Make torch.multiprocessing's spawn and start_processes run this rank's part here, without new processes."""
    usual: Any = mp.start_processes  # type: ignore[attr-defined]

    def start_processes(
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> Any:
        if has_group():
            return usual(fn, args, nprocs, join, daemon, start_method)
        index = seats.take(nprocs, users_line(sys._getframe().f_back))
        given = seats.of_first(tuple(args), nprocs)
        context = _Context(lambda: seats.run(lambda: fn(index, *given)), nprocs)
        return context.join() and None if join else context

    put({usual: start_processes, mp.spawn: start_processes})  # type: ignore[attr-defined]
