"""torch's launchers of ranks, called by a script: each runs the rank's function or script in this process.

A script's commands that start ranks are refused: a new Python would train by itself, outside the simulation.
"""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed.launcher.api as launcher
import torch.multiprocessing as mp

from scenarios.workloads.script.meeting.seats import Seats, as_process, has_group
from scenarios.workloads.script.meeting.store import put
from scenarios.workloads.script.users_lines import users_line

# Launchers of ranks: commands, and modules for `python -m`.
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun", "fabric", "lightning")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands", "deepspeed", "torchx")
# Launchers with subcommands launch only by this one; other launchers do not launch with these flags.
_STARTING = {"accelerate": "launch", "accelerate.commands.accelerate_cli": "launch", "torchx": "run"}
_STARTING |= dict.fromkeys(("fabric", "lightning"), "run")
_TELLING = ("-h", "--help", "-V", "--version")
_MOST = 80  # characters of a command in a refusal


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


class Commands:
    """A check of the commands that a script runs, with the Python scripts that earlier commands started."""

    def __init__(self, seats: Seats) -> None:
        self._seats, self._started = seats, list[str]()  # the Python scripts of earlier commands

    def check(self, command: Any, env: Mapping[str, str] | None, line: str) -> None:
        """End the run with a sentence if a command starts ranks.

        A command does so by a launcher, with another rank's number in its environment, or as the i-th command of one
        Python script if i is among its arguments. `command` and `env` are as subprocess.Popen takes them.
        """
        words = _words(command)
        if has_group() or not words:
            return
        script = _script(words)
        if _is_launching(words, script):
            self._refuse(words, line)
        if script is None:
            return
        there, number = os.environ if env is None else env, str(self._started.count(script))
        is_other = any(there.get(name) not in (None, self._seats.environment[name]) for name in ("RANK", "LOCAL_RANK"))
        is_given = number in {part for word in words[1:] for part in (word, word.rpartition("=")[2])}
        if is_other or (is_given and number != "0"):
            self._refuse(words, line)
        self._started.append(script)

    def _refuse(self, words: Sequence[str], line: str) -> None:
        shown = shlex.join(words)
        shown = shown if len(shown) <= _MOST else f"{shown[:_MOST]}..."
        self._seats.refuse(
            f"{line}: runs '{shown}', which starts ranks of its own: expected the script that they run in place of"
            " this one, with its arguments behind it"
        )


def watch_commands(seats: Seats) -> None:
    """Check every command that this process runs through subprocess.Popen or os.system."""
    commands, own = Commands(seats), os.getpid()
    popen, system = subprocess.Popen.__init__, os.system

    def start(self: Any, args: Any, *given: Any, **more: Any) -> None:
        if os.getpid() == own:
            # Popen takes `env` as its eleventh argument; `args` is not among `given`.
            env = more.get("env", given[9] if len(given) > 9 else None)
            commands.check(args, env, users_line(sys._getframe().f_back))
        popen(self, args, *given, **more)

    def run(command: Any) -> int:
        if os.getpid() == own:
            commands.check(command, None, users_line(sys._getframe().f_back))
        return system(command)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]
    os.system = run


def _words(command: Any) -> list[str]:
    try:
        if isinstance(command, str | bytes | os.PathLike):
            return shlex.split(os.fsdecode(command))
        return [os.fsdecode(each) for each in command]
    except (TypeError, ValueError):  # subprocess reports the malformed command
        return []


def _is_launching(words: Sequence[str], script: str | None) -> bool:
    """Return whether a command starts ranks by a launcher."""
    name, given = Path(words[0]).name, words[1:]
    if name not in _LAUNCHERS:
        if not (script or "").startswith(_MODULES):
            return False
        name, given = script or "", words[words.index(script or "") + 1 :]
    first = given[0] if given else _TELLING[0]
    return first == _STARTING[name] if name in _STARTING else first not in _TELLING


def _script(words: Sequence[str]) -> str | None:
    """Return the script or module that a Python command runs; None if it runs neither."""
    if not Path(words[0]).name.startswith("python"):
        return None
    for place, word in enumerate(words[1:], 1):
        if word == "-m":
            return words[place + 1] if place + 1 < len(words) else None
        if not word.startswith("-"):
            return word if word.endswith(".py") else None
    return None
