"""Refusal of a script's commands that start ranks: a new Python would train by itself, outside the simulation."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.workloads.script.meeting.seats import Seats, has_group
from scenarios.workloads.script.users_lines import users_line

# Launchers of ranks: commands, and modules for `python -m`.
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun", "fabric", "lightning")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands", "deepspeed", "torchx")
# Launchers with subcommands launch only by this one; other launchers do not launch with these flags.
_STARTING = {"accelerate": "launch", "accelerate.commands.accelerate_cli": "launch", "torchx": "run"}
_STARTING |= dict.fromkeys(("fabric", "lightning"), "run")
_TELLING = ("-h", "--help", "-V", "--version")
_MOST = 80  # characters of a command in a refusal


class Commands:
    """A check of the commands that a script runs, with the Python scripts that earlier commands started."""

    def __init__(self, seats: Seats) -> None:
        self._seats, self._started = seats, list[str]()  # the Python scripts of earlier commands

    def check(self, command: Any, env: Mapping[str, str] | None, line: str) -> None:
        """End the run with a sentence if a command starts ranks.

        A command does so by a launcher, with another rank's number in its environment, or as the i-th command of one
        Python script if i is among its arguments.

        Args:
            command: a command as subprocess.Popen takes it.
            env: the command's environment; None: this process's.
            line: the script's line that runs the command.
        """
        words = _words(command)
        if has_group() or not words:
            return
        script = _script(words)
        if _is_launching(words, script):
            self._refuse(words, line)
        if script is None:
            return
        there, number = os.environ if env is None else env, str(self._count(script))
        is_other = any(there.get(name) not in (None, self._seats.environment[name]) for name in ("RANK", "LOCAL_RANK"))
        is_given = number in {part for word in words[1:] for part in (word, word.rpartition("=")[2])}
        if is_other or (is_given and number != "0"):
            self._refuse(words, line)
        self._started.append(script)

    def _count(self, script: str) -> int:
        return self._started.count(script)

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
