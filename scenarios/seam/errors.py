"""The mistakes that a user can make, each one sentence; a mistake of ours is an assertion instead."""

from __future__ import annotations

import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PACKAGES = Path(__file__).parents[2]
_OURS = tuple(str(_PACKAGES / name) + "/" for name in ("scenarios", "sim", "real", "reports", "twinstep"))
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
_STDLIB = f"{sysconfig.get_path('stdlib')}/"


class ScenarioError(Exception):
    """One or more mistakes in a scenario, each `file: key = value: expected ...`, reported in one go."""

    def __init__(self, sentences: str | Iterable[str]) -> None:
        self.sentences = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        super().__init__("\n".join(self.sentences))


class Note(UserWarning):
    """Something that a user should know of a run: one sentence."""


def show_notes() -> None:
    """From now on show notes as commands do; for entry points."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, Note):
            print(f"note: {message}", file=sys.stderr)
        else:
            others(message, category, *where, **more)

    warnings.showwarning = show


class ProgramError(Exception):
    """A program used a `Rank` wrongly, or the ranks did not fit together: one sentence with ranks and operations."""


class CollectiveError(ProgramError):
    """A collective was called with arguments that do not fit each other, here or on another rank."""


class ScriptError(ProgramError):
    """A script raised, or did nothing that is a run: a sentence, and below it the frames that lead there."""


class DeadlockError(ProgramError):
    """No rank can go on: the sentence says which ranks wait, and each for what."""


class RankLostError(ProgramError):
    """A rank of a real run died, raised or never came: the sentence names it."""


def told(error: BaseException) -> str:
    """The error's kind and first lines in one line, and where the user's own code raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} (at {error.filename}:{error.lineno})"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{place_of(error)}"


def place_of(error: BaseException) -> str:
    """` (at FILE:LINE)`, the innermost line of code that is neither ours nor installed; "" if there is none."""
    frames = users_frames(error)
    return f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def is_installed(filename: str) -> bool:
    """Return whether a file of code is installed, or part of Python or of this project."""
    return is_ours(filename) or filename.startswith(_INSTALLED)


def is_ours(filename: str) -> bool:
    """Return whether a file of code is part of this project, or of Python itself."""
    is_pythons = filename.startswith(_STDLIB) and not filename.startswith(_INSTALLED)
    return is_pythons or filename.startswith((*_OURS, "<"))


def users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return what the error's traceback has of code that is neither ours nor installed, the outermost call first."""
    found = traceback.extract_tb(error.__traceback__)
    return [frame for frame in found if not is_installed(frame.filename)]


def users_traceback(error: BaseException) -> list[str]:
    """Those frames as lines, if they say more than `place_of`; [] otherwise."""
    frames = users_frames(error)
    return "".join(traceback.format_list(frames)).rstrip().splitlines() if len(frames) > 1 else []
