"""Processes that another one starts: their command, and their end with it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ROOT = str(Path(__file__).parents[2])


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; exit at once if the parent is dead. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    # Python has no wrapper of prctl.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl took effect
        os._exit(1)


def module_command(module: str) -> list[str]:
    """Return the command that runs a module of Twinstep as a program; arguments follow.

    `python -m` would search the working folder first, where the user may have a `real` of his own.
    """
    code = f"import runpy, sys; sys.path.append({_ROOT!r}); import twinstep; "
    return [
        sys.executable,
        "-P",
        "-c",
        f"{code}runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
        module,
    ]
