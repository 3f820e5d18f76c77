"""Runs a script or module in this process as `__main__`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_as_main(words: Sequence[str]) -> None:
    """Run `python WORDS` in this process. `words`: a file, or "-m" and a module, followed by arguments."""
    if words[0] == "-m":
        sys.argv, sys.path[:0] = [*words[1:]], [os.getcwd()]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:0] = [*words], [str(Path(words[0]).resolve().parent)]
        runpy.run_path(words[0], run_name="__main__")
