"""Finds the current line of a script by a signal: Python writes its threads' frames even while it waits in C++."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from pathlib import Path

from scenarios.seam.errors import is_installed

STANDS = signal.SIGUSR1
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ')


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
