"""Identifies the user's lines: in files that are neither installed nor this project's, among the frames of a call."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

from scenarios.seam.errors import package_of

_ROOMS = ("scenarios/seam", "scenarios/workloads", "scenarios/modules", "real", "twinstep")
_OWN = tuple(f"{Path(__file__).parents[3] / room}{os.sep}" for room in _ROOMS)
_OTHERS = (*_OWN, sysconfig.get_paths()["stdlib"], "<")


@cache
def is_users_file(name: str) -> bool:
    """Return whether a file is the user's: not of Python, an installed package or this project."""
    return not name.startswith(_OTHERS) and package_of(name) == ""


def is_own_file(name: str) -> bool:
    """Return whether a file is of this project's parts that scripts call."""
    return name.startswith(_OWN)


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's that leads to this frame; None if there is none."""
    while frame is not None and not is_users_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def users_line(frame: FrameType | None) -> str:
    """Return the innermost line of the user's that leads to this frame, as "train.py:31"; "" if there is none."""
    found = users_frame(frame)
    return "" if found is None else f"{_base(found.f_code.co_filename)}:{found.f_lineno}"


_base = cache(os.path.basename)
