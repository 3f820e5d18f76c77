"""Identifies the user's lines: in files that are neither installed nor this project's, among the frames of a call."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

# A part of the paths of installed packages.
INSTALLED = f"{os.sep}site-packages{os.sep}"
_ROOMS = ("scenarios/seam", "scenarios/workloads", "scenarios/modules", "real", "twinstep")
_OTHERS = (*(f"{Path(__file__).parents[3] / room}{os.sep}" for room in _ROOMS), sysconfig.get_paths()["stdlib"], "<")


@cache
def is_users_file(name: str) -> bool:
    """Return whether a file is the user's: not of Python, an installed package or this project."""
    return not name.startswith(_OTHERS) and INSTALLED not in name


def users_line(frame: FrameType | None) -> str:
    """Return the innermost line of the user's that leads to this frame, as "train.py:31"; "" if there is none."""
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users_file(name):
            return f"{_base(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


_base = cache(os.path.basename)
