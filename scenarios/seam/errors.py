"""The mistakes that a user can make, each reported in one sentence; mistakes of this project are assertions instead."""

from __future__ import annotations

import os
import sysconfig
import traceback
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from scenarios.progress_line import print_notes

_PACKAGES = Path(__file__).resolve().parents[2]
_OURS = tuple(f"{_PACKAGES / name}/" for name in ("scenarios", "sim", "real", "reports", "twinstep"))
# The folders of installed packages, of any environment; Debian's Python, which NVIDIA's containers have, names them
# dist-packages.
_INSTALLED = tuple(f"{os.sep}{kind}-packages{os.sep}" for kind in ("site", "dist"))
_STDLIB = f"{sysconfig.get_path('stdlib')}/"


class ScenarioError(Exception):
    """One or more mistakes in a scenario, each `file: key = value: expected ...`, reported together."""

    def __init__(self, sentences: str | Iterable[str]) -> None:
        self.sentences = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        super().__init__("\n".join(self.sentences))


class NoRoomError(ScenarioError):
    """A rank that holds `excess_bytes` more than its memory, though the scenario and its plan are sound."""

    def __init__(self, sentence: str, excess_bytes: int) -> None:
        super().__init__(sentence)
        self.excess_bytes = excess_bytes


class Note(UserWarning):
    """A warning about a run, in one sentence."""


def show_notes() -> None:
    """Print `Note` warnings as `note: ...` on stderr from now on; for entry points."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, Note):
            print_notes([str(message)])
        else:
            others(message, category, *where, **more)

    warnings.showwarning = show


class ProgramError(Exception):
    """A program used a `Rank` wrongly, or the ranks did not fit together: one sentence with ranks and operations."""


class CollectiveError(ProgramError):
    """A collective was called with arguments that do not fit each other, here or on another rank."""


class ScriptError(ProgramError):
    """A script raised, or did nothing that could be predicted: a sentence, and below it the frames that led there."""


class DeadlockError(ProgramError):
    """No rank can go on: the sentence names the ranks that wait, and what each waits for."""


class RankLostError(ProgramError):
    """A rank of a real run died, raised or never started: the sentence names the rank."""


def tell_error(error: BaseException) -> str:
    """Return the error's type and message in one line, with the user's line that raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} (at {error.filename}:{error.lineno})"
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{place_of(error)}"


def text_of(error: BaseException) -> str:
    """Return the error's message; that of Python's tracebacks where a user's `__str__` raises an error itself."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def place_of(error: BaseException) -> str:
    """Return ` (at FILE:LINE)`, the innermost line neither installed nor this project's; "" if there is none."""
    frames = users_frames(error)
    return f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def is_installed(filename: str) -> bool:
    """Return whether a source file is installed, part of Python, or part of this project."""
    return is_ours_or_pythons(filename) or package_of(filename) != ""


@cache
def package_of(filename: str) -> str:
    """Return the top-level name of the installed package to which a file belongs; "" if it is not installed."""
    folder = max(_INSTALLED, key=filename.rfind)
    return filename.rpartition(folder)[2].partition(os.sep)[0] if folder in filename else ""


def is_ours_or_pythons(filename: str) -> bool:
    """Return whether a source file is part of this project or of Python's standard library."""
    is_pythons = filename.startswith(_STDLIB) and not package_of(filename)
    return is_pythons or filename.startswith("<") or is_ours(filename)


@cache  # frames name the same few files again and again
def is_ours(filename: str) -> bool:
    """Return whether a source file is part of this project; links are followed, as a checkout may be one."""
    return os.path.realpath(filename).startswith(_OURS)


def users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the error's frames in code that is neither installed nor this project's, the outermost call first."""
    found = traceback.extract_tb(error.__traceback__)
    return [frame for frame in found if not is_installed(frame.filename)]


def users_traceback(error: BaseException) -> list[str]:
    """Return the user's frames as lines if there is more than the one that `place_of` shows, else []."""
    frames = users_frames(error)
    return "".join(traceback.format_list(frames)).rstrip().splitlines() if len(frames) > 1 else []
