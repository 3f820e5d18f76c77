"""Control of a script's process and its children, such as data loader workers; for simulated and real ranks.

The script's current line is found by a signal: Python writes its threads' frames even while it waits in C++.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from scenarios.seam.errors import is_installed

STANDS = signal.SIGUSR1
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ')


def stand_alone() -> None:
    """Set up this process as if it were the first one: it may start children, which `end` ends with it."""
    # A group of its own, by which `end` kills children of children, too.
    os.setpgid(0, 0)
    multiprocessing.set_start_method(None, force=True)  # unset, so that the script can still choose one
    allow_children()


def allow_children() -> None:
    """Let this process start children although it may be a daemon."""
    # multiprocessing forbids daemons to have children, so that none outlive them; `end` kills these.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def watch_children(started: Callable[[BaseProcess], bool]) -> None:
    """Call `started` before each process that this one starts; do not start the process if `started` returns True."""
    own, start = os.getpid(), BaseProcess.start

    def tell(self: BaseProcess) -> None:
        # Forked children inherit the patch: what they start in turn is no business of this rank.
        if os.getpid() != own or not started(self):
            start(self)

    BaseProcess.start = tell  # type: ignore[method-assign]


def end(process: Any) -> None:
    """Kill a process that has called `stand_alone`, and its children."""
    with suppress(ProcessLookupError):
        # Without a group yet the process has not come to `stand_alone`, and has no children.
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def answer_into(file: Path) -> None:
    """Write the frames of this process's threads into a file on each signal `STANDS`."""
    faulthandler.register(STANDS, file=file.open("w"), all_threads=True)


def line_of(file: Path) -> str:
    """Return ", in FILE:LINE", the innermost line of the user's in the file; "" if there is none.

    faulthandler writes the interrupted thread last, innermost frame first.
    """
    if not file.is_file():
        return ""
    threads = file.read_text().split("\n\n")
    for text in reversed(threads):
        for found in filter(None, map(_FRAME.match, text.splitlines())):
            if not is_installed(found[1]):
                return f", in {os.path.basename(found[1])}:{found[2]}"
    return ""
