"""torch's launchers of ranks, called by a script: each runs the rank's function or script in this process."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed.launcher.api as launcher
import torch.multiprocessing as mp

from scenarios.workloads.script.meeting.seats import Seats, as_process, has_group
from scenarios.workloads.script.meeting.store import put
from scenarios.workloads.script.users_lines import users_line


def install_agents(seats: Seats) -> None:
    """Make `elastic_launch`, which torch.distributed.run calls, run this rank's part here, without new processes."""

    def launch_agent(config: Any, entrypoint: Callable[..., Any] | str | None, args: list[Any], **_: Any) -> Any:
        hosts, line = seats.world_size // seats.local_world_size, users_line(sys._getframe().f_back)
        if config.max_nodes > 1 and not config.min_nodes <= hosts <= config.max_nodes:
            wanted = f"{config.min_nodes} to {config.max_nodes}"
            seats.refuse(f"{line}: starts agents on {wanted} hosts: expected {hosts}, as many as there are here")
        number = config.nproc_per_node * (hosts if config.max_nodes > 1 else 1)
        seats.take(number, line, " by torch's elastic launcher")
        os.environ.update(
            seats.environment,
            TORCHELASTIC_RUN_ID=str(config.run_id),
            TORCHELASTIC_MAX_RESTARTS=str(config.max_restarts),
            ROLE_NAME=str(config.role),
        )
        if callable(entrypoint):
            given = seats.of_first(args, config.nproc_per_node)
            found = as_process(lambda: entrypoint(*given))
        else:
            found = as_process(lambda: _run_command(seats, line, [str(entrypoint), *map(str, args)]))
        first = seats.rank - seats.local_rank
        return dict.fromkeys(range(first, first + seats.local_world_size), found)

    put({launcher.launch_agent: launch_agent})


def _run_command(seats: Seats, line: str, words: Sequence[str]) -> None:
    """Run in this process the script or module that a Python command names."""
    python, *rest = words
    while rest[:1] == ["-u"]:
        rest = rest[1:]
    if not (Path(python).name.startswith("python") and rest):
        seats.refuse(f"{line}: starts '{' '.join(words)}' as its ranks: expected a script or a module of Python")
    run_as_main(rest)


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


def run_as_main(words: Sequence[str]) -> None:
    """Run `python WORDS` in this process. `words`: a file, or "-m" and a module, followed by arguments."""
    if words[0] == "-m":
        sys.argv, sys.path[:0] = [*words[1:]], [os.getcwd()]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:0] = [*words], [str(Path(words[0]).resolve().parent)]
        runpy.run_path(words[0], run_name="__main__")
