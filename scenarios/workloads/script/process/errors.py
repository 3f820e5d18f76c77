"""Error messages for a script's user: one sentence, followed by the script's stack frames."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from itertools import islice

import torch

from scenarios.seam.errors import is_installed, is_ours
from scenarios.workloads.script.config import Script

# How many lines of an exception's message are shown after its first.
_MOST_LINES = 20
_TORCHS = os.path.dirname(torch.__file__) + os.sep


def error_message(script: Script, error: BaseException) -> str:
    """Return the message for an exception: a sentence that begins with the script's line, and the frames."""
    first, *more = str(error).strip().splitlines() or [""]
    sentence = f"{place_of(script, error)}: {type(error).__name__}{': ' if first else ''}{first}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "triton":
        sentence += " (pip install triton: no GPU is needed, as its kernels are priced by the bytes of their arguments)"
    return "\n".join([sentence, *islice(more, _MOST_LINES), *_show_traceback(script, error)])


def tell_exit(script: Script, end: SystemExit) -> str:
    """Return the message for a script that called `sys.exit` with anything but 0."""
    what = f"exit code {end.code}" if isinstance(end.code, int) else str(end.code)
    sentence = f"{script.path} ended with {what} (sys.exit in {place_of(script, end)})"
    return "\n".join([sentence, *_show_traceback(script, end)])


def place_of(script: Script, error: BaseException) -> str:
    """Return "FILE:LINE", the innermost line of the user's own code; the script's path if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    folder = os.path.realpath(script.path.parent) + os.sep
    own = [frame for frame in _frames(error) if _is_users(frame.filename, folder)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else os.fspath(script.path)


def _show_traceback(script: Script, error: BaseException) -> list[str]:
    if script.has_traceback:
        return "".join(traceback.format_exception(error)).splitlines()
    frames = _frames(error)
    lines = "".join(traceback.format_list(frames)).rstrip().splitlines()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        first = (str(cause).strip().splitlines() or [""])[0]
        lines.append(f"  after {type(cause).__name__}{': ' if first else ''}{first} ({place_of(script, cause)})")
    return [*lines, "  (--traceback shows torch's frames, too)"] if lines else []


def _frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    """Return the frames that are neither torch's, this project's nor Python's, outermost call first."""
    found = traceback.extract_tb(error.__traceback__)
    return traceback.StackSummary.from_list(
        frame for frame in found if not (is_ours(frame.filename) or frame.filename.startswith(_TORCHS))
    )


def _is_users(filename: str, folder: str) -> bool:
    """Return whether a file is in the script's folder or in a package that is not installed."""
    return os.path.realpath(filename).startswith(folder) or not is_installed(filename)
