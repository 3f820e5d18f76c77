"""The commands as a user types them, played in this process: `python -m ROOM WORDS` without a second Python."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from subprocess import CompletedProcess


def command(room: str, *words: object) -> CompletedProcess[str]:
    """What `python -m room words...` would print and end with; its pool of ranks aside, nothing is started.

    Tests of signals and of what is imported start a Python of their own.
    """
    line, out, err = list(map(str, words)), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = import_module(f"{room}.__main__").main(line)
        except SystemExit as end:  # argparse's
            code = end.code
    return CompletedProcess([room, *line], code, out.getvalue(), err.getvalue())


def unfolded(printed: str) -> str:
    """Return what was printed with each note on one line."""
    return re.sub(r"\n {6}(?=\S)", " ", printed)
