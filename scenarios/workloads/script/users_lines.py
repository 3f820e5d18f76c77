"""Which lines are the user's: of the frames that lead to a call, those of files that are neither installed nor ours."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

# Where code lies that is not the user's.
INSTALLED = f"{os.sep}site-packages{os.sep}"
_ROOMS = ("scenarios/seam", "scenarios/workloads", "scenarios/modules", "real", "twinstep")
_OTHERS = (*(f"{Path(__file__).parents[3] / room}{os.sep}" for room in _ROOMS), sysconfig.get_paths()["stdlib"], "<")


@cache
def is_users_file(name: str) -> bool:
    """Return whether a file's code is the user's: not Python's, an installed package's or ours."""
    return not name.startswith(_OTHERS) and INSTALLED not in name


def users_line(frame: FrameType | None) -> str:
    """ "train.py:31": the innermost line of the user's that leads to this frame; "" without."""
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users_file(name):
            return f"{_base(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


_base = cache(os.path.basename)
