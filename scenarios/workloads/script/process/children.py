"""A script's process and those that it starts, data loaders' say, in both worlds."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any


def stand_alone() -> None:
    """Let this process start others, and as it would if it were the first one; `end` ends them with it."""
    os.setpgid(0, 0)
    multiprocessing.set_start_method(None, force=True)  # which the script may set, as in a first process
    allow_children()


def allow_children() -> None:
    """Let this process start others, though it may be a daemon, which ends with the process that started it."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def watch_children(started: Callable[[BaseProcess], bool]) -> None:
    """Call `started` ahead of each process that this one starts; one for which it returns True is not started."""
    own, start = os.getpid(), BaseProcess.start

    def told(self: BaseProcess) -> None:
        if os.getpid() != own or not started(self):
            start(self)

    BaseProcess.start = told  # type: ignore[method-assign]


def end(process: Any) -> None:
    """End a process that stands alone, and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
